//! Plays a script: one thread, one clock, one event at a time.
//!
//! Events are queued by virtual time. After each event its changes on the server are passed to the watches (which
//! schedule deliveries), to the actors (which schedule their actions) and to the judge.

mod faults;
mod replica;
mod rest;
mod updates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, Key};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::actors::World;
use crate::hub::{Hub, SharedHub, lock};
use crate::invariants::{Judge, Violation};
use crate::kinds::Kind;
use crate::plant::Plant;
use crate::rng::Rng;
use crate::script::{Fault, Script};
use crate::server::{Server, Writer};
use crate::timeline::Timeline;

pub(crate) use replica::{PassInfo, Replica, Task};

/// An event of the simulation.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The user's deed of this number.
    Deed(usize),
    /// The fault of this number begins.
    Fault(usize),
    /// A process becomes leader.
    Lead,
    /// Change number `nth` of a kind reaches the cache of a process, if that watch is still up.
    Deliver {
        replica: u32,
        kind: Kind,
        watch: u32,
        nth: usize,
    },
    /// The watch of a kind starts or restarts.
    List {
        replica: u32,
        kind: Kind,
    },
    /// Workers take keys from the queue.
    Work {
        replica: u32,
    },
    /// A pass continues.
    Resume {
        replica: u32,
        task: u64,
    },
    /// A request of a former leader arrives.
    Straggler {
        task: u64,
    },
    /// An actor acts on an object.
    Act {
        actor: Actor,
        key: Key,
        uid: String,
    },
    Heartbeat {
        node: u8,
    },
    NodeRemoved {
        node: u8,
    },
    NodeBack {
        node: u8,
    },
    /// Target Pods are accepted again.
    TargetsAllowed,
    /// The upgrade is complete.
    Upgraded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Scheduler,
    Kubelet,
    KubeletKill,
    KubeletEvict,
    KubeletReap,
    NodeAgent,
    GuestEnds {
        crashed: bool,
    },
    /// A round of a guest's memory has been sent.
    Sends {
        journey: u64,
    },
    /// A guest's transfer is interrupted.
    Severs {
        journey: u64,
    },
    BackupEnds,
    UtilityEnds,
    /// Binds a claim that a Pod uses.
    Binder,
    /// Releases a deleted claim that no Pod uses.
    Protector,
    /// Deletes the volume of a claim that is gone.
    Reclaimer,
    /// Unmounts the volumes of a Pod that has ended.
    Unmounts,
    /// A Job finishes.
    Job,
    /// A finished Job expires.
    JobExpires,
    Cdi,
    Collector,
}

/// The outcome of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    /// Events played.
    pub steps: u64,
    /// Passes of controllers.
    pub passes: u64,
    /// Requests of controllers.
    pub requests: u64,
    /// Guests that migrated to another node.
    pub moved: u64,
    pub timeline: Vec<String>,
    /// What exists at the end, if a timeline was kept.
    pub left: Vec<String>,
}

impl Outcome {
    /// Of a history that could not be played to its end.
    pub(crate) fn panicked(message: &str) -> Self {
        let violation = Violation { invariant: "no_panics", at: Duration::ZERO, message: message.to_owned() };
        Self {
            violation: Some(violation),
            steps: 0,
            passes: 0,
            requests: 0,
            moved: 0,
            timeline: Vec::new(),
            left: Vec::new(),
        }
    }
}

/// Options of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub plant: Option<Plant>,
    /// Keep a timeline of everything that happens.
    pub verbose: bool,
    /// Keep a timeline of API writes only.
    pub writes: bool,
}

/// A history with more events than this does not terminate.
const MAX_STEPS: u64 = 60_000;

/// See the module.
pub(crate) struct Sim {
    pub(crate) hub: SharedHub,
    pub(crate) clock: Clock,
    pub(crate) now: Duration,
    pub(crate) rng: Rng,
    pub(crate) script: Arc<Script>,
    events: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    pub(crate) replica: Option<Replica>,
    stragglers: Vec<Task>,
    replicas: u32,
    /// The launcher image of the process.
    image: u32,
    pub(crate) requests: u64,
    /// Number of modifying requests.
    writes: u64,
    passes: u64,
    /// Number of changes already passed on.
    told: usize,
    /// The same by kind.
    told_of: Vec<usize>,
    last_write: Duration,
    pub(crate) world: World,
    pub(crate) judge: Judge,
    pub(crate) timeline: Timeline,
    luck: u64,
    steps: u64,
}

/// The wall-clock time at which every history begins.
const START: &str = "2026-01-05T08:00:00Z";

impl Sim {
    fn new(script: Arc<Script>, options: Options) -> Self {
        let start: Timestamp = START.parse().expect("a constant time");
        let server = Server::new(start);
        let hub = Hub {
            server,
            pass: Writer::User,
            permit: None,
            sent: None,
            answered: None,
            meant: None,
            plant: options.plant,
            seen: vec![0; Kind::ALL.len()],
            drawn: 0,
        };
        let rng = Rng::new(script.seed).fork("luck");
        Self {
            hub: Arc::new(Mutex::new(hub)),
            clock: Clock::manual(start),
            now: Duration::ZERO,
            rng,
            script,
            events: BTreeMap::new(),
            sequence: 0,
            replica: None,
            stragglers: Vec::new(),
            replicas: 0,
            image: 1,
            requests: 0,
            writes: 0,
            passes: 0,
            told: 0,
            told_of: vec![0; Kind::ALL.len()],
            last_write: Duration::ZERO,
            world: World::default(),
            judge: Judge::new(),
            timeline: Timeline::new(options.verbose, options.writes),
            luck: 0,
            steps: 0,
        }
    }

    pub(crate) fn schedule(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    /// A random duration between the two, in milliseconds.
    pub(crate) fn some_ms(&mut self, low: u64, high: u64) -> Duration {
        self.luck += 1;
        Duration::from_millis(low + self.rng.at("ms", self.luck) % (high - low + 1))
    }

    fn begin(&mut self) {
        let script = self.script.clone();
        self.furnish();
        for (number, (at, _)) in script.user.iter().enumerate() {
            self.schedule(*at, Event::Deed(number));
        }
        for (number, fault) in script.faults.iter().enumerate() {
            if let Some(at) = begins(fault) {
                self.schedule(at, Event::Fault(number));
            }
        }
        self.schedule(Duration::ZERO, Event::Lead);
        self.tell();
    }

    /// Plays until everything has settled or an invariant is broken.
    fn play(&mut self) -> Result<(), Violation> {
        self.begin();
        loop {
            if let Some(violation) = self.judge.violation.take() {
                return Err(violation);
            }
            let Some(((at, _), event)) = self.events.pop_first() else { return self.rest() };
            if self.quiet_at(at) {
                return self.rest();
            }
            self.move_to(at)?;
            self.handle(event);
            self.tell();
        }
    }

    fn move_to(&mut self, at: Duration) -> Result<(), Violation> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(self.unsettled("the history goes in circles"));
        }
        if at > self.now {
            self.clock.advance(at - self.now);
            self.now = at;
            lock(&self.hub).server.now = at;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deed(number) => self.deed(number),
            Event::Fault(number) => self.fault(number),
            Event::Lead => self.lead(),
            Event::Deliver { replica, kind, watch, nth } => self.deliver(replica, kind, watch, nth),
            Event::List { replica, kind } => self.list(replica, kind),
            Event::Work { replica } => self.work(replica),
            Event::Resume { replica, task } => self.resume(replica, task),
            Event::Straggler { task } => self.straggle(task),
            Event::Act { actor, key, uid } => self.act(actor, &key, &uid),
            Event::Heartbeat { node } => self.heartbeat(node),
            Event::NodeRemoved { node } => self.remove_node(node),
            Event::NodeBack { node } => self.return_node(node),
            Event::TargetsAllowed => self.allow_targets(),
            Event::Upgraded => self.end_upgrade(),
        }
    }

    /// Passes on what has changed on the server.
    fn tell(&mut self) {
        loop {
            let change = {
                let hub = lock(&self.hub);
                let Some(change) = hub.server.log.get(self.told) else { return };
                change.clone()
            };
            self.told += 1;
            if !matches!((change.kind(), change.by), (Kind::Node, Writer::NodeAgent)) {
                self.last_write = self.now;
            }
            self.timeline.change(&change);
            self.judge.change(&lock(&self.hub).server, &change);
            let nth = &mut self.told_of[change.kind() as usize];
            *nth += 1;
            let nth = *nth - 1;
            self.announce(change.kind(), nth);
            self.notice(&change);
        }
    }
}

/// When a fault begins by itself; others are triggered by a request or an object.
fn begins(fault: &Fault) -> Option<Duration> {
    match fault {
        Fault::Outage { at, .. }
        | Fault::Crash { at }
        | Fault::NewLeader { at, .. }
        | Fault::Upgrade { at }
        | Fault::Updates { at, .. }
        | Fault::NodeOutage { at, .. }
        | Fault::NodeLoss { at, .. }
        | Fault::NoTargets { at, .. } => Some(*at),
        _ => None,
    }
}

/// Plays a script to its end.
pub fn play(script: &Script, options: Options) -> Outcome {
    let mut sim = Sim::new(Arc::new(script.clone()), options);
    let violation = sim.play().err();
    if let Some(violation) = &violation {
        sim.timeline.line(sim.now, "judge", &violation.to_string());
    }
    let (steps, passes, requests) = (sim.steps, sim.passes, sim.requests);
    let left = if options.writes { crate::timeline::left(&lock(&sim.hub).server) } else { Vec::new() };
    let moved = sim.world.arrivals();
    Outcome { violation, steps, passes, requests, moved, timeline: sim.timeline.lines, left }
}

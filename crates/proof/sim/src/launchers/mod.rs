//! Both launchers and both virt-handlers of one migration, over a link with losses, delays and breaks.
//!
//! The launchers are the state machines of [`transfer`], the virt-handlers those of [`vmstate`], as shipped. What is
//! between them is a model: two libvirt daemons with a QEMU each (`daemons.rs`), the link, and a VMI that both
//! virt-handlers read and write (`agents.rs`). Any call or response may get lost, and either QEMU, launcher or
//! virt-handler may die at any moment, until the calm phase; then everything must terminate.
//!
//! ```text
//!  virt-handler ── vmstate ──┐     VMI     ┌── vmstate ── virt-handler
//!                            ▼             ▼
//!  transfer::Source ── libvirt, QEMU ══ link ══ libvirt, QEMU ── transfer::Target
//! ```
//!
//! Invariants at every moment, whatever anybody was told:
//!
//! - `one_guest`: the guest runs once.
//! - `guest_kept`: nobody ends a guest that only the source has. A QEMU that dies at the target as the guest arrives does
//!   not cost the guest if the source was not told that it runs there.
//! - `transfer_ends`: in the end the source has come to a decision, and the guest runs where the VMI says.

mod agents;
mod daemons;

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use launcher_contract::migration::MigrationOptions;
use launcher_contract::types::DomainReason as Reason;
use transfer::{Command, Event, PostCopy, Report, Setup};

use crate::engine::{Options, Outcome};
use crate::invariants::Violation;
use crate::plant::Plant;
use crate::rng::Rng;

use agents::Side;
use daemons::{Here, There};

/// The profile's name.
pub const NAME: &str = "launchers";
pub const ABOUT: &str = "both launchers of one migration, over a link that loses, delays and breaks";

const SOURCE: usize = 0;
const TARGET: usize = 1;
/// From here on there are no faults.
const CALM: Duration = Duration::from_secs(60);
/// By then everything has terminated: giving up a post-copy may take five minutes.
const END: Duration = Duration::from_secs(460);
/// A history with more events than this does not terminate.
const MAX_STEPS: u64 = 20_000;

/// An event of the simulation.
#[derive(Clone, Debug)]
enum Happening {
    /// A call reaches its daemon.
    Call(Command),
    /// A response, or another event, reaches the source's launcher.
    Hears(Event),
    Wake,
    /// Memory has been sent; the number is that of the transfer.
    Sent(u64),
    /// libvirt at the target finishes Finish.
    Finishes,
    /// The target's launcher checks its domain.
    TargetLooks,
    AgentLooks(usize),
    AgentReturns(usize),
    Goes(Trouble),
}

/// Faults.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    LinkBreaks(Duration),
    AgentStops(usize, Duration),
    QemuDies(usize),
    LauncherDies(usize),
    Abort,
    /// The guest powers off where it runs.
    PowersOff,
}

struct Move {
    now: Duration,
    rng: Rng,
    queue: BTreeMap<(Duration, u64), Happening>,
    sequence: u64,
    plant: Option<Plant>,
    verbose: bool,
    timeline: Vec<String>,
    violation: Option<Violation>,

    machine: Option<transfer::Source>,
    outcome: Option<transfer::Outcome>,
    receiver: transfer::Target,
    options: MigrationOptions,
    vmi: VirtualMachineInstance,
    sides: [Side; 2],

    here: Here,
    there: There,
    /// libvirt at the target has not finished Finish.
    receiving: bool,
    finishing: bool,
    performing: bool,
    transfer: u64,
    /// The guest dirties memory faster than it can be sent.
    busy: bool,
    takes: Duration,
    link_down_until: Duration,
    /// The source was told that the guest runs, or will run, at the target.
    told: bool,
    /// Why the guest may have ended.
    excuse: Option<&'static str>,
}

/// Plays the history of a seed.
pub fn play(seed: u64, options: Options) -> Outcome {
    let mut it = Move::new(seed, options);
    let mut steps = 0;
    while let Some(((at, _), happening)) = it.queue.pop_first() {
        if at > END || it.violation.is_some() {
            break;
        }
        steps += 1;
        it.now = at;
        it.line(&format!("{happening:?}"));
        it.handle(happening);
        it.show();
        it.check();
        if steps > MAX_STEPS {
            it.violate("transfer_ends", "the history goes in circles".to_owned());
        }
    }
    it.at_rest();
    if let Some(violation) = it.violation.clone() {
        it.line(&violation.to_string());
    }
    let moved = u64::from(it.there == There::Running);
    Outcome { violation: it.violation, steps, passes: 0, requests: 0, moved, timeline: it.timeline, left: Vec::new() }
}

impl Move {
    fn new(seed: u64, options: Options) -> Move {
        let mut rng = Rng::new(seed).fork(NAME);
        let (busy, post_copy) = (rng.chance(30), rng.chance(40));
        let takes = Duration::from_millis(rng.within(500, 15_000));
        let migration = MigrationOptions {
            allow_post_copy: post_copy,
            allow_workload_disruption: post_copy || rng.chance(30),
            completion_timeout_per_gib_seconds: 10,
            ..MigrationOptions::default()
        };
        let mut it = Move {
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            plant: options.plant,
            verbose: options.verbose,
            timeline: Vec::new(),
            violation: None,
            machine: None,
            outcome: None,
            receiver: transfer::Target::default(),
            options: migration,
            vmi: agents::handed_off(),
            sides: [agents::side(), agents::side()],
            here: Here::Running,
            there: There::Nothing,
            receiving: false,
            finishing: false,
            performing: false,
            transfer: 0,
            busy,
            takes,
            link_down_until: Duration::ZERO,
            told: false,
            excuse: None,
            rng,
        };
        it.show();
        it.troubles();
        it
    }

    fn troubles(&mut self) {
        for _ in 0..self.rng.below(4) {
            let at = Duration::from_millis(self.rng.within(500, 40_000));
            let lasts = Duration::from_millis(self.rng.within(500, 18_000));
            let side = self.rng.below(2) as usize;
            let trouble = match self.rng.below(10) {
                0..=3 => Trouble::LinkBreaks(lasts),
                4..=5 => Trouble::AgentStops(side, lasts),
                6 => Trouble::QemuDies(side),
                7 => Trouble::LauncherDies(side),
                8 => Trouble::Abort,
                _ => Trouble::PowersOff,
            };
            self.after(at, Happening::Goes(trouble));
        }
    }

    fn after(&mut self, wait: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + wait, self.sequence), happening);
    }

    /// The same, after a random time between the two, in milliseconds.
    fn soon(&mut self, low: u64, high: u64, happening: Happening) {
        let wait = Duration::from_millis(self.rng.within(low, high));
        self.after(wait, happening);
    }

    fn line(&mut self, what: &str) {
        if self.verbose {
            let state = format!("{:?} / {:?}", self.here, self.there);
            self.timeline.push(format!("{:>9.3}s  {state:<24} {what}", self.now.as_secs_f64()));
        }
    }

    fn is_calm(&self) -> bool {
        self.now >= CALM
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.chance(percent) && !self.is_calm()
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::Call(command) => self.call(command),
            Happening::Hears(event) => self.hear(event),
            Happening::Wake => {
                let due = self.machine.as_ref().and_then(transfer::Source::wakes_at);
                if due.is_some_and(|at| at <= self.now) {
                    self.hear(Event::Tick);
                }
            }
            Happening::Sent(transfer) if transfer == self.transfer => self.sent(),
            Happening::Sent(_) => {}
            Happening::Finishes => self.finished(),
            Happening::TargetLooks => self.target_looks(),
            Happening::AgentLooks(side) => self.agent_looks(side),
            Happening::AgentReturns(side) => self.agent_returns(side),
            Happening::Goes(trouble) => self.goes_wrong(trouble),
        }
    }

    /// The source's virt-handler tells the launcher to send the guest.
    fn depart(&mut self) {
        let setup = Setup { options: self.options.clone(), bytes: 1, paused: false, post_copy: PostCopy::Possible };
        let mut machine = transfer::Source::new(setup);
        let commands = machine.start(self.now);
        self.machine = Some(machine);
        self.obey(commands);
    }

    fn hear(&mut self, event: Event) {
        if self.outcome.is_some() || !self.sides[SOURCE].launcher {
            return;
        }
        let event = self.plant_hearing(event);
        let Some(machine) = &mut self.machine else { return };
        let commands = machine.on(event, self.now);
        self.obey(commands);
    }

    /// [`Plant::SourceResumes`], [`Plant::LostFinish`]
    fn plant_hearing(&self, event: Event) -> Event {
        match (self.plant, event) {
            (Some(Plant::SourceResumes), Event::There(Ok(Some(_)))) => Event::There(Ok(None)),
            (Some(Plant::LostFinish), Event::Finished(Err(mut failure))) => {
                failure.how = transfer::How::Refused;
                Event::Finished(Err(failure))
            }
            (_, event) => event,
        }
    }

    fn obey(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Report(Report::Phase(phase)) => self.sides[SOURCE].migration().phase = phase,
                Command::Report(Report::Mode(mode)) => self.sides[SOURCE].set_mode(mode),
                Command::Report(Report::Progress(_)) | Command::Warn(_) => {}
                Command::End(outcome) => self.ended(outcome),
                command => self.soon(1, 30, Happening::Call(command)),
            }
        }
        if let Some(at) = self.machine.as_ref().and_then(transfer::Source::wakes_at) {
            self.after(at.saturating_sub(self.now), Happening::Wake);
        }
    }

    fn ended(&mut self, outcome: transfer::Outcome) {
        let now = self.time();
        self.sides[SOURCE].concluded(&outcome, now);
        self.line(&format!("the source ends: {outcome:?}"));
        self.outcome = Some(outcome);
    }

    fn goes_wrong(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::LinkBreaks(lasts) => self.link_breaks(lasts),
            Trouble::AgentStops(side, lasts) => {
                self.sides[side].agent = false;
                self.after(lasts, Happening::AgentReturns(side));
                self.link_breaks(lasts);
            }
            Trouble::QemuDies(SOURCE) => self.source_qemu_ends(Reason::Crashed),
            Trouble::QemuDies(_) => self.target_qemu_dies(),
            Trouble::LauncherDies(side) => self.launcher_dies(side),
            Trouble::Abort => {
                if let Some(state) = &mut self.vmi.status_mut().migration_state {
                    state.abort_requested = Some(true);
                }
                self.look_soon(SOURCE);
            }
            Trouble::PowersOff => {
                if self.there.runs() {
                    self.excuse = Some("the guest powered off at the target");
                    self.target_ends(There::Down(Reason::Shutdown));
                } else if self.here == Here::Running {
                    self.excuse = Some("the guest powered off at the source");
                    self.source_qemu_ends(Reason::Shutdown);
                }
            }
        }
    }

    fn violate(&mut self, invariant: &'static str, message: String) {
        let at = self.now;
        self.violation.get_or_insert(Violation { invariant, at, message });
    }

    fn check(&mut self) {
        if self.here == Here::Running && self.there.runs() {
            self.violate("one_guest", "the guest runs at the source and at the target".to_owned());
        }
    }

    /// Something is about to end the source's QEMU.
    fn ends_here(&mut self, who: &str) {
        let whole = matches!(self.here, Here::Running | Here::Standing);
        if whole && !self.there.runs() && self.excuse.is_none() {
            self.violate("guest_kept", format!("{who} ended the guest that only the source had"));
        }
    }

    fn at_rest(&mut self) {
        if self.violation.is_some() {
            return;
        }
        if self.machine.is_some() && self.outcome.is_none() && self.sides[SOURCE].launcher {
            return self.violate("transfer_ends", format!("the source goes on for ever: {:?}", self.machine));
        }
        let node = self.vmi.status.as_ref().and_then(|status| status.node_name.clone());
        let runs = [(self.here == Here::Running, SOURCE), (self.there == There::Running, TARGET)];
        let places: Vec<_> = runs.iter().filter(|(runs, _)| *runs).map(|(_, side)| agents::NODES[*side]).collect();
        if self.vmi.is_final() {
            if self.excuse.is_none() {
                self.violate("guest_kept", "the instance has ended, and nobody ended the guest".to_owned());
            } else if !places.is_empty() {
                self.violate("transfer_ends", format!("an instance that has ended runs on {places:?}"));
            }
        } else if places.len() != 1 || node.as_deref() != places.first().copied() {
            self.violate("transfer_ends", format!("the guest runs on {places:?}, and the VMI is on {node:?}"));
        }
    }
}

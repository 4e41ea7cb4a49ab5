//! A virt-controller process: the real controllers over caches that the simulation feeds.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::config::ClusterConfig;
use futures::task::noop_waker;
use informer::{Claim, Classify, ErrorClass, Key, Requeue, WorkQueue};
use kube::runtime::watcher::Event as WatchEvent;
use virt_controller::{Controllers, Error, Feeds, Running, Settings, Stores, WriteCounter};

use super::{Event, Sim};
use crate::controllers;
use crate::hub::{Client, Permit, Request, Silence, lock};
use crate::kinds::{Kind, Object};
use crate::plant::Plant;
use crate::server::Writer;

type Pass = Pin<Box<dyn Future<Output = Result<Requeue, Error>> + Send>>;

/// A pass, as the judge sees it.
#[derive(Clone, Debug)]
pub(crate) struct PassInfo {
    pub id: u64,
    pub replica: u32,
    /// By its short name.
    pub controller: &'static str,
    pub key: Key,
    /// Number of changes of each kind in the caches when it began.
    pub seen: Vec<usize>,
    /// Total number of changes at that time.
    pub begun: usize,
}

/// The state of a pass.
#[derive(Debug)]
enum Stage {
    /// Its request is in flight to the server; `number` among all requests.
    Sent { number: u64 },
    /// The response is in flight.
    Answered { lost: bool },
    /// It waits for something other than a request.
    Waiting,
}

pub(crate) struct Task {
    pub(crate) info: Arc<PassInfo>,
    writer: Writer,
    future: Pass,
    queue: WorkQueue<Key>,
    claim: Claim<Key>,
    stage: Stage,
    request: Option<Request>,
}

pub(crate) struct Replica {
    pub(crate) id: u32,
    pub(crate) controllers: Controllers,
    feeds: Feeds,
    pub(crate) stores: Stores,
    /// By kind: number of changes received.
    taken: Vec<usize>,
    /// By kind: whether there is a watch.
    watched: Vec<bool>,
    /// By kind: how many watches have broken.
    watches: Vec<u32>,
    /// By kind: when the last delivery in flight arrives. Events of one kind stay in order.
    due: Vec<Duration>,
    pub(crate) tasks: BTreeMap<u64, Task>,
    /// Keys whose last pass failed and that will be retried.
    failed: BTreeSet<(&'static str, Key)>,
    next_look: Option<Duration>,
    /// The caches have synced once; a watch that breaks later does not stop the workers.
    synced: bool,
}

impl Replica {
    /// Whether some key waits for a retry after a failure.
    pub(super) fn tries_again(&self) -> bool {
        !self.failed.is_empty()
    }

    fn note_end(&mut self, pass: &PassInfo, result: &Result<Requeue, Error>) {
        let key = (pass.controller, pass.key.clone());
        if result.as_ref().is_err_and(|error| error.class() != ErrorClass::Terminal) {
            self.failed.insert(key);
        } else {
            self.failed.remove(&key);
        }
    }

    fn seen(&self) -> Vec<usize> {
        self.taken.clone()
    }
}

/// Applies one watch event of any kind to the cache it belongs to.
macro_rules! feed {
    ($feeds:expr, $object:expr, $event:ident, [$($kind:ident => $field:ident),* $(,)?]) => {
        match $object {
            $(Object::$kind(object) => $feeds.$field.apply_shared(WatchEvent::$event(object.clone())),)*
            Object::Job(_) => {}
        }
    };
}

macro_rules! each_kind {
    ($macro:ident!($($head:tt)*)) => {
        $macro!($($head)*, [
            Vm => vms, Vmi => vmis, Pod => pods, Revision => revisions, KubeVirt => kubevirts, Migration => migrations,
            Policy => policies, Budget => budgets, Claim => claims, StorageClass => storage_classes,
            Namespace => namespaces, Quota => quotas, Node => nodes,
            Instancetype => instancetypes, ClusterInstancetype => cluster_instancetypes, Preference => preferences,
            ClusterPreference => cluster_preferences, DataVolume => data_volumes, DataSource => data_sources,
            StorageProfile => storage_profiles, Cdi => cdis, CdiConfig => cdi_configs,
        ])
    };
}

macro_rules! frame {
    ($feeds:expr, $kind:expr, $event:ident, [$($name:ident => $field:ident),* $(,)?]) => {
        match $kind {
            $(Kind::$name => $feeds.$field.apply(WatchEvent::$event),)*
            Kind::Job => {}
        }
    };
}

/// Pods without the label do not match the controllers' selector.
fn is_watched(object: &Object) -> bool {
    let Object::Pod(pod) = object else { return true };
    pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(api::labels::APP))
}

impl Replica {
    fn apply(&mut self, object: &Object) {
        if is_watched(object) {
            each_kind!(feed!(self.feeds, object, Apply));
        }
    }

    fn delete(&mut self, object: &Object) {
        if is_watched(object) {
            each_kind!(feed!(self.feeds, object, Delete));
        }
    }

    fn relist(&mut self, kind: Kind, objects: &[Object]) {
        each_kind!(frame!(self.feeds, kind, Init));
        for object in objects.iter().filter(|object| is_watched(object)) {
            each_kind!(feed!(self.feeds, object, InitApply));
        }
        each_kind!(frame!(self.feeds, kind, InitDone));
    }
}

impl Sim {
    /// Starts a new process: empty caches, no memory of its predecessor.
    pub(super) fn lead(&mut self) {
        if self.replica.is_some() {
            return;
        }
        self.replicas += 1;
        let id = self.replicas;
        self.timeline.line(self.now, "process", &format!("process {id} leads"));
        let (stores, feeds) = Stores::detached_whole();
        self.judge.image = format!("launcher:{}", self.image);
        let base = ClusterConfig { launcher_image: self.judge.image.clone(), ..ClusterConfig::default() };
        let settings = Settings {
            base,
            instances: Default::default(),
            hold_starts: false,
            node_topology: Default::default(),
            writes: Arc::<WriteCounter>::default(),
        };
        let (client, clock) = (Arc::new(Client { hub: self.hub.clone() }), self.clock.clone());
        let controllers =
            Controllers::new(&controllers::all(), stores.clone(), client, Arc::new(Silence), clock, settings);
        self.replica = Some(Replica {
            id,
            controllers,
            feeds,
            stores,
            taken: vec![0; Kind::ALL.len()],
            watched: vec![false; Kind::ALL.len()],
            watches: vec![0; Kind::ALL.len()],
            due: vec![Duration::ZERO; Kind::ALL.len()],
            tasks: BTreeMap::new(),
            failed: BTreeSet::new(),
            next_look: None,
            synced: false,
        });
        for &kind in Kind::ALL.iter().filter(|kind| kind.is_watched()) {
            let after = self.some_ms(5, 300);
            self.schedule(after, Event::List { replica: id, kind });
        }
    }

    pub(super) fn leader(&mut self, id: u32) -> Option<&mut Replica> {
        self.replica.as_mut().filter(|replica| replica.id == id)
    }

    /// The watch of a kind starts with a list. While events of the kind are delayed, the server is equally stale: it
    /// returns an old state, but nothing older than what this process has seen before.
    pub(super) fn list(&mut self, id: u32, kind: Kind) {
        let until = self.now.saturating_sub(self.lag(kind));
        let hub = self.hub.clone();
        let Some(replica) = self.leader(id) else { return };
        let (objects, seen, late) = {
            let server = &lock(&hub).server;
            let stream = server.stream(kind);
            let shown = stream.iter().take_while(|&&at| server.log[at].at <= until).count();
            let seen = shown.max(replica.taken[kind as usize]);
            (server.seen(kind, seen).into_values().collect::<Vec<_>>(), seen, seen..stream.len())
        };
        replica.relist(kind, &objects);
        replica.taken[kind as usize] = seen;
        replica.watched[kind as usize] = true;
        self.look_soon();
        late.for_each(|nth| self.announce(kind, nth));
    }

    /// Schedules delivery of a stored change to the cache, in order.
    pub(super) fn announce(&mut self, kind: Kind, nth: usize) {
        if !kind.is_watched() {
            return;
        }
        let lag = self.lag(kind);
        let (now, latency) = (self.now, self.some_ms(2, 120) + lag);
        let Some(replica) = &mut self.replica else { return };
        if !replica.watched[kind as usize] {
            return; // the list will show it
        }
        let due = (now + latency).max(replica.due[kind as usize]);
        replica.due[kind as usize] = due;
        let (replica, watch) = (replica.id, replica.watches[kind as usize]);
        self.schedule(due - now, Event::Deliver { replica, kind, watch, nth });
    }

    pub(super) fn deliver(&mut self, id: u32, kind: Kind, watch: u32, nth: usize) {
        let hub = self.hub.clone();
        let Some(replica) = self.leader(id) else { return };
        // What a broken watch had on its way is lost: between later events of the next one it would hide those before it.
        if replica.watches[kind as usize] != watch || replica.taken[kind as usize] > nth {
            return;
        }
        replica.taken[kind as usize] = nth + 1;
        let hub = lock(&hub);
        let change = &hub.server.log[hub.server.stream(kind)[nth]];
        let (is, last) = (change.is.clone(), change.last.clone());
        drop(hub);
        match is {
            Some(object) => replica.apply(&object),
            None => replica.delete(&last),
        }
        self.look_soon();
    }

    pub(super) fn break_watch(&mut self, kind: Kind, lasts: Duration) {
        let Some(replica) = &mut self.replica else { return };
        replica.watched[kind as usize] = false;
        replica.watches[kind as usize] += 1;
        let replica = replica.id;
        self.schedule(lasts, Event::List { replica, kind });
    }

    /// Schedules the workers.
    pub(super) fn look_soon(&mut self) {
        let after = self.some_ms(0, 20);
        self.look_after(after);
    }

    fn look_after(&mut self, after: Duration) {
        let at = self.now + after;
        let now = self.now;
        let Some(replica) = &mut self.replica else { return };
        if replica.next_look.is_some_and(|look| look > now && look <= at) {
            return;
        }
        replica.next_look = Some(at);
        let replica = replica.id;
        self.schedule(after, Event::Work { replica });
    }

    /// Takes ready keys from the queues and starts passes.
    pub(super) fn work(&mut self, id: u32) {
        let Some(replica) = self.leader(id) else { return };
        replica.synced = replica.synced || Kind::ALL.iter().all(|&kind| replica.was_listed(kind));
        if !replica.synced {
            return;
        }
        let mut started = Vec::new();
        for running in replica.controllers.running() {
            let name = running.declared.short_name();
            let busy = replica.tasks.values().filter(|task| task.info.controller == name).count();
            for _ in busy..controllers::workers(running.declared) {
                let Some(claim) = running.queue.try_get() else { break };
                started.push((running.clone(), claim));
            }
        }
        for (running, claim) in started {
            self.start_pass(running, claim);
        }
        let Some(replica) = self.leader(id) else { return };
        let dues = replica.controllers.running().iter().filter_map(|running| running.queue.next_due());
        if let Some(due) = dues.min() {
            self.look_after(due.saturating_sub(self.now).max(Duration::from_millis(1)));
        }
    }

    fn start_pass(&mut self, running: Arc<Running>, claim: Claim<Key>) {
        let controller = running.declared.short_name();
        self.passes += 1;
        let id = self.passes;
        let Some(replica) = &self.replica else { return };
        let info = Arc::new(PassInfo {
            id,
            replica: replica.id,
            controller,
            key: claim.clone(),
            seen: replica.seen(),
            begun: lock(&self.hub).server.log.len(),
        });
        let writer = Writer::Controller { replica: replica.id, pass: id, name: controllers::writer(controller) };
        let (key, queue) = (info.key.clone(), running.queue.clone());
        let future: Pass = Box::pin(async move { running.reconcile(&key).await });
        self.timeline.pass(self.now, controllers::writer(controller), &info.key);
        self.judge.pass_begins(&info);
        let task = Task { info, writer, future, queue, claim, stage: Stage::Waiting, request: None };
        self.advance(task, None);
    }

    /// Polls a pass with a permit, and records what it waits for now.
    fn advance(&mut self, mut task: Task, permit: Option<Permit>) {
        let Some(replica) = &self.replica else { return };
        let seen = replica.seen();
        {
            let mut hub = lock(&self.hub);
            (hub.pass, hub.permit, hub.seen) = (task.writer, permit, seen);
        }
        let polled = poll(&mut task.future);
        let (sent, answered) = {
            let mut hub = lock(&self.hub);
            hub.permit = None;
            (hub.sent.take(), hub.answered.take())
        };
        match polled {
            Err(message) => self.judge.panicked(&task.info, &message),
            Ok(Poll::Ready(result)) => self.end_pass(task, result),
            Ok(Poll::Pending) => {
                if let Some(request) = sent {
                    self.send(task, request);
                } else if let Some(answer) = answered {
                    self.answer(task, answer);
                } else {
                    task.stage = Stage::Waiting;
                    self.file(task, Duration::from_millis(500));
                }
            }
        }
    }

    fn file(&mut self, task: Task, after: Duration) {
        let id = task.info.id;
        let Some(replica) = &mut self.replica else { return };
        replica.tasks.insert(id, task);
        let replica = replica.id;
        self.schedule(after, Event::Resume { replica, task: id });
    }

    fn send(&mut self, mut task: Task, request: Request) {
        let number = self.requests;
        self.requests += 1;
        self.writes += u64::from(request.writes());
        self.timeline.request(self.now, number, &request);
        self.judge.request(&lock(&self.hub).server, &task.info, &request);
        task.stage = Stage::Sent { number };
        let latency = self.latency(&task.info.key);
        task.request = Some(request);
        self.file(task, latency);
    }

    fn answer(&mut self, mut task: Task, answer: Result<(), u16>) {
        let Stage::Sent { number } = task.stage else { return };
        if self.crashes_at(number, true) {
            self.timeline.line(self.now, "process", "dies before it hears the answer");
            return self.crash();
        }
        let lost = self.loses_answer(number);
        if let Some(request) = task.request.as_ref().filter(|_| !lost) {
            self.judge.answer(&lock(&self.hub).server, &task.info, request, answer);
        }
        if answer.is_ok() && !lost && self.plant() == Some(Plant::NoExpectations) {
            self.plant_seen(&task);
        }
        task.stage = Stage::Answered { lost };
        let latency = self.latency(&task.info.key);
        self.file(task, latency);
    }

    pub(super) fn resume(&mut self, id: u32, task: u64) {
        let Some(task) = self.leader(id).and_then(|replica| replica.tasks.remove(&task)) else { return };
        let permit = match task.stage {
            Stage::Waiting => None,
            Stage::Answered { lost: true } => Some(Permit::Lose),
            Stage::Answered { lost: false } => Some(Permit::Answer),
            Stage::Sent { number } => {
                if self.crashes_at(number, false) {
                    self.timeline.line(self.now, "process", "dies before its request takes effect");
                    return self.crash();
                }
                match self.refusal(number) {
                    Some(status) => Some(Permit::Refuse(status)),
                    None => {
                        self.interfere(number, task.request.as_ref());
                        Some(Permit::Serve)
                    }
                }
            }
        };
        self.advance(task, permit);
    }

    /// Handles the end of a pass like the workers of `informer`.
    fn end_pass(&mut self, task: Task, result: Result<Requeue, Error>) {
        let Some(replica) = &mut self.replica else { return };
        let queue = &task.queue;
        match &result {
            Ok(Requeue::No) => queue.forget(&task.claim),
            Ok(Requeue::After(delay)) => {
                queue.forget(&task.claim);
                queue.add_after(task.claim.clone(), *delay);
            }
            Err(error) if error.class() == ErrorClass::Terminal => queue.forget(&task.claim),
            Err(_) => queue.add_rate_limited(task.claim.clone()),
        }
        replica.note_end(&task.info, &result);
        self.timeline.pass_end(self.now, &task.info.key, &result);
        self.judge.pass_ends(&lock(&self.hub).server, &task.info, result.is_ok());
        drop(task);
        self.look_soon();
    }

    /// The process crashes with all its state; another one starts.
    pub(super) fn crash(&mut self) {
        self.replica = None;
        let after = self.some_ms(200, 9_000);
        self.schedule(after, Event::Lead);
    }

    /// Another process becomes leader at once. Requests of the old one are still in flight.
    pub(super) fn change_leader(&mut self, in_flight: Duration) {
        let Some(old) = self.replica.take() else { return };
        for (id, task) in old.tasks {
            if matches!(task.stage, Stage::Sent { .. }) {
                self.stragglers.push(task);
                self.schedule(in_flight, Event::Straggler { task: id });
            }
        }
        self.lead();
    }

    /// The request takes effect, but nobody receives the response.
    pub(super) fn straggle(&mut self, id: u64) {
        let Some(at) = self.stragglers.iter().position(|task| task.info.id == id) else { return };
        let mut task = self.stragglers.swap_remove(at);
        {
            let mut hub = lock(&self.hub);
            (hub.pass, hub.permit) = (task.writer, Some(Permit::Serve));
        }
        // The pass stops at the second gate and is dropped there.
        let _ = poll(&mut task.future);
        let mut hub = lock(&self.hub);
        (hub.permit, hub.sent, hub.answered) = (None, None, None);
    }

    fn plant(&self) -> Option<Plant> {
        lock(&self.hub).plant
    }

    /// [`Plant::NoExpectations`]: the handlers briefly see the object; the cache stays the same.
    fn plant_seen(&mut self, task: &Task) {
        let change = lock(&self.hub).server.log.last().cloned();
        let Some(change) = change.filter(|change| change.by == task.writer) else { return };
        let Some(replica) = &mut self.replica else { return };
        if change.was.is_none() && matches!(change.kind(), Kind::Pod | Kind::Vmi | Kind::DataVolume) {
            replica.apply(&change.last);
            replica.delete(&change.last);
        }
    }
}

impl Replica {
    fn was_listed(&self, kind: Kind) -> bool {
        macro_rules! synced {
            ($stores:expr, $kind:expr, [$($name:ident => $field:ident),* $(,)?]) => {
                match $kind { $(Kind::$name => $stores.$field.is_synced(),)* Kind::Job => true }
            };
        }
        each_kind!(synced!(self.stores, kind))
    }
}

/// Polls once. Catches panics and returns them.
fn poll(future: &mut Pass) -> Result<Poll<Result<Requeue, Error>>, String> {
    let waker = noop_waker();
    let mut context = Context::from_waker(&waker);
    catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    })
}

//! The work queue: a set of keys to reconcile, each handed to one worker at a time.
//!
//! ```text
//!            add                     get                 claim dropped
//!  absent ─────────► ready ─────────────────► running ─────────────────► absent
//!    │                 ▲                        │ add                       ▲
//!    │ add_after       │ due                    ▼                           │
//!    └────────► delayed┘            running, and ready again when the claim drops
//! ```
//!
//! Delays are awaited inside [`WorkQueue::get`]; there is no background task. All times are those of the queue's
//! [`Clock`].
//!
//! Items may have a priority: the highest is handed out first, FIFO among equals. Adding an item again can raise its
//! priority but not lower it. Without priorities the queue is FIFO.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::Clock;
use crate::limiter::{RetryLimiter, RetryLimits};
use crate::metrics::{Histogram, QueueMetrics};

/// Counters of a queue, for tests and for callers that wait until it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub ready: usize,
    pub delayed: usize,
    pub running: usize,
    /// Keys added as new work, excluding duplicates.
    pub adds: u64,
    /// Keys requeued after a failure.
    pub retries: u64,
    /// Reconciles that panicked.
    pub panics: u64,
}

/// Position of a ready item: by priority, then by arrival.
type Place = (Reverse<i32>, u64);

/// An item that is to run.
#[derive(Clone, Copy)]
struct Wanted {
    priority: i32,
    since: Duration,
    /// Position by arrival; none yet while the item is running.
    place: Option<u64>,
}

/// An item that is delayed.
#[derive(Clone, Copy)]
struct Due {
    at: Duration,
    /// Keeps the order of items due at the same time.
    number: u64,
    priority: i32,
}

#[derive(Clone, Copy)]
struct Running {
    priority: i32,
    since: Duration,
}

struct State<T> {
    ready: BTreeMap<Place, T>,
    wanted: HashMap<T, Wanted>,
    running: HashMap<T, Running>,
    delayed: BTreeMap<(Duration, u64), T>,
    due: HashMap<T, Due>,
    /// Adding an item now removes its delay: each item is in the queue once.
    one_wish: bool,
    sequence: u64,
    limiter: RetryLimiter<T>,
    stats: QueueStats,
    waited: Histogram,
    worked: Histogram,
    shut_down: bool,
}

impl<T: Hash + Eq + Clone> State<T> {
    fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Returns whether there is something new to take.
    fn add(&mut self, item: T, mut priority: i32, now: Duration) -> bool {
        if self.shut_down {
            return false;
        }
        if self.one_wish
            && let Some(due) = self.due.remove(&item)
        {
            self.delayed.remove(&(due.at, due.number));
            priority = priority.max(due.priority);
        }
        match self.wanted.get(&item).copied() {
            None => {
                self.stats.adds += 1;
                let runs = self.running.contains_key(&item);
                self.want(item, Wanted { priority, since: now, place: None }, !runs);
                !runs
            }
            Some(wanted) if wanted.priority < priority => {
                if let Some(place) = wanted.place {
                    self.ready.remove(&(Reverse(wanted.priority), place));
                }
                self.want(item, Wanted { priority, ..wanted }, wanted.place.is_some());
                false
            }
            Some(_) => false,
        }
    }

    /// Marks the item as to run, and makes it ready unless it is running.
    fn want(&mut self, item: T, wanted: Wanted, in_line: bool) {
        let place = in_line.then(|| wanted.place.unwrap_or_else(|| self.number()));
        if let Some(place) = place {
            self.ready.insert((Reverse(wanted.priority), place), item.clone());
        }
        self.wanted.insert(item, Wanted { place, ..wanted });
    }

    fn add_at(&mut self, item: T, at: Duration, mut priority: i32) {
        if self.shut_down {
            return;
        }
        let mut at = at;
        if let Some(earlier) = self.due.get(&item).copied() {
            if earlier.at <= at && earlier.priority >= priority {
                return;
            }
            self.delayed.remove(&(earlier.at, earlier.number));
            at = at.min(earlier.at);
            priority = priority.max(earlier.priority);
        }
        let number = self.number();
        self.due.insert(item.clone(), Due { at, number, priority });
        self.delayed.insert((at, number), item);
    }

    /// Makes due items ready and returns when the next delay ends.
    fn wake_due(&mut self, now: Duration) -> Option<Duration> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            let item = entry.remove();
            let priority = self.due.remove(&item).map_or(0, |due| due.priority);
            self.add(item, priority, now);
        }
        None
    }

    /// Takes the first ready item.
    fn take(&mut self, now: Duration) -> Option<(T, i32)> {
        let ((Reverse(priority), _), item) = self.ready.pop_first()?;
        if let Some(wanted) = self.wanted.remove(&item) {
            self.waited.observe(now.saturating_sub(wanted.since));
        }
        self.running.insert(item.clone(), Running { priority, since: now });
        Some((item, priority))
    }

    /// Marks the item as no longer running. Returns whether it is ready again.
    fn done(&mut self, item: &T, now: Duration) -> bool {
        if let Some(running) = self.running.remove(item) {
            self.worked.observe(now.saturating_sub(running.since));
        }
        match self.wanted.get(item).copied() {
            Some(wanted) => {
                self.want(item.clone(), wanted, true);
                true
            }
            None => false,
        }
    }
}

struct Inner<T> {
    name: &'static str,
    clock: Clock,
    state: Mutex<State<T>>,
    wake: Notify,
}

/// See the module docs. Clones are handles to the same queue.
pub struct WorkQueue<T: Hash + Eq + Clone> {
    inner: Arc<Inner<T>>,
}

impl<T: Hash + Eq + Clone> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T: Hash + Eq + Clone + Debug> WorkQueue<T> {
    pub fn new(name: &'static str) -> Self {
        Self::with_limits(name, RetryLimits::default(), Clock::system())
    }

    pub fn with_limits(name: &'static str, limits: RetryLimits, clock: Clock) -> Self {
        let state = State {
            ready: BTreeMap::new(),
            wanted: HashMap::new(),
            running: HashMap::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            one_wish: false,
            sequence: 0,
            limiter: RetryLimiter::new(limits),
            stats: QueueStats::default(),
            waited: Histogram::default(),
            worked: Histogram::default(),
            shut_down: false,
        };
        Self { inner: Arc::new(Inner { name, clock, state: Mutex::new(state), wake: Notify::new() }) }
    }

    /// A queue that holds each item once, ready or delayed: adding it again keeps the higher priority and the earlier
    /// time.
    pub fn prioritized(name: &'static str, limits: RetryLimits, clock: Clock) -> Self {
        let queue = Self::with_limits(name, limits, clock);
        queue.inner.lock().one_wish = true;
        queue
    }

    /// The name given to [`WorkQueue::new`], for logs and metrics.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// Enqueues `item`: it runs once more if it is running now, and only once if it is already waiting.
    pub fn add(&self, item: T) {
        self.add_with_priority(item, 0);
    }

    /// Like [`WorkQueue::add`], ahead of all items with a lower priority.
    pub fn add_with_priority(&self, item: T, priority: i32) {
        let now = self.inner.clock.elapsed();
        if self.inner.lock().add(item, priority, now) {
            self.inner.wake.notify_one();
        }
    }

    /// Enqueues `item` after `delay`, or earlier if it is added otherwise. Of several delays the shortest wins.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.add_after_with_priority(item, delay, 0);
    }

    /// Like [`WorkQueue::add_after`], then ahead of all items with a lower priority.
    pub fn add_after_with_priority(&self, item: T, delay: Duration, priority: i32) {
        if delay.is_zero() {
            return self.add_with_priority(item, priority);
        }
        let at = self.inner.clock.elapsed().saturating_add(delay);
        self.inner.lock().add_at(item, at, priority);
        // A waiting worker may have to wake up earlier than planned.
        self.inner.wake.notify_one();
    }

    /// Counts a failure of `item` and requeues it after its back-off, with its current priority if it is running.
    pub fn add_rate_limited(&self, item: T) {
        let (delay, priority) = {
            let mut state = self.inner.lock();
            state.stats.retries += 1;
            let delay = state.limiter.next_delay(&item, self.inner.clock.elapsed());
            (delay, state.running.get(&item).map_or(0, |running| running.priority))
        };
        self.add_after_with_priority(item, delay, priority);
    }

    /// Resets the back-off of `item` after a success.
    pub fn forget(&self, item: &T) {
        self.inner.lock().limiter.forget(item);
    }

    /// Failures of `item` since its last success.
    pub fn failures(&self, item: &T) -> u32 {
        self.inner.lock().limiter.failures(item)
    }

    /// Waits for work. `None` once the queue is shut down; pending items are not handed out then.
    pub async fn get(&self) -> Option<Claim<T>> {
        loop {
            // Register before checking, so that an add in between is not missed.
            let woken = self.inner.wake.notified();
            let next_due = match self.take() {
                Taken::Item(claim) => return Some(claim),
                Taken::ShutDown => return None,
                Taken::Nothing { next_due } => next_due,
            };
            match next_due {
                Some(at) => tokio::select! {
                    () = woken => {}
                    () = self.inner.clock.reach(at) => {}
                },
                None => woken.await,
            }
        }
    }

    /// The next item, if one is ready now.
    pub fn try_get(&self) -> Option<Claim<T>> {
        match self.take() {
            Taken::Item(claim) => Some(claim),
            Taken::ShutDown | Taken::Nothing { .. } => None,
        }
    }

    /// When the first delayed item is due, by the queue's clock.
    pub fn next_due(&self) -> Option<Duration> {
        self.inner.lock().delayed.first_key_value().map(|((at, _), _)| *at)
    }

    fn take(&self) -> Taken<T> {
        let now = self.inner.clock.elapsed();
        let mut state = self.inner.lock();
        if state.shut_down {
            // Wake the next waiting worker too.
            self.inner.wake.notify_one();
            return Taken::ShutDown;
        }
        let next_due = state.wake_due(now);
        let Some((item, priority)) = state.take(now) else { return Taken::Nothing { next_due } };
        if !state.ready.is_empty() || next_due.is_some() {
            self.inner.wake.notify_one();
        }
        Taken::Item(Claim { item, priority, queue: self.inner.clone() })
    }

    /// Stops handing out and accepting work.
    pub fn shut_down(&self) {
        self.inner.lock().shut_down = true;
        self.inner.wake.notify_one();
    }

    pub fn stats(&self) -> QueueStats {
        let state = self.inner.lock();
        QueueStats {
            ready: state.ready.len(),
            delayed: state.delayed.len(),
            running: state.running.len(),
            ..state.stats
        }
    }

    pub fn metrics(&self) -> QueueMetrics {
        let now = self.inner.clock.elapsed();
        let state = self.inner.lock();
        let ages = || state.running.values().map(|running| now.saturating_sub(running.since));
        QueueMetrics {
            name: self.inner.name,
            depth: state.ready.len(),
            adds: state.stats.adds,
            retries: state.stats.retries,
            panics: state.stats.panics,
            waited: state.waited.clone(),
            worked: state.worked.clone(),
            unfinished: ages().sum(),
            longest_running: ages().max().unwrap_or_default(),
        }
    }

    pub(crate) fn count_panic(&self) {
        self.inner.lock().stats.panics += 1;
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

/// Outcome of a try to take an item.
enum Taken<T: Hash + Eq + Clone> {
    Item(Claim<T>),
    Nothing { next_due: Option<Duration> },
    ShutDown,
}

/// An item in progress. While this lives nobody else gets the same item.
pub struct Claim<T: Hash + Eq + Clone> {
    item: T,
    priority: i32,
    queue: Arc<Inner<T>>,
}

impl<T: Hash + Eq + Clone> Claim<T> {
    /// The priority with which it was handed out.
    pub fn priority(&self) -> i32 {
        self.priority
    }
}

impl<T: Hash + Eq + Clone> Deref for Claim<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Hash + Eq + Clone> Drop for Claim<T> {
    fn drop(&mut self) {
        let now = self.queue.clock.elapsed();
        if self.queue.lock().done(&self.item, now) {
            self.queue.wake.notify_one();
        }
    }
}

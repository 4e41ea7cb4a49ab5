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
//! Delays are waited for inside [`WorkQueue::get`]; there is no background task. All time is that of the queue's
//! [`Clock`].

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::Clock;
use crate::limiter::{RetryLimiter, RetryLimits};

/// Counters of a queue, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub ready: usize,
    pub delayed: usize,
    pub running: usize,
    /// Keys accepted as new work; duplicates are not counted.
    pub adds: u64,
    /// Keys added again after a failure.
    pub retries: u64,
    /// Reconciles that panicked.
    pub panics: u64,
}

struct State<T> {
    ready: VecDeque<T>,
    /// Wants to run: everything in `ready`, and what was added while running.
    dirty: HashSet<T>,
    running: HashSet<T>,
    /// By due time; the number keeps the order of equal times.
    delayed: BTreeMap<(Duration, u64), T>,
    due: HashMap<T, (Duration, u64)>,
    sequence: u64,
    limiter: RetryLimiter<T>,
    stats: QueueStats,
    shut_down: bool,
}

impl<T: Hash + Eq + Clone> State<T> {
    fn add(&mut self, item: T) -> bool {
        if self.shut_down || !self.dirty.insert(item.clone()) {
            return false;
        }
        self.stats.adds += 1;
        let runs = self.running.contains(&item);
        if !runs {
            self.ready.push_back(item);
        }
        !runs
    }

    fn add_at(&mut self, item: T, at: Duration) {
        if self.shut_down {
            return;
        }
        if let Some(earlier) = self.due.get(&item).copied() {
            if earlier.0 <= at {
                return;
            }
            self.delayed.remove(&earlier);
        }
        self.sequence += 1;
        self.due.insert(item.clone(), (at, self.sequence));
        self.delayed.insert((at, self.sequence), item);
    }

    /// Moves what is due to `ready` and returns when the next delay ends.
    fn wake_due(&mut self, now: Duration) -> Option<Duration> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            let item = entry.remove();
            self.due.remove(&item);
            self.add(item);
        }
        None
    }
}

struct Inner<T> {
    name: &'static str,
    clock: Clock,
    state: Mutex<State<T>>,
    wake: Notify,
}

/// See the module. Cloning gives another handle to the same queue.
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
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            running: HashSet::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            sequence: 0,
            limiter: RetryLimiter::new(limits),
            stats: QueueStats::default(),
            shut_down: false,
        };
        Self { inner: Arc::new(Inner { name, clock, state: Mutex::new(state), wake: Notify::new() }) }
    }

    /// The name given to [`WorkQueue::new`], for logs and metrics.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// `item` runs soon: once more if it is running now, once only if it waits already.
    pub fn add(&self, item: T) {
        if self.inner.lock().add(item) {
            self.inner.wake.notify_one();
        }
    }

    /// `item` runs after `delay`, or earlier if something else adds it. Of several delays the shortest counts.
    pub fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        let at = self.inner.clock.elapsed().saturating_add(delay);
        self.inner.lock().add_at(item, at);
        // A waiting worker may have to wake earlier than it planned.
        self.inner.wake.notify_one();
    }

    /// Counts a failure of `item` and runs it again after the back-off.
    pub fn add_rate_limited(&self, item: T) {
        let delay = {
            let mut state = self.inner.lock();
            state.stats.retries += 1;
            state.limiter.next_delay(&item, self.inner.clock.elapsed())
        };
        self.add_after(item, delay);
    }

    /// `item` succeeded; its next failure starts with the shortest back-off again.
    pub fn forget(&self, item: &T) {
        self.inner.lock().limiter.forget(item);
    }

    /// Failures of `item` since it last succeeded.
    pub fn failures(&self, item: &T) -> u32 {
        self.inner.lock().limiter.failures(item)
    }

    /// Waits for work. `None` once the queue is shut down; what still waits then is left alone.
    pub async fn get(&self) -> Option<Claim<T>> {
        loop {
            // Registered before looking, so that an add between the look and the wait is not missed.
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

    /// The next piece of work, if one is ready now.
    pub fn try_get(&self) -> Option<Claim<T>> {
        match self.take() {
            Taken::Item(claim) => Some(claim),
            Taken::ShutDown | Taken::Nothing { .. } => None,
        }
    }

    /// When, by the queue's clock, the first of the delayed items is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.inner.lock().delayed.first_key_value().map(|((at, _), _)| *at)
    }

    fn take(&self) -> Taken<T> {
        let now = self.inner.clock.elapsed();
        let mut state = self.inner.lock();
        if state.shut_down {
            // Pass the news on to the next waiting worker.
            self.inner.wake.notify_one();
            return Taken::ShutDown;
        }
        let next_due = state.wake_due(now);
        let Some(item) = state.ready.pop_front() else { return Taken::Nothing { next_due } };
        state.dirty.remove(&item);
        state.running.insert(item.clone());
        if !state.ready.is_empty() || next_due.is_some() {
            self.inner.wake.notify_one();
        }
        Taken::Item(Claim { item, queue: self.inner.clone() })
    }

    /// No more work is handed out or accepted.
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

    pub(crate) fn count_panic(&self) {
        self.inner.lock().stats.panics += 1;
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of looking for work.
enum Taken<T: Hash + Eq + Clone> {
    Item(Claim<T>),
    Nothing { next_due: Option<Duration> },
    ShutDown,
}

/// An item being worked on. While it lives nobody else gets the same item.
pub struct Claim<T: Hash + Eq + Clone> {
    item: T,
    queue: Arc<Inner<T>>,
}

impl<T: Hash + Eq + Clone> Deref for Claim<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Hash + Eq + Clone> Drop for Claim<T> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.running.remove(&self.item);
        if state.dirty.contains(&self.item) {
            let item = self.item.clone();
            state.ready.push_back(item);
            drop(state);
            self.queue.wake.notify_one();
        }
    }
}

//! The clock for everything in this crate that waits or expires.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A clock; clones are handles to the same one.
///
/// It has two readings: the wall-clock time, for timestamps in objects, and the monotonic time since its creation, for
/// everything that waits. A manual clock moves only when told to and needs no runtime.
#[derive(Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// tokio's clock, so that tests can pause it.
    System {
        origin: Instant,
    },
    Manual(Arc<Manual>),
}

struct Manual {
    start: Timestamp,
    elapsed: Mutex<Duration>,
    moved: Notify,
}

impl Manual {
    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.elapsed.lock()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self { source: Source::System { origin: Instant::now() } }
    }

    /// A clock that stands still at `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        let manual = Manual { start, elapsed: Mutex::default(), moved: Notify::new() };
        Self { source: Source::Manual(Arc::new(manual)) }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// If this is the system clock.
    pub fn advance(&self, by: Duration) {
        let Source::Manual(manual) = &self.source else { panic!("only a manual clock can be advanced") };
        *manual.lock() += by;
        manual.moved.notify_waiters();
    }

    /// The wall-clock time.
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System { .. } => Timestamp::now(),
            Source::Manual(manual) => {
                let elapsed = *manual.lock();
                manual.start.saturating_add(elapsed).unwrap_or(manual.start)
            }
        }
    }

    /// The wall-clock time in whole seconds, as the API stores it: a finer one would not survive a round trip.
    pub fn api_time(&self) -> Time {
        let now = self.now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// The time since the clock was created.
    pub fn elapsed(&self) -> Duration {
        match &self.source {
            Source::System { origin } => origin.elapsed(),
            Source::Manual(manual) => *manual.lock(),
        }
    }

    /// Waits until [`Clock::elapsed`] has reached `at`.
    pub async fn reach(&self, at: Duration) {
        match &self.source {
            Source::System { origin } => tokio::time::sleep_until(*origin + at).await,
            Source::Manual(manual) => loop {
                // Register before checking, so that an advance in between is not missed.
                let moved = manual.moved.notified();
                if *manual.lock() >= at {
                    return;
                }
                moved.await;
            },
        }
    }

    /// Sleeps for `time`.
    pub async fn sleep(&self, time: Duration) {
        self.reach(self.elapsed().saturating_add(time)).await;
    }
}

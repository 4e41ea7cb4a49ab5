//! Waiting for what happens elsewhere.

use std::time::{Duration, Instant};

/// How long a test waits unless it says otherwise: far more than any of this takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(20);

/// What one look tells: whether it is as awaited, or what was found.
pub trait Look {
    type Found;

    fn found(self) -> Option<Self::Found>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// Looks until it is found or half a minute has passed, and fails the test then.
pub async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    eventually_within(LIMIT, what, look).await
}

/// The same with a limit of its own.
pub async fn eventually_within<L: Look>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> L) -> L::Found {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await.found() {
            return found;
        }
        assert!(started.elapsed() < limit, "{what}: not within {} s", limit.as_secs());
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The same in a test without a runtime.
pub fn until<L: Look>(limit: Duration, what: &str, mut look: impl FnMut() -> L) -> L::Found {
    let started = Instant::now();
    loop {
        if let Some(found) = look().found() {
            return found;
        }
        assert!(started.elapsed() < limit, "{what}: not within {} s", limit.as_secs());
        std::thread::sleep(INTERVAL);
    }
}

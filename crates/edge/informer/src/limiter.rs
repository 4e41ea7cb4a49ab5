//! Retry back-off: exponential per key, plus a token bucket shared by all keys.
//!
//! Times are those of [`Clock::elapsed`](crate::Clock::elapsed).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// The retry limits of a queue. The default is client-go's: 5 ms · 2ⁿ up to 1000 s per key, and 10 per second with a
/// burst of 100 over all keys; the larger delay wins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    pub first: Duration,
    pub longest: Duration,
    pub per_second: f64,
    pub burst: f64,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { first: Duration::from_millis(5), longest: Duration::from_secs(1000), per_second: 10.0, burst: 100.0 }
    }
}

pub(crate) struct RetryLimiter<T> {
    limits: RetryLimits,
    failures: HashMap<T, u32>,
    bucket: Bucket,
}

impl<T: Hash + Eq + Clone> RetryLimiter<T> {
    pub(crate) fn new(limits: RetryLimits) -> Self {
        Self { limits, failures: HashMap::new(), bucket: Bucket::new(limits.per_second, limits.burst) }
    }

    /// Counts a failure of `item` and returns its back-off.
    pub(crate) fn next_delay(&mut self, item: &T, now: Duration) -> Duration {
        let failures = self.failures.entry(item.clone()).or_insert(0);
        // 2^31 already exceeds any useful limit; larger shifts would overflow.
        let factor = 1u32 << (*failures).min(31);
        *failures = failures.saturating_add(1);
        let own = self.limits.first.saturating_mul(factor).min(self.limits.longest);
        own.max(self.bucket.reserve(now))
    }

    pub(crate) fn forget(&mut self, item: &T) {
        self.failures.remove(item);
    }

    pub(crate) fn failures(&self, item: &T) -> u32 {
        self.failures.get(item).copied().unwrap_or(0)
    }
}

/// A token bucket that can be overdrawn: a reservation always succeeds, possibly at a later time.
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    counted_at: Option<Duration>,
}

impl Bucket {
    pub(crate) fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, tokens: burst, counted_at: None }
    }

    fn refill(&mut self, now: Duration) {
        let since = self.counted_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        self.tokens = (self.tokens + since.as_secs_f64() * self.per_second).min(self.burst);
        self.counted_at = Some(now);
    }

    /// Takes a token and returns how long to wait for it.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0))
    }

    /// Takes a token if one is available.
    pub(crate) fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

//! Expectations: writes of a controller that its cache does not show yet.
//!
//! They are an optimization: while a key has open expectations, its controller neither creates nor deletes. Correctness
//! relies on derived names (a second create fails with `AlreadyExists`), so a lost expectation is harmless and expires.
//!
//! Expected objects are recorded by name, not counted: an event about another object cannot satisfy them, and the
//! terminating update and the final deletion of an object count once. Expecting always adds to the record (or creates
//! it), so two steps of one reconcile cannot overwrite each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::{Clock, Key};

/// After this time the event is considered lost, and it is right to act on the cache again.
pub const EXPIRY: Duration = Duration::from_secs(300);

struct Record {
    creations: HashSet<Key>,
    deletions: HashSet<Key>,
    since: Duration,
}

impl Record {
    fn open(&self, now: Duration) -> bool {
        let waits = !self.creations.is_empty() || !self.deletions.is_empty();
        waits && now.saturating_sub(self.since) < EXPIRY
    }
}

/// Expectations of one controller about one kind, by the key being reconciled.
#[derive(Clone, Default)]
pub struct Expectations {
    clock: Clock,
    records: Arc<Mutex<HashMap<Key, Record>>>,
}

impl Expectations {
    pub fn new(clock: Clock) -> Self {
        Self { clock, records: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.records.lock()
    }

    fn expect(&self, owner: &Key, add: impl FnOnce(&mut Record)) {
        let now = self.clock.elapsed();
        let mut records = self.lock();
        let record = records.entry(owner.clone()).or_insert_with(|| Record {
            creations: HashSet::new(),
            deletions: HashSet::new(),
            since: now,
        });
        if !record.open(now) {
            // Expired entries must not be revived by the new timestamp.
            record.creations.clear();
            record.deletions.clear();
        }
        record.since = now;
        add(record);
    }

    fn settle(&self, owner: &Key, seen: impl FnOnce(&mut Record)) {
        let mut records = self.lock();
        let Some(record) = records.get_mut(owner) else { return };
        seen(record);
        if record.creations.is_empty() && record.deletions.is_empty() {
            records.remove(owner);
        }
    }

    /// Call before the create. On an error, including `AlreadyExists`, withdraw it with [`Expectations::created`].
    pub fn expect_creation(&self, owner: &Key, object: Key) {
        self.expect(owner, |record| record.creations.extend([object]));
    }

    /// Call before the delete. On an error, including `NotFound`, withdraw it with [`Expectations::deleted`].
    pub fn expect_deletion(&self, owner: &Key, object: Key) {
        self.expect(owner, |record| record.deletions.extend([object]));
    }

    /// Call when the cache shows `object`.
    pub fn created(&self, owner: &Key, object: &Key) {
        self.settle(owner, |record| {
            record.creations.remove(object);
        });
    }

    /// Call when the cache shows `object` deleted or terminating.
    pub fn deleted(&self, owner: &Key, object: &Key) {
        self.settle(owner, |record| {
            record.creations.remove(object);
            record.deletions.remove(object);
        });
    }

    /// Whether nothing is expected for `owner`.
    pub fn satisfied(&self, owner: &Key) -> bool {
        self.open(owner).is_none()
    }

    /// How long the expectations of `owner` can remain open; `None` if there are none.
    pub fn open(&self, owner: &Key) -> Option<Duration> {
        let now = self.clock.elapsed();
        let records = self.lock();
        let record = records.get(owner).filter(|record| record.open(now))?;
        Some(EXPIRY.saturating_sub(now.saturating_sub(record.since)))
    }

    /// Call when `owner` is gone.
    pub fn forget(&self, owner: &Key) {
        self.lock().remove(owner);
    }
}

/// A controller's last write to each object it reconciles.
///
/// A reconcile from a state older than its own last write would repeat itself. Other writers do not matter: the
/// preconditions of our writes catch their changes.
#[derive(Clone, Default)]
pub struct OwnWrites {
    clock: Clock,
    versions: Arc<Mutex<HashMap<Key, (String, Duration)>>>,
}

impl OwnWrites {
    pub fn new(clock: Clock) -> Self {
        Self { clock, versions: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (String, Duration)>> {
        self.versions.lock()
    }

    /// Records the resource version of our write.
    pub fn wrote(&self, key: &Key, resource_version: Option<&str>) {
        if let Some(version) = resource_version {
            self.lock().insert(key.clone(), (version.to_owned(), self.clock.elapsed()));
        }
    }

    /// How long to wait at most for the cache, which shows `cached`; `None` if it shows our last write or a later one.
    pub fn behind(&self, key: &Key, cached: Option<&str>) -> Option<Duration> {
        let now = self.clock.elapsed();
        let mut versions = self.lock();
        let (written, at) = versions.get(key)?;
        let left = EXPIRY.saturating_sub(now.saturating_sub(*at));
        let caught_up = match (written.parse::<u64>(), cached.unwrap_or_default().parse::<u64>()) {
            (Ok(written), Ok(cached)) => cached >= written,
            // Not numeric: only an equal version is certain.
            _ => cached == Some(written),
        };
        if caught_up || left.is_zero() {
            // Caches do not go backwards, so the entry is no longer needed.
            versions.remove(key);
            return None;
        }
        Some(left)
    }

    /// Call when the object is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

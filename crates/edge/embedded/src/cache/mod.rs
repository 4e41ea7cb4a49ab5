//! The watch cache: the latest version of every object and, per kind, a bounded history of changes.
//!
//! The writer thread applies each durable batch here; everything that reads, reads here. A watch is a cursor into the
//! history, not a queue: a slow client costs no memory, and one that falls behind the history is told to list again.
//!
//! ```text
//!             floor                                   revision
//!   ─ forgotten ─┤ change │ change │ change │ … │ change ├─►
//!                         ▲ cursor of a watch      ▲ objects (latest)
//! ```

mod filter;
mod object;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch as signal;

pub(crate) use filter::Filter;
pub(crate) use object::{Key, Object, ObjectName, Owner};
pub(crate) use watch::{Start, Watch, WatchItem};

use crate::kinds::KindId;

/// How much of a kind's past is kept: enough for a client to come back after a pause of minutes.
const HISTORY_EVENTS: usize = 4096;
/// The same in bytes, because a thousand versions of a large object would be a lot of idle memory.
const HISTORY_BYTES: usize = 4 << 20;

/// What happened to an object at a revision.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) deleted: bool,
    /// The new version; of a deleted object the last one, stamped with the revision of the deletion.
    pub(crate) object: Arc<Object>,
    /// The version before; absent when the object was created.
    pub(crate) previous: Option<Arc<Object>>,
}

impl Event {
    fn revision(&self) -> u64 {
        self.object.revision
    }
}

/// The asked-for revision is older than what the history still knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) asked: u64,
    pub(crate) oldest: u64,
}

/// Objects of a kind as they were at one revision.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
}

#[derive(Default)]
struct KindCache {
    objects: BTreeMap<ObjectName, Arc<Object>>,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// Every change after this revision is in `history`.
    floor: u64,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    kinds: Vec<KindCache>,
    by_uid: HashMap<String, Key>,
    dependents: HashMap<String, BTreeSet<Key>>,
}

pub(crate) struct Cache {
    inner: RwLock<Inner>,
    /// One per kind, carrying the revision of its latest change: wakes watches.
    changed: Vec<signal::Sender<u64>>,
    /// The revision of the latest change of any kind.
    revision: signal::Sender<u64>,
}

impl Cache {
    pub(crate) fn new(kinds: usize) -> Self {
        let inner = Inner { kinds: (0..kinds).map(|_| KindCache::default()).collect(), ..Inner::default() };
        let changed = (0..kinds).map(|_| signal::Sender::new(0)).collect();
        Self { inner: RwLock::new(inner), changed, revision: signal::Sender::new(0) }
    }

    /// Puts an object in place that was in the store when the server started; it is no event.
    pub(crate) fn load(&self, kind: KindId, object: Object) {
        let mut inner = self.write();
        let object = Arc::new(object);
        inner.index(kind, &object);
        inner.kinds[kind].objects.insert(object.name.clone(), object);
    }

    /// Ends loading: history begins at the store's revision, so older watches list again.
    pub(crate) fn loaded(&self, revision: u64) {
        let mut inner = self.write();
        inner.revision = revision;
        for kind in &mut inner.kinds {
            kind.floor = revision;
        }
        self.revision.send_replace(revision);
    }

    /// Takes a durable batch in, in revision order. Readers see all of it or nothing.
    pub(crate) fn apply(&self, events: Vec<(KindId, Event)>) {
        let mut inner = self.write();
        let mut latest = BTreeMap::new();
        for (kind, event) in events {
            inner.revision = event.revision();
            latest.insert(kind, event.revision());
            inner.apply(kind, event);
        }
        let revision = inner.revision;
        drop(inner);
        for (kind, revision) in latest {
            self.changed[kind].send_replace(revision);
        }
        self.revision.send_replace(revision);
    }

    pub(crate) fn get(&self, kind: KindId, name: &ObjectName) -> Option<Arc<Object>> {
        self.read().kinds[kind].objects.get(name).cloned()
    }

    /// The revision up to which everything has been applied, to read or to wait on.
    pub(crate) fn revision(&self) -> signal::Receiver<u64> {
        self.revision.subscribe()
    }

    /// All objects of a kind now, optionally of one namespace.
    pub(crate) fn list(&self, kind: KindId, namespace: Option<&str>) -> Snapshot {
        let inner = self.read();
        Snapshot { revision: inner.revision, objects: inner.kinds[kind].in_namespace(namespace) }
    }

    /// All objects of a kind as they were at `revision`: today's, with the later changes undone.
    pub(crate) fn list_at(&self, kind: KindId, namespace: Option<&str>, revision: u64) -> Result<Snapshot, TooOld> {
        let inner = self.read();
        let kind = &inner.kinds[kind];
        if revision < kind.floor {
            return Err(TooOld { asked: revision, oldest: kind.floor });
        }
        let now = kind.in_namespace(namespace);
        let mut objects: BTreeMap<_, _> = now.into_iter().map(|object| (object.name.clone(), object)).collect();
        for event in kind.history.iter().rev().take_while(|event| event.revision() > revision) {
            if namespace.is_some_and(|namespace| namespace != event.object.name.namespace) {
                continue;
            }
            match &event.previous {
                Some(previous) => objects.insert(previous.name.clone(), previous.clone()),
                None => objects.remove(&event.object.name),
            };
        }
        Ok(Snapshot { revision, objects: objects.into_values().collect() })
    }

    /// The changes of a kind after `cursor`, and the revision they bring a reader to.
    pub(crate) fn events_after(&self, kind: KindId, cursor: u64) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        let inner = self.read();
        let kind = &inner.kinds[kind];
        if cursor < kind.floor {
            return Err(TooOld { asked: cursor, oldest: kind.floor });
        }
        let start = kind.history.partition_point(|event| event.revision() <= cursor);
        Ok((kind.history.range(start..).cloned().collect(), inner.revision.max(cursor)))
    }

    /// Wakes when an object of the kind changes.
    pub(crate) fn changes(&self, kind: KindId) -> signal::Receiver<u64> {
        self.changed[kind].subscribe()
    }

    /// The revision of the kind's latest change since the server started.
    pub(crate) fn changed_at(&self, kind: KindId) -> u64 {
        *self.changed[kind].borrow()
    }

    /// Where the object with this UID is.
    pub(crate) fn find_uid(&self, uid: &str) -> Option<Key> {
        self.read().by_uid.get(uid).cloned()
    }

    /// Objects that name this UID as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.read().dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    // The lock is never held over anything that can panic half-way, so a poisoned one still guards whole data.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }
}

impl Inner {
    fn apply(&mut self, kind: KindId, event: Event) {
        if let Some(previous) = &event.previous {
            self.unindex(kind, previous);
        }
        let objects = &mut self.kinds[kind].objects;
        if event.deleted {
            objects.remove(&event.object.name);
        } else {
            objects.insert(event.object.name.clone(), event.object.clone());
            self.index(kind, &event.object);
        }
        self.kinds[kind].remember(event);
    }

    fn index(&mut self, kind: KindId, object: &Object) {
        let key = Key { kind, name: object.name.clone() };
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        self.by_uid.insert(object.uid.clone(), key);
    }

    fn unindex(&mut self, kind: KindId, object: &Object) {
        let key = Key { kind, name: object.name.clone() };
        for owner in &object.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        self.by_uid.remove(&object.uid);
    }
}

impl KindCache {
    fn in_namespace(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let Some(namespace) = namespace else { return self.objects.values().cloned().collect() };
        let first = ObjectName::new(namespace, "");
        let from_first = self.objects.range::<ObjectName, _>((Bound::Included(&first), Bound::Unbounded));
        from_first.take_while(|(name, _)| name.namespace == namespace).map(|(_, object)| object.clone()).collect()
    }

    fn remember(&mut self, event: Event) {
        self.history_bytes += event.object.json.len();
        self.history.push_back(Arc::new(event));
        while self.history.len() > HISTORY_EVENTS || self.history_bytes > HISTORY_BYTES && self.history.len() > 1 {
            let Some(oldest) = self.history.pop_front() else { return };
            self.history_bytes -= oldest.object.json.len();
            self.floor = oldest.revision();
        }
    }
}

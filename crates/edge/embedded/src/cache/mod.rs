//! The watch cache: the latest version of every object and, per kind, a bounded history of changes.
//!
//! The writer thread applies each durable batch; all reads go to this cache. A watch is a cursor into the history, not
//! a queue: a slow client costs no memory, and one that falls behind the history is told to relist.
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

/// Number of changes kept per kind: enough for a client to resume after a pause of minutes.
const HISTORY_EVENTS: usize = 4096;
/// The same in bytes, because a thousand versions of a large object would waste a lot of memory.
const HISTORY_BYTES: usize = 4 << 20;

/// A change of an object at a revision.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) deleted: bool,
    /// The new version; for a deletion the last one, with the revision of the deletion.
    pub(crate) object: Arc<Object>,
    /// The previous version; `None` if the object was created.
    pub(crate) previous: Option<Arc<Object>>,
}

impl Event {
    fn revision(&self) -> u64 {
        self.object.revision
    }
}

/// The requested revision is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) asked: u64,
    pub(crate) oldest: u64,
}

/// The objects of a kind at one revision.
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
    /// One per kind, with the revision of its latest change: wakes watches.
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

    /// Adds an object from the store at startup, without an event.
    pub(crate) fn load(&self, kind: KindId, object: Object) {
        let mut inner = self.write();
        let object = Arc::new(object);
        inner.index(kind, &object);
        inner.kinds[kind].objects.insert(object.name.clone(), object);
    }

    /// Finishes loading: the history begins at the store's revision, so older watches must relist.
    pub(crate) fn loaded(&self, revision: u64) {
        let mut inner = self.write();
        inner.revision = revision;
        for kind in &mut inner.kinds {
            kind.floor = revision;
        }
        self.revision.send_replace(revision);
    }

    /// Applies a durable batch, in revision order. Readers see all of it or nothing.
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

    /// The last applied revision, to read or to wait for.
    pub(crate) fn revision(&self) -> signal::Receiver<u64> {
        self.revision.subscribe()
    }

    /// All current objects of a kind, optionally of one namespace.
    pub(crate) fn list(&self, kind: KindId, namespace: Option<&str>) -> Snapshot {
        let inner = self.read();
        Snapshot { revision: inner.revision, objects: inner.kinds[kind].in_namespace(namespace) }
    }

    /// All objects of a kind as of `revision`: the current ones with later changes undone.
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

    /// The changes of a kind after `cursor`, and the revision they lead to.
    pub(crate) fn events_after(&self, kind: KindId, cursor: u64) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        let inner = self.read();
        let kind = &inner.kinds[kind];
        if cursor < kind.floor {
            return Err(TooOld { asked: cursor, oldest: kind.floor });
        }
        let start = kind.history.partition_point(|event| event.revision() <= cursor);
        Ok((kind.history.range(start..).cloned().collect(), inner.revision.max(cursor)))
    }

    /// Notifies when an object of the kind changes.
    pub(crate) fn changes(&self, kind: KindId) -> signal::Receiver<u64> {
        self.changed[kind].subscribe()
    }

    /// The revision of the kind's latest change since the server started.
    pub(crate) fn changed_at(&self, kind: KindId) -> u64 {
        *self.changed[kind].borrow()
    }

    /// The key of the object with this UID.
    pub(crate) fn find_uid(&self, uid: &str) -> Option<Key> {
        self.read().by_uid.get(uid).cloned()
    }

    /// Objects with an owner reference to this UID.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.read().dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    // Nothing that can panic midway runs under the lock, so poisoned data is still consistent.
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

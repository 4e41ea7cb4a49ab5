//! The cache of one kind: objects by key, secondary indexes, and handlers for changes.
//!
//! ```text
//! watch events ──► Ingest ──► objects + indexes ──► handlers (in order, never awaited)
//!                    │                  ▲
//!                    └─ a list is gathered aside and compared with what is cached, so that an object which
//!                       vanished while nobody watched is reported as deleted
//! ```

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher::Event;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::Key;
use crate::held::{Held, Lazy, Packing};
use crate::queue::WorkQueue;

/// A change of one object. Objects are shared and never modified in place.
pub enum Change<K> {
    Added(Arc<K>),
    /// Both states; their resource versions differ.
    Updated {
        old: Lazy<K>,
        new: Arc<K>,
    },
    /// The last known state. After a gap in the watch this is the cached one, which may be older than the deletion.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Deleted(object) => object,
            Self::Updated { new, .. } => new,
        }
    }
}

pub(crate) type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;
pub(crate) type Prune<K> = Box<dyn Fn(&mut K) + Send + Sync>;
type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// How objects enter the cache.
pub(crate) struct Intake<K> {
    pub(crate) prune: Option<Prune<K>>,
    pub(crate) indexes: Vec<(&'static str, IndexFn<K>)>,
    pub(crate) packing: Option<Packing<K>>,
}

impl<K: Resource> Intake<K> {
    fn tidy(&self, object: &mut K) {
        object.meta_mut().managed_fields = None;
        if let Some(prune) = &self.prune {
            prune(object);
        }
    }

    fn is_tidy(&self, object: &K) -> bool {
        self.prune.is_none() && object.meta().managed_fields.is_none()
    }
}

/// A cached object, with what is needed without decoding it.
struct Entry<K> {
    held: Held<K>,
    uid: Option<Box<str>>,
    version: Option<Box<str>>,
    /// Indexes that contain the object: the number of the index and the value.
    found_under: Box<[(u8, Arc<str>)]>,
}

impl<K: Resource> Entry<K> {
    fn new(object: &Arc<K>, intake: &Intake<K>) -> Self {
        let values = intake.indexes.iter().zip(0..).flat_map(|((_, values_of), number)| {
            let mut values = values_of(object);
            values.sort_unstable();
            values.dedup();
            values.into_iter().map(move |value| (number, Arc::from(value)))
        });
        let meta = object.meta();
        Self {
            held: Held::new(object, intake.packing),
            uid: meta.uid.as_deref().map(Box::from),
            version: meta.resource_version.as_deref().map(Box::from),
            found_under: values.collect(),
        }
    }
}

struct Objects<K> {
    by_key: BTreeMap<Arc<Key>, Entry<K>>,
    /// By index number; keys are sorted. Most values have one key, so a plain list is best.
    indexes: Vec<HashMap<Arc<str>, Vec<Arc<Key>>>>,
}

impl<K: Resource> Objects<K> {
    /// Stores an entry and returns the one it replaces.
    fn insert(&mut self, key: &Arc<Key>, entry: Entry<K>) -> Option<Entry<K>> {
        let old = self.remove(key);
        for (index, value) in &entry.found_under {
            let keys = self.indexes[usize::from(*index)].entry(value.clone()).or_default();
            if let Err(at) = keys.binary_search(key) {
                keys.insert(at, key.clone());
            }
        }
        self.by_key.insert(key.clone(), entry);
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Entry<K>> {
        let old = self.by_key.remove(key)?;
        for (index, value) in &old.found_under {
            let entries = &mut self.indexes[usize::from(*index)];
            let Some(keys) = entries.get_mut(value) else { continue };
            keys.retain(|other| other.as_ref() != key);
            if keys.is_empty() {
                entries.remove(value);
            }
        }
        Some(old)
    }
}

struct Shared<K> {
    objects: RwLock<Objects<K>>,
    index_names: Vec<&'static str>,
    /// Held while changes are stored *and* handlers run, so that a late subscriber sees each object exactly once.
    handlers: Mutex<Vec<Handler<K>>>,
}

/// Read access to the cache of one kind. Cheap to clone; all clones see the same objects.
pub struct Store<K> {
    shared: Arc<Shared<K>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), synced: self.synced.clone() }
    }
}

// A poisoned lock would mean a panic between two plain map operations of this module; the maps stay usable.
impl<K: Resource + Send + Sync + 'static> Store<K> {
    fn read<T>(&self, f: impl FnOnce(&Objects<K>) -> T) -> T {
        f(&self.shared.objects.read())
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let held = self.read(|objects| objects.by_key.get(key).map(|entry| entry.held.clone()));
        held.map(|held| held.get())
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<Key> {
        self.read(|objects| objects.by_key.keys().map(|key| key.as_ref().clone()).collect())
    }

    /// All objects, sorted by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        unpack(self.read(|objects| objects.by_key.values().map(|entry| entry.held.clone()).collect()))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.read(|objects| objects.by_key.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects that `index` lists under `value`, sorted by key.
    ///
    /// # Panics
    /// If the informer was built without that index: a programming error, not a state of the cluster.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        unpack(self.read_index(index, value, |objects, keys| {
            keys.iter().filter_map(|key| objects.by_key.get(key)).map(|entry| entry.held.clone()).collect()
        }))
    }

    /// The keys of [`Store::by_index`], for callers that do not need the objects.
    ///
    /// # Panics
    /// As [`Store::by_index`].
    pub fn keys_by_index(&self, index: &str, value: &str) -> Vec<Key> {
        self.read_index(index, value, |_, keys| keys.iter().map(|key| key.as_ref().clone()).collect())
    }

    fn read_index<T>(&self, index: &str, value: &str, f: impl FnOnce(&Objects<K>, &[Arc<Key>]) -> T) -> T {
        let number = self.shared.index_names.iter().position(|name| *name == index);
        let number = number.expect("the informer was built with this index");
        self.read(|objects| f(objects, objects.indexes[number].get(value).map(Vec::as_slice).unwrap_or_default()))
    }

    /// The objects of one namespace, sorted by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = Key::new(namespace, "");
        unpack(self.read(|objects| {
            let from = objects.by_key.range::<Key, _>(first..);
            let inside = from.take_while(|(key, _)| key.namespace == namespace);
            inside.map(|(_, entry)| entry.held.clone()).collect()
        }))
    }

    /// Memory used by packed objects, without overhead.
    pub fn packed_bytes(&self) -> usize {
        self.read(|objects| objects.by_key.values().map(|entry| entry.held.packed_bytes()).sum())
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for the first complete list. Returns false if the watch was stopped before.
    pub async fn synced(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// Calls `handler` for every known object and then for every change, in order.
    ///
    /// The handler runs on the watch task and must not block. Typically it marks expectations and adds keys to a
    /// [`WorkQueue`], which coalesces keys for slow consumers. It may read stores; it must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let handler: [Handler<K>; 1] = [Box::new(handler)];
        let mut handlers = self.shared.handlers.lock();
        let known: Vec<Held<K>> = self.read(|objects| objects.by_key.values().map(|e| e.held.clone()).collect());
        known.iter().for_each(|held| tell(&handler, &Change::Added(held.get())));
        handlers.extend(handler);
    }

    /// Adds the key of every changed object to `queue`. New objects take precedence over known ones: somebody is
    /// waiting for them, and their first reconcile gets things going.
    pub fn feed(&self, queue: &WorkQueue<Key>) {
        let queue = queue.clone();
        self.subscribe(move |change| {
            let priority = i32::from(matches!(change, Change::Added(_)));
            queue.add_with_priority(Key::of(change.object().as_ref()), priority);
        });
    }
}

/// Calls every handler; a panic in one does not affect the watch or the other handlers.
fn tell<K: Resource>(handlers: &[Handler<K>], change: &Change<K>) {
    for handler in handlers {
        if catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
            tracing::error!(key = %Key::of(change.object().as_ref()), "event handler panicked");
        }
    }
}

fn map<K, T>(event: Event<K>, f: impl FnOnce(K) -> T) -> Event<T> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(f(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(f(object)),
        Event::Delete(object) => Event::Delete(f(object)),
    }
}

/// Called outside the lock, since decoding takes a while.
fn unpack<K>(held: Vec<Held<K>>) -> Vec<Arc<K>> {
    held.iter().map(Held::get).collect()
}

/// Write access to the cache of one kind, fed by a watch (or by hand, in a simulation).
pub struct Ingest<K> {
    shared: Arc<Shared<K>>,
    synced: watch::Sender<bool>,
    intake: Intake<K>,
    /// The list being received, already packed: a long one must not be held decoded as a whole.
    listing: Option<BTreeMap<Arc<Key>, Entry<K>>>,
}

pub(crate) fn cache<K: Resource>(intake: Intake<K>) -> (Store<K>, Ingest<K>) {
    let shared = Arc::new(Shared {
        objects: RwLock::new(Objects {
            by_key: BTreeMap::new(),
            indexes: intake.indexes.iter().map(|_| HashMap::new()).collect(),
        }),
        index_names: intake.indexes.iter().map(|(name, _)| *name).collect(),
        handlers: Mutex::default(),
    });
    let (synced_tx, synced) = watch::channel(false);
    (Store { shared: shared.clone(), synced }, Ingest { shared, synced: synced_tx, intake, listing: None })
}

/// Handlers look up stores, so each keeps alive the store that holds it. As no more changes arrive, drop the handlers.
impl<K> Drop for Ingest<K> {
    fn drop(&mut self) {
        let handlers = std::mem::take(&mut *self.shared.handlers.lock());
        drop(handlers); // not under the lock: they may hold the last reference to something with locks of its own
    }
}

impl<K: Resource> Ingest<K> {
    /// Applies one watch event. A list becomes visible only when it is complete: until then the old state stays.
    pub fn apply(&mut self, event: Event<K>) {
        let own = |mut object: K| {
            self.intake.tidy(&mut object);
            Arc::new(object)
        };
        let event = map(event, own);
        self.store(event);
    }

    /// [`Ingest::apply`] for an object that the caller holds, too: it is copied only if something must be pruned.
    pub fn apply_shared(&mut self, event: Event<Arc<K>>)
    where
        K: Clone,
    {
        let own = |mut object: Arc<K>| {
            if !self.intake.is_tidy(&object) {
                self.intake.tidy(Arc::make_mut(&mut object));
            }
            object
        };
        let event = map(event, own);
        self.store(event);
    }

    fn store(&mut self, event: Event<Arc<K>>) {
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let entry = Entry::new(&object, &self.intake);
                self.listing.get_or_insert_default().insert(Arc::new(Key::of(object.as_ref())), entry);
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                self.replace(listed);
                self.synced.send_replace(true);
            }
            Event::Apply(object) => {
                let (key, entry) = (Key::of(object.as_ref()), Entry::new(&object, &self.intake));
                let handlers = self.shared.handlers.lock();
                self.upsert(&handlers, &Arc::new(key), entry, Some(object));
            }
            Event::Delete(object) => {
                let handlers = self.shared.handlers.lock();
                let known = self.write(|objects| objects.remove(&Key::of(object.as_ref())));
                if known.is_some() {
                    tell(&handlers, &Change::Deleted(object));
                }
            }
        }
    }

    fn write<T>(&self, f: impl FnOnce(&mut Objects<K>) -> T) -> T {
        f(&mut self.shared.objects.write())
    }

    /// Replaces the cache with a complete list. Deletions come first: they free what additions may wait for. Changes
    /// are stored and reported one by one, so that at most one object of the list is decoded at a time.
    fn replace(&self, listed: BTreeMap<Arc<Key>, Entry<K>>) {
        let handlers = self.shared.handlers.lock();
        let gone: Vec<Arc<Key>> = self
            .write(|objects| objects.by_key.keys().filter(|key| !listed.contains_key(key.as_ref())).cloned().collect());
        for key in gone {
            if let Some(old) = self.write(|objects| objects.remove(&key)) {
                tell(&handlers, &Change::Deleted(old.held.get()));
            }
        }
        for (key, entry) in listed {
            self.upsert(&handlers, &key, entry, None);
        }
    }

    /// Stores an object and reports the change, if its state is new. `object` is the decoded entry, if available.
    fn upsert(&self, handlers: &[Handler<K>], key: &Arc<Key>, entry: Entry<K>, object: Option<Arc<K>>) {
        let (held, uid, version) = (entry.held.clone(), entry.uid.clone(), entry.version.clone());
        let old = self.write(|objects| objects.insert(key, entry));
        if handlers.is_empty() || old.as_ref().is_some_and(|old| old.version == version && old.uid == uid) {
            return;
        }
        let new = object.unwrap_or_else(|| held.get());
        match old {
            None => tell(handlers, &Change::Added(new)),
            // Deleted and recreated under the same name in a gap of the watch.
            Some(old) if old.uid != uid => {
                tell(handlers, &Change::Deleted(old.held.get()));
                tell(handlers, &Change::Added(new));
            }
            Some(old) => tell(handlers, &Change::Updated { old: Lazy::new(old.held), new }),
        }
    }
}

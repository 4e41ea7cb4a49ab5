//! The cache of one kind: objects by key, secondary indexes, and the handlers that hear of changes.
//!
//! ```text
//! watch events ──► Ingest ──► objects + indexes ──► handlers (in order, never awaited)
//!                    │                  ▲
//!                    └─ a list is gathered aside and compared with what is cached, so that an object which
//!                       vanished while nobody watched is reported as deleted
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kube::Resource;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::Key;
use crate::queue::WorkQueue;

/// What happened to one object. Objects are shared and never changed in place.
#[derive(Debug)]
pub enum Change<K> {
    Added(Arc<K>),
    /// Both states; their resource versions differ.
    Updated {
        old: Arc<K>,
        new: Arc<K>,
    },
    /// The last state known. After a gap in the watch this is the cached one, which may be older than the deletion.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest state known.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Deleted(object) => object,
            Self::Updated { new, .. } => new,
        }
    }
}

pub(crate) type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;
type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

struct Index<K> {
    keys_of: IndexFn<K>,
    entries: HashMap<String, BTreeSet<Key>>,
}

impl<K> Index<K> {
    fn insert(&mut self, key: &Key, object: &K) {
        for value in (self.keys_of)(object) {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.keys_of)(object) {
            if let Some(keys) = self.entries.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

struct Objects<K> {
    by_key: BTreeMap<Key, Arc<K>>,
    indexes: HashMap<&'static str, Index<K>>,
}

impl<K: Resource> Objects<K> {
    /// Stores `object` and tells what that means to a listener. Nothing, if it is the state already known.
    fn upsert(&mut self, object: K) -> Vec<Change<K>> {
        let key = Key::of(&object);
        let new = Arc::new(object);
        let old = self.by_key.insert(key.clone(), new.clone());
        if let Some(old) = &old {
            self.indexes.values_mut().for_each(|index| index.remove(&key, old));
        }
        self.indexes.values_mut().for_each(|index| index.insert(&key, &new));
        match old {
            None => vec![Change::Added(new)],
            Some(old) if old.meta().resource_version == new.meta().resource_version => vec![],
            // Deleted and made anew under the same name while we looked away.
            Some(old) if old.meta().uid != new.meta().uid => vec![Change::Deleted(old), Change::Added(new)],
            Some(old) => vec![Change::Updated { old, new }],
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.by_key.remove(key)?;
        self.indexes.values_mut().for_each(|index| index.remove(key, &old));
        Some(old)
    }
}

struct Shared<K> {
    objects: RwLock<Objects<K>>,
    /// Held while changes are stored *and* told, so that a late subscriber sees each object exactly once.
    handlers: Mutex<Vec<Handler<K>>>,
}

/// Read access to the cache of one kind. Cloning is cheap; all clones see the same objects.
pub struct Store<K> {
    shared: Arc<Shared<K>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), synced: self.synced.clone() }
    }
}

// A poisoned lock would mean a panic in this module between two statements of plain map work; the maps stay usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Resource + Send + Sync + 'static> Store<K> {
    fn read<T>(&self, f: impl FnOnce(&Objects<K>) -> T) -> T {
        f(&self.shared.objects.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|objects| objects.by_key.get(key).cloned())
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<Key> {
        self.read(|objects| objects.by_key.keys().cloned().collect())
    }

    /// Every object, ordered by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|objects| objects.by_key.values().cloned().collect())
    }

    /// The objects that the index function of `index` put under `value`, ordered by key.
    ///
    /// # Panics
    /// If the informer was built without that index: a spelling mistake, not a state of the cluster.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.read(|objects| {
            let index = objects.indexes.get(index).expect("the informer was built with this index");
            let keys = index.entries.get(value);
            keys.into_iter().flatten().filter_map(|key| objects.by_key.get(key).cloned()).collect()
        })
    }

    /// The objects of one namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = Key::new(namespace, "");
        self.read(|objects| {
            let from = objects.by_key.range(first..);
            from.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
        })
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for the first complete list. False if the watch was stopped before that.
    pub async fn synced(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// Calls `handler` for every object already known and for every change from now on, in order.
    ///
    /// The handler runs on the watch itself: it must not wait. Typically it marks expectations and adds keys to a
    /// [`WorkQueue`], whose set of keys is what a slow reader falls behind on. It may read stores; it must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let handler: Handler<K> = Box::new(handler);
        let mut handlers = lock(&self.shared.handlers);
        for object in self.all() {
            tell(&handler, &Change::Added(object));
        }
        handlers.push(handler);
    }

    /// Adds the key of every changed object to `queue`.
    pub fn feed(&self, queue: &WorkQueue<Key>) {
        let queue = queue.clone();
        self.subscribe(move |change| queue.add(Key::of(change.object().as_ref())));
    }
}

/// Calls one handler; its panic is its own affair, the watch and the other handlers go on.
fn tell<K: Resource>(handler: &Handler<K>, change: &Change<K>) {
    if catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
        tracing::error!(key = %Key::of(change.object().as_ref()), "an event handler panicked");
    }
}

/// Write access to the cache of one kind, fed by a watch (or by hand, in a simulation).
pub struct Ingest<K> {
    shared: Arc<Shared<K>>,
    synced: watch::Sender<bool>,
    prune: Box<dyn Fn(&mut K) + Send + Sync>,
    /// The list being received.
    listing: Option<BTreeMap<Key, K>>,
}

pub(crate) fn cache<K: Resource>(
    indexes: Vec<(&'static str, IndexFn<K>)>,
    prune: Box<dyn Fn(&mut K) + Send + Sync>,
) -> (Store<K>, Ingest<K>) {
    let indexes =
        indexes.into_iter().map(|(name, keys_of)| (name, Index { keys_of, entries: HashMap::new() })).collect();
    let shared = Arc::new(Shared {
        objects: RwLock::new(Objects { by_key: BTreeMap::new(), indexes }),
        handlers: Mutex::default(),
    });
    let (synced_tx, synced) = watch::channel(false);
    (Store { shared: shared.clone(), synced }, Ingest { shared, synced: synced_tx, prune, listing: None })
}

impl<K: Resource> Ingest<K> {
    /// Takes one event of the watch. During a list nothing becomes visible before its end: the old state stays.
    pub fn apply(&mut self, event: Event<K>) {
        let event = event.modify(|object| (self.prune)(object));
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(Key::of(&object), object);
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                self.write(|objects| replace(objects, listed));
                self.synced.send_replace(true);
            }
            Event::Apply(object) => self.write(|objects| objects.upsert(object)),
            Event::Delete(object) => self.write(|objects| {
                let known = objects.remove(&Key::of(&object));
                known.map(|_| Change::Deleted(Arc::new(object))).into_iter().collect()
            }),
        }
    }

    fn write(&self, f: impl FnOnce(&mut Objects<K>) -> Vec<Change<K>>) {
        let handlers = lock(&self.shared.handlers);
        let changes = f(&mut self.shared.objects.write().unwrap_or_else(PoisonError::into_inner));
        for change in &changes {
            handlers.iter().for_each(|handler| tell(handler, change));
        }
    }
}

/// Makes the cache equal to a complete list. Deletions come first: they free what additions may wait for.
fn replace<K: Resource>(objects: &mut Objects<K>, listed: BTreeMap<Key, K>) -> Vec<Change<K>> {
    let gone: Vec<Key> = objects.by_key.keys().filter(|key| !listed.contains_key(key)).cloned().collect();
    let mut changes: Vec<_> = gone.iter().filter_map(|key| objects.remove(key)).map(Change::Deleted).collect();
    changes.extend(listed.into_values().flat_map(|object| objects.upsert(object)));
    changes
}

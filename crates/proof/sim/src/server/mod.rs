//! The API server of the simulation: typed objects in memory, with the semantics controllers rely on.
//!
//! | semantics | where |
//! |---|---|
//! | resource versions, optimistic locking, UIDs, generation, finalizers, status endpoints | `write.rs` |
//! | grace of Pods, deletion timestamps, UID preconditions, orphaning | `delete.rs` |
//! | JSON, merge and strategic patches, by `machinery` | `patch.rs` |
//!
//! The embedded server's registry works on JSON bytes in a store on disk; here a history must take milliseconds in a
//! debug build, so objects stay typed and shared, and only patches go through JSON. The patches, selectors and
//! responses that both share are in `machinery`.

mod delete;
mod patch;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use informer::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, Time};
use machinery::selector::Selector;
use machinery::status::{self, About};

use crate::kinds::{Kind, Object, Tables};

pub(crate) use delete::Propagation;

/// The server's response, or its error.
pub(crate) type Answer<T> = Result<T, Box<Status>>;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A pass of a controller in a virt-controller process.
    Controller {
        replica: u32,
        pass: u64,
        name: &'static str,
    },
    User,
    Scheduler,
    Kubelet,
    NodeAgent,
    /// A request to evict a Pod.
    Eviction,
    /// The same in a dry run.
    DryRun,
    Cdi,
    GarbageCollector,
    /// Somebody else who happens to write the same object.
    Stranger,
}

impl Writer {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Controller { name, .. } => name,
            Self::User => "user",
            Self::Scheduler => "scheduler",
            Self::Kubelet => "kubelet",
            Self::NodeAgent => "agent",
            Self::Eviction => "eviction",
            Self::DryRun => "dry run",
            Self::Cdi => "cdi",
            Self::GarbageCollector => "gc",
            Self::Stranger => "stranger",
        }
    }

    pub(crate) fn is_controller(&self) -> bool {
        matches!(self, Self::Controller { .. })
    }
}

/// The request that changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    UpdateStatus,
    Patch,
    PatchStatus,
    Delete,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Since the history began.
    pub at: Duration,
    pub by: Writer,
    pub verb: Verb,
    pub was: Option<Object>,
    /// `None` if the object is gone.
    pub is: Option<Object>,
    /// The latest state: the current one, or the last one before the deletion.
    pub last: Object,
}

impl Change {
    pub(crate) fn kind(&self) -> Kind {
        self.last.kind()
    }
}

/// See the module docs.
#[derive(Default)]
pub(crate) struct Server {
    pub tables: Tables,
    /// All changes in order. A watch iterates over those of its kind.
    pub log: Vec<Change>,
    /// Positions in `log`, by kind.
    streams: BTreeMap<Kind, Vec<usize>>,
    version: u64,
    born: u64,
    alive: BTreeSet<String>,
    /// Since the history began.
    pub now: Duration,
    /// Why target Pods are currently rejected, if they are.
    pub target_ban: Option<&'static str>,
    pub start: Timestamp,
}

impl Server {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, ..Self::default() }
    }

    /// The wall-clock time in whole seconds, as in objects.
    pub(crate) fn time(&self) -> Time {
        Time(self.start + Duration::from_secs(self.now.as_secs()))
    }

    /// The changes of one kind, oldest first.
    pub(crate) fn stream(&self, kind: Kind) -> &[usize] {
        self.streams.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Whether the object with this UID still exists.
    pub(crate) fn exists(&self, uid: &str) -> bool {
        self.alive.contains(uid)
    }

    pub(crate) fn lookup<K: 'static>(&self, key: &Key) -> Option<Arc<K>> {
        self.tables.of::<K>()?.get(key).cloned()
    }

    /// The objects of a kind in a namespace (or in all, if it is empty) that match the selector.
    pub(crate) fn list<K: kube::Resource<DynamicType = ()> + 'static>(
        &self,
        namespace: &str,
        labels: &str,
    ) -> Answer<Vec<Arc<K>>> {
        select(self.table::<K>()?.all(), namespace, labels)
    }

    /// The objects of a kind as known to a watcher that has received its first `seen` changes.
    pub(crate) fn seen(&self, kind: Kind, seen: usize) -> BTreeMap<Key, Object> {
        let mut objects = BTreeMap::new();
        for &position in self.stream(kind).iter().take(seen) {
            let change = &self.log[position];
            match &change.is {
                Some(object) => objects.insert(object.key(), object.clone()),
                None => objects.remove(&change.last.key()),
            };
        }
        objects
    }

    fn record(&mut self, by: Writer, verb: Verb, was: Option<Object>, is: Option<Object>, last: Object) {
        match (&was, &is) {
            (None, Some(new)) => drop(self.alive.insert(new.uid().to_owned())),
            (Some(old), None) => drop(self.alive.remove(old.uid())),
            _ => {}
        }
        self.streams.entry(last.kind()).or_default().push(self.log.len());
        self.log.push(Change { at: self.now, by, verb, was, is, last });
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn next_uid(&mut self) -> String {
        self.born += 1;
        // Scattered like real ones: names are derived from it.
        let n = crate::rng::Rng::new(self.born).next();
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            n >> 32,
            (n >> 16) & 0xffff,
            n & 0xfff,
            (n >> 4) & 0xfff,
            self.born
        )
    }
}

/// The objects in a namespace (or in all, if it is empty) that match the selector.
pub(crate) fn select<'a, K>(all: impl Iterator<Item = &'a Arc<K>>, namespace: &str, labels: &str) -> Answer<Vec<Arc<K>>>
where
    K: kube::Resource<DynamicType = ()> + 'static,
{
    let selector = Selector::parse(labels).map_err(|error| status::bad_request(error.to_string()))?;
    let none = BTreeMap::new();
    let matches = |object: &&Arc<K>| {
        let meta = object.meta();
        (namespace.is_empty() || meta.namespace.as_deref() == Some(namespace))
            && selector.matches(meta.labels.as_ref().unwrap_or(&none))
    };
    Ok(all.filter(matches).cloned().collect())
}

/// The subject of a response.
pub(crate) fn about<K: kube::Resource<DynamicType = ()>>(
    key: &Key,
    answer: impl FnOnce(About<'_>) -> Status,
) -> Box<Status> {
    let (group, plural) = (K::group(&()), K::plural(&()));
    Box::new(answer(About::new(&group, &plural, &key.name)))
}

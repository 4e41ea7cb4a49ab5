//! Garbage collection after deletions.
//!
//! It reads the same history as every watch and acts through the same registry as every client. The cache is filled by
//! the writer itself, so an object that is not in it is certainly gone.

mod namespace;
mod ownership;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Event, Key, Object, ObjectName};
use crate::errors::ApiError;
use crate::kinds::{KindId, Kinds, last_time};
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Registry, WriteContext};

/// Interval of full rescans, independent of the history.
const RESCAN: Duration = Duration::from_secs(60);
/// Retry interval after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// How long an Event is kept after its last occurrence.
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);

/// An object to check.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// The owners of this object may be gone.
    Dependent(Key),
    /// This object waits for its dependents.
    Owner(Key),
    /// A terminating namespace may still have contents.
    Namespace(String),
}

pub(crate) struct Collector {
    registry: Arc<Registry>,
    cache: Arc<Cache>,
    /// Per kind, the revision up to which its history has been processed.
    cursors: Vec<u64>,
}

impl Collector {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let cache = registry.cache.clone();
        Self { registry, cache, cursors: vec![0; Kinds::get().len()] }
    }

    /// Runs until shutdown.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut revision = self.cache.revision();
        let mut rescan = tokio::time::interval(RESCAN);
        let mut failed = BTreeSet::new();
        loop {
            let retry = async {
                if failed.is_empty() { std::future::pending().await } else { tokio::time::sleep(RETRY).await }
            };
            let mut tasks = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = rescan.tick() => {
                    self.expire_events().await;
                    self.everything()
                }
                changed = revision.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.news()
                }
                () = retry => BTreeSet::new(),
            };
            tasks.append(&mut failed);
            for task in tasks {
                if let Err(err) = self.carry_out(&task).await {
                    tracing::debug!(?task, error = %err, "will be tried again");
                    failed.insert(task);
                }
            }
        }
    }

    async fn carry_out(&self, task: &Task) -> Result<(), ApiError> {
        let result = match task {
            Task::Dependent(key) => ownership::collect(&self.registry, key).await,
            Task::Owner(key) => ownership::release(&self.registry, key).await,
            Task::Namespace(name) => namespace::empty(&self.registry, name).await,
        };
        match result {
            Err(ApiError::NotFound(_)) => Ok(()), // somebody else has finished it
            other => other,
        }
    }

    /// The tasks that follow from changes since the last call.
    fn news(&mut self) -> BTreeSet<Task> {
        let mut tasks = BTreeSet::new();
        for kind in Kinds::get().ids() {
            if self.cache.changed_at(kind) <= self.cursors[kind] {
                continue;
            }
            match self.cache.events_after(kind, self.cursors[kind]) {
                Err(_) => return self.everything(), // fell behind the history
                Ok((events, revision)) => {
                    self.cursors[kind] = revision;
                    events.iter().for_each(|event| self.note(kind, event, &mut tasks));
                }
            }
        }
        tasks
    }

    fn note(&self, kind: KindId, event: &Event, tasks: &mut BTreeSet<Task>) {
        let object = &event.object;
        if !event.deleted {
            note_object(kind, object, tasks);
            return;
        }
        tasks.extend(self.cache.dependents(&object.uid).into_iter().map(Task::Dependent));
        // Its owner or its namespace may have waited for this one.
        tasks.extend(object.owners.iter().filter_map(|owner| self.cache.find_uid(&owner.uid)).map(Task::Owner));
        if !object.name.namespace.is_empty() {
            let name = ObjectName::new("", &object.name.namespace);
            if self.cache.get(Kinds::get().namespaces(), &name).is_some_and(|namespace| namespace.deleting) {
                tasks.insert(Task::Namespace(name.name));
            }
        }
    }

    /// All tasks from a full scan; also the starting point for reading the history.
    fn everything(&mut self) -> BTreeSet<Task> {
        let now = *self.cache.revision().borrow();
        self.cursors = vec![now; Kinds::get().len()];
        let mut tasks = BTreeSet::new();
        for kind in Kinds::get().ids() {
            for object in self.cache.list(kind, None).objects {
                note_object(kind, &object, &mut tasks);
            }
        }
        tasks
    }

    async fn expire_events(&self) {
        let Some(kind) = Kinds::get().find("", "events") else { return };
        let Ok(limit) = Timestamp::now().checked_sub(EVENT_TTL) else { return };
        for event in self.cache.list(kind, None).objects {
            let old = last_time(&event.value()).parse::<Timestamp>().is_ok_and(|time| time < limit);
            if !old {
                continue;
            }
            let options = DeleteOptions::default();
            if let Err(err) = self.registry.delete(kind, &event.name, &options, &mut WriteContext::server()).await {
                tracing::debug!(event = %event.name, error = %err, "an old Event stays for another round");
            }
        }
    }
}

fn note_object(kind: KindId, object: &Object, tasks: &mut BTreeSet<Task>) {
    let key = || Key { kind, name: object.name.clone() };
    if !object.owners.is_empty() {
        tasks.insert(Task::Dependent(key()));
    }
    if object.deleting && (object.has_finalizer(FOREGROUND) || object.has_finalizer(ORPHAN)) {
        tasks.insert(Task::Owner(key()));
    }
    if object.deleting && kind == Kinds::get().namespaces() {
        tasks.insert(Task::Namespace(object.name.name.clone()));
    }
}

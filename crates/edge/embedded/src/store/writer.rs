//! The single writer: checks preconditions, assigns revisions, commits in batches.
//!
//! Writes queue up while a commit waits for the disk; the next commit takes all of them. A write is acknowledged when
//! it is durable *and* in the cache, so that clients read their own writes.
//!
//! ```text
//!   Ready ── commit fails ──► in doubt ── reopen: batch is on disk ──► apply it, Ready
//!     ▲                          │ │
//!     │                          │ └── reopen fails ──► in doubt (tried again with the next write)
//!     └── reopen: it is not ─────┘
//! ```
//!
//! While in doubt, writes are rejected with the reason and reads continue.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{Change, Engine, StoreError};
use crate::cache::{Cache, Event, Key, Object, ObjectName};
use crate::kinds::Kinds;

/// Queue length beyond which senders block.
const QUEUE: usize = 1024;
/// Bounds the memory of one transaction and the latency of the first write in it.
const GROUP: usize = 256;

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The object must not exist; its namespace must exist and not be terminating.
    Absent,
    Revision(u64),
}

#[derive(Debug)]
pub(crate) enum Op {
    Put(Value),
    Delete,
}

#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    pub(crate) op: Op,
}

/// The version created by a write; for a deletion, the last version with the revision of the deletion.
pub(crate) type Committed = Arc<Object>;

/// Why a write was rejected. Nothing was changed, except possibly with `Store`: then a later read shows the outcome.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WriteError {
    /// The precondition failed; this is what exists instead.
    #[error("the object has changed")]
    Conflict(Option<Arc<Object>>),
    #[error("the namespace is gone")]
    NamespaceMissing,
    #[error("the namespace is being terminated")]
    NamespaceTerminating,
    #[error("the store refused the write")]
    Store(#[source] Arc<StoreError>),
    #[error("the server is shutting down")]
    Closed,
}

struct Pending {
    write: Write,
    answer: oneshot::Sender<Result<Committed, WriteError>>,
}

/// The sending side; closing it stops the thread.
pub(crate) struct Writer {
    queue: parking_lot::Mutex<Option<mpsc::Sender<Pending>>>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(engine: Box<dyn Engine>, cache: Arc<Cache>, kinds: &'static Kinds) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let revision = *cache.revision().borrow();
        let worker = Worker { engine, cache, kinds, revision, in_doubt: None };
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || worker.run(receiver))?;
        Ok(Self { queue: Some(sender).into(), thread: Some(thread).into() })
    }

    /// Returns when the write is durable and readable, or rejected.
    pub(crate) async fn submit(&self, write: Write) -> Result<Committed, WriteError> {
        let queue = self.queue.lock().clone().ok_or(WriteError::Closed)?;
        let (answer, wait) = oneshot::channel();
        queue.send(Pending { write, answer }).await.map_err(|_| WriteError::Closed)?;
        wait.await.map_err(|_| WriteError::Closed)?
    }

    /// Finishes queued writes, then releases the store's lock.
    pub(crate) fn close(&self) {
        self.queue.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer thread panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A prepared batch whose commit has not been decided.
struct Batch {
    revision: u64,
    events: Vec<(Key, Event)>,
    answers: Vec<oneshot::Sender<Result<Committed, WriteError>>>,
}

struct Worker {
    engine: Box<dyn Engine>,
    cache: Arc<Cache>,
    kinds: &'static Kinds,
    revision: u64,
    /// A batch whose commit failed and whose outcome is unknown until the store is reopened.
    in_doubt: Option<Batch>,
}

impl Worker {
    fn run(mut self, mut queue: mpsc::Receiver<Pending>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP
                && let Ok(next) = queue.try_recv()
            {
                group.push(next);
            }
            self.handle(group);
        }
    }

    fn handle(&mut self, group: Vec<Pending>) {
        if let Some(batch) = self.in_doubt.take()
            && let Err(err) = self.settle(batch)
        {
            let err = Arc::new(err);
            for pending in group {
                let _gone = pending.answer.send(Err(WriteError::Store(err.clone())));
            }
            return;
        }
        let batch = self.prepare(group);
        if batch.events.is_empty() {
            return;
        }
        let changes: Vec<Change> = batch.events.iter().map(|(key, event)| self.change(key, event)).collect();
        match self.engine.commit(batch.revision, &changes) {
            Ok(()) => self.finish(batch),
            Err(err) => self.fail(batch, err),
        }
    }

    /// Checks every write against the cache and the writes before it; rejected ones are answered at once.
    fn prepare(&self, group: Vec<Pending>) -> Batch {
        let mut batch = Batch { revision: self.revision, events: Vec::new(), answers: Vec::new() };
        let mut overlay: HashMap<Key, Option<Arc<Object>>> = HashMap::new();
        for Pending { write, answer } in group {
            match self.check(&write, &overlay) {
                Err(err) => {
                    let _gone = answer.send(Err(err));
                }
                Ok(previous) => {
                    batch.revision += 1;
                    let event = self.event(&write.key, write.op, previous, batch.revision);
                    overlay.insert(write.key.clone(), (!event.deleted).then(|| event.object.clone()));
                    batch.events.push((write.key, event));
                    batch.answers.push(answer);
                }
            }
        }
        batch
    }

    fn check(
        &self,
        write: &Write,
        overlay: &HashMap<Key, Option<Arc<Object>>>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let find = |key: &Key| match overlay.get(key) {
            Some(found) => found.clone(),
            None => self.cache.get(key.kind, &key.name),
        };
        let current = find(&write.key);
        match (write.expect, &current) {
            (Expect::Absent, None) => {
                let namespace = &write.key.name.namespace;
                if !namespace.is_empty() {
                    let key = Key { kind: self.kinds.namespaces(), name: ObjectName::new("", namespace) };
                    let namespace = find(&key).ok_or(WriteError::NamespaceMissing)?;
                    if namespace.deleting {
                        return Err(WriteError::NamespaceTerminating);
                    }
                }
                Ok(None)
            }
            (Expect::Revision(expected), Some(object)) if object.revision == expected => Ok(current),
            _ => Err(WriteError::Conflict(current)),
        }
    }

    fn event(&self, key: &Key, op: Op, previous: Option<Arc<Object>>, revision: u64) -> Event {
        let deleted = matches!(op, Op::Delete);
        let value = match (op, &previous) {
            (Op::Put(value), _) => value,
            (Op::Delete, Some(last)) => last.value(),
            (Op::Delete, None) => unreachable!("a deletion expects a revision, so there was an object"),
        };
        let object = Arc::new(Object::encode(self.kinds.strategy(key.kind), value, revision));
        Event { deleted, object, previous }
    }

    fn change(&self, key: &Key, event: &Event) -> Change {
        let value = (!event.deleted).then(|| event.object.json.to_vec());
        Change { key: self.kinds.storage_key(key), value }
    }

    fn finish(&mut self, batch: Batch) {
        self.revision = batch.revision;
        let objects: Vec<_> = batch.events.iter().map(|(_, event)| event.object.clone()).collect();
        self.cache.apply(batch.events.into_iter().map(|(key, event)| (key.kind, event)).collect());
        for (answer, object) in batch.answers.into_iter().zip(objects) {
            let _gone = answer.send(Ok(object));
        }
    }

    fn fail(&mut self, mut batch: Batch, err: StoreError) {
        tracing::error!(error = %err, writes = batch.events.len(), "commit failed; refusing writes until a commit succeeds");
        let answers = std::mem::take(&mut batch.answers);
        let attempted = batch.revision;
        let settled = self.settle(batch);
        if settled.is_ok() && self.revision == attempted {
            // It reached the disk after all; clients see that in the objects themselves.
            tracing::warn!(revision = attempted, "the failed commit turned out to be durable");
        }
        let err = Arc::new(err);
        for answer in answers {
            let _gone = answer.send(Err(WriteError::Store(err.clone())));
        }
    }

    /// Reopens the store and determines the outcome of the batch.
    fn settle(&mut self, batch: Batch) -> Result<(), StoreError> {
        match self.engine.reopen() {
            Ok(revision) if revision == batch.revision => self.finish(batch),
            Ok(_) => {}
            Err(err) => {
                self.in_doubt = Some(batch);
                return Err(err);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// What the next commits and openings do.
    #[derive(Default)]
    struct Disk {
        /// Number of commits to fail, and whether the data gets there nevertheless.
        failing: AtomicUsize,
        arrives: bool,
        failing_opens: AtomicUsize,
        state: Mutex<(u64, BTreeMap<String, Vec<u8>>)>,
        commits: AtomicUsize,
    }

    impl Disk {
        fn use_up(counter: &AtomicUsize) -> bool {
            counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        }
    }

    struct Fake(Arc<Disk>);

    fn full() -> StoreError {
        StoreError::Full { path: "/store".into() }
    }

    impl Engine for Fake {
        fn load(&self, _each: &mut dyn FnMut(&str, &[u8])) -> Result<u64, StoreError> {
            Ok(self.0.state.lock().0)
        }

        fn commit(&mut self, revision: u64, changes: &[Change]) -> Result<(), StoreError> {
            let fails = Disk::use_up(&self.0.failing);
            self.0.commits.fetch_add(1, Ordering::SeqCst);
            if !fails || self.0.arrives {
                let mut state = self.0.state.lock();
                state.0 = revision;
                for change in changes {
                    match &change.value {
                        Some(value) => state.1.insert(change.key.clone(), value.clone()),
                        None => state.1.remove(&change.key),
                    };
                }
            }
            if fails { Err(full()) } else { Ok(()) }
        }

        fn reopen(&mut self) -> Result<u64, StoreError> {
            if Disk::use_up(&self.0.failing_opens) { Err(full()) } else { self.load(&mut |_, _| {}) }
        }

        fn compact(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    struct World {
        disk: Arc<Disk>,
        cache: Arc<Cache>,
        writer: Writer,
    }

    fn world(disk: Disk) -> World {
        let disk = Arc::new(disk);
        let kinds = Kinds::get();
        let cache = Arc::new(Cache::new(kinds.len()));
        let space = json!({"metadata": {"name": "default", "uid": "ns", "resourceVersion": "0"}});
        cache.load(kinds.namespaces(), Object::encode(kinds.strategy(kinds.namespaces()), space, 0));
        cache.loaded(0);
        let writer = Writer::start(Box::new(Fake(disk.clone())), cache.clone(), kinds).unwrap();
        World { disk, cache, writer }
    }

    fn key(name: &str) -> Key {
        Key { kind: Kinds::get().find("", "configmaps").unwrap(), name: ObjectName::new("default", name) }
    }

    fn create(name: &str) -> Write {
        let object = json!({"metadata": {"name": name, "namespace": "default", "uid": name}});
        Write { key: key(name), expect: Expect::Absent, op: Op::Put(object) }
    }

    #[tokio::test]
    async fn expectations_decide_and_revisions_only_grow() {
        let world = world(Disk::default());
        let first = world.writer.submit(create("a")).await.unwrap();
        assert_eq!(first.revision, 1);
        let again = world.writer.submit(create("a")).await;
        assert!(matches!(again, Err(WriteError::Conflict(Some(found))) if found.revision == 1));
        let delete = |revision| Write { key: key("a"), expect: Expect::Revision(revision), op: Op::Delete };
        assert!(matches!(world.writer.submit(delete(7)).await, Err(WriteError::Conflict(Some(_)))));
        assert_eq!(world.writer.submit(delete(1)).await.unwrap().revision, 2);
        assert!(matches!(world.writer.submit(delete(1)).await, Err(WriteError::Conflict(None))));
        assert_eq!(world.disk.state.lock().1.len(), 0);
        let mut elsewhere = create("b");
        elsewhere.key.name.namespace = "nowhere".into();
        assert!(matches!(world.writer.submit(elsewhere).await, Err(WriteError::NamespaceMissing)));
        world.writer.close();
        assert!(matches!(world.writer.submit(create("c")).await, Err(WriteError::Closed)));
    }

    #[tokio::test]
    async fn many_writes_share_a_commit_and_one_of_two_rivals_wins() {
        let world = world(Disk::default());
        let writes = (0..200).map(|index| world.writer.submit(create(&format!("m{}", index / 2))));
        let results = futures::future::join_all(writes).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 100);
        let mut revisions: Vec<u64> = results.iter().flatten().map(|object| object.revision).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=100).collect::<Vec<_>>());
        let commits = world.disk.commits.load(Ordering::SeqCst);
        assert!(commits < 100, "{commits} commits for 100 writes");
    }

    #[tokio::test]
    async fn a_full_disk_refuses_the_write_and_nothing_is_seen_of_it() {
        let world = world(Disk { failing: 1.into(), ..Disk::default() });
        let refused = world.writer.submit(create("a")).await;
        assert!(matches!(refused, Err(WriteError::Store(err)) if matches!(*err, StoreError::Full { .. })));
        assert!(world.cache.get(key("a").kind, &key("a").name).is_none());
        assert_eq!(world.writer.submit(create("a")).await.unwrap().revision, 1, "and the next one works");
    }

    #[tokio::test]
    async fn a_failed_commit_that_arrived_becomes_visible() {
        let world = world(Disk { failing: 1.into(), arrives: true, ..Disk::default() });
        assert!(world.writer.submit(create("a")).await.is_err());
        assert!(world.cache.get(key("a").kind, &key("a").name).is_some(), "it is on disk, so it is there");
        assert_eq!(world.writer.submit(create("b")).await.unwrap().revision, 2);
    }

    #[tokio::test]
    async fn while_the_store_cannot_be_opened_writes_are_refused_and_then_doubt_is_settled() {
        let world = world(Disk { failing: 1.into(), arrives: true, failing_opens: 2.into(), ..Disk::default() });
        assert!(world.writer.submit(create("a")).await.is_err());
        assert!(world.cache.get(key("a").kind, &key("a").name).is_none(), "nobody knows yet");
        assert!(world.writer.submit(create("b")).await.is_err());
        assert_eq!(world.writer.submit(create("c")).await.unwrap().revision, 2);
        assert!(world.cache.get(key("a").kind, &key("a").name).is_some());
    }
}

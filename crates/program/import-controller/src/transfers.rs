//! What fills claims: one task per claim, which holds the volume and runs a worker.
//!
//! ```text
//!   start ─► Queued ─► Running ─► Done | Failed ─► stop: the volume is given back
//!               └ Waiting: the volume is in use
//!   start (upload) ─► Ready ⇄ Running ─► Done
//! ```
//!
//! The volume stays held when a transfer has failed: nobody is to use what is half filled. It is given back by
//! [`Transfers::stop`] alone, or by [`Transfers::sweep`] where nobody is left to call that.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk_images::{Descriptors, Done, Event, Failure as Told, Job, Worker, reasons};
use imports::{Content, Failure, Task, Transfer};
use informer::{Change, Key, Store, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use parking_lot::Mutex;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use volumeplan::PoolId as _;
use volumes::{Class, Engine, Held};

use crate::job;

/// How often to ask again for a volume that is in use.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How often progress is told at most.
const TELL: Duration = Duration::from_secs(1);
/// How long a claim that goes may leave its volume held, where no transfer knows of it.
const SWEEP: Duration = Duration::from_secs(60);
/// Bytes of a pipe's buffer: an upload arrives in large pieces.
const PIPE: usize = 1 << 20;

/// The program that fills claims, and its directory for images that it has to convert.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) exe: PathBuf,
    pub(crate) scratch: PathBuf,
}

impl Program {
    /// Makes the directory, and removes what workers of an earlier process left in it.
    pub(crate) fn clear(&self) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.scratch)?;
        std::fs::set_permissions(&self.scratch, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&self.scratch)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path())?,
                false => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

/// All transfers. Clones are handles to the same ones.
#[derive(Clone)]
pub(crate) struct Transfers {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<Engine>,
    client: kube::Client,
    program: Program,
    turns: Arc<Semaphore>,
    queue: WorkQueue<Key>,
    entries: Mutex<HashMap<Key, Entry>>,
    runs: AtomicU64,
    /// A claim is gone: its volume may have to be given back.
    gone: Notify,
}

struct Entry {
    /// Of the claim.
    uid: String,
    task: Arc<Task>,
    holder: String,
    state: Transfer,
    /// Tells a later run from an earlier one.
    run: u64,
    stop: CancellationToken,
    running: Option<JoinHandle<()>>,
    failures: u32,
}

/// Where an upload stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Upload {
    /// The content is being taken.
    Taking,
    /// All of it was taken, and it is being converted.
    Converting,
    Done,
    Failed {
        message: String,
        too_large: bool,
    },
}

/// An upload that has begun.
pub(crate) struct Session {
    pub(crate) sink: pipe::Sender,
    pub(crate) state: watch::Receiver<Upload>,
    /// Ends the upload as a failure: the content is not whole.
    pub(crate) abort: CancellationToken,
}

/// Why an upload cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// The claim takes no upload now.
    NotReady,
    /// Another upload is in progress.
    Uploading,
    /// The claim is filled.
    Done,
    /// Too many transfers are in progress.
    Full,
    /// This machine cannot.
    Machine,
}

impl Transfers {
    pub(crate) fn new(
        engine: Arc<Engine>,
        client: kube::Client,
        program: Program,
        parallel: usize,
        queue: WorkQueue<Key>,
    ) -> Self {
        let shared = Shared {
            engine,
            client,
            program,
            turns: Arc::new(Semaphore::new(parallel.max(1))),
            queue,
            entries: Mutex::default(),
            runs: AtomicU64::default(),
            gone: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What fills the claim of this name.
    pub(crate) fn look(&self, key: &Key) -> Option<Transfer> {
        self.shared.entries.lock().get(key).map(|entry| entry.state.clone())
    }

    /// Begins to fill a claim. What filled it before is over, or ends first.
    pub(crate) async fn start(&self, key: &Key, claim: &PersistentVolumeClaim, task: Task) {
        let (Some(uid), Some(holder)) = (claim.metadata.uid.clone(), imports::holder(claim)) else { return };
        let failures = self.halt(key).await;
        let run = self.shared.runs.fetch_add(1, Ordering::Relaxed);
        let stop = CancellationToken::new();
        let task = Arc::new(task);
        let entry = Entry {
            uid,
            task: task.clone(),
            holder: holder.clone(),
            state: Transfer::Queued,
            run,
            stop: stop.clone(),
            running: None,
            failures,
        };
        self.shared.entries.lock().insert(key.clone(), entry);
        let handle = tokio::spawn(self.shared.running(key, run, task, holder).run(stop));
        if let Some(entry) = self.shared.entries.lock().get_mut(key) {
            entry.running = Some(handle);
        }
    }

    /// Ends what runs for a claim, and waits for its end. Returns how often uploads have failed.
    async fn halt(&self, key: &Key) -> u32 {
        let (handle, failures) = match self.shared.entries.lock().get_mut(key) {
            Some(entry) => {
                entry.stop.cancel();
                (entry.running.take(), entry.failures)
            }
            None => return 0,
        };
        if let Some(handle) = handle
            && let Err(error) = handle.await
        {
            tracing::error!(%key, %error, "a transfer failed");
        }
        failures
    }

    /// Ends what fills a claim, and gives its volume back.
    pub(crate) async fn stop(&self, key: &Key) {
        self.halt(key).await;
        let ended = self.shared.entries.lock().remove(key);
        if let Some(entry) = ended {
            self.release(entry.task.volume.clone(), entry.holder).await;
        }
    }

    /// Ends what fills another claim of the same name.
    pub(crate) async fn end_other(&self, key: &Key, uid: Option<&str>) {
        let other = self.shared.entries.lock().get(key).is_some_and(|entry| Some(entry.uid.as_str()) != uid);
        if other {
            self.stop(key).await;
        }
    }

    async fn release(&self, volume: String, holder: String) {
        let engine = self.shared.engine.clone();
        let released = blocking({
            let (volume, holder) = (volume.clone(), holder.clone());
            move || engine.release_hold(&volume, &holder)
        });
        if let Err(error) = released.await {
            tracing::warn!(volume, holder, error = &*error, "failed to give a volume back; trying again");
            self.shared.gone.notify_one();
        }
    }

    /// Ends all workers. What they filled stays held.
    pub(crate) async fn end(&self) {
        let keys: Vec<Key> = self.shared.entries.lock().keys().cloned().collect();
        for key in keys {
            self.halt(&key).await;
        }
    }

    /// Gives back volumes that are held for claims which are gone or filled: at the start, and when claims go.
    pub(crate) async fn sweep(self, claims: Store<PersistentVolumeClaim>, shutdown: CancellationToken) {
        let shared = self.shared.clone();
        claims.subscribe(move |change: &Change<PersistentVolumeClaim>| {
            let deleting = change.object().metadata.deletion_timestamp.is_some();
            if deleting || matches!(change, Change::Deleted(_)) {
                shared.gone.notify_one();
            }
        });
        loop {
            self.sweep_once(&claims).await;
            let woken = async {
                let _ = tokio::time::timeout(SWEEP, self.shared.gone.notified()).await;
                // Many claims go at once with their namespace.
                tokio::time::sleep(Duration::from_millis(500)).await;
            };
            if shutdown.run_until_cancelled(woken).await.is_none() {
                return;
            }
        }
    }

    async fn sweep_once(&self, claims: &Store<PersistentVolumeClaim>) {
        let stay: HashSet<String> = {
            let wanted = claims.all();
            let wanted = wanted.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
            let reserved =
                wanted.filter(|claim| imports::is_reserved(claim)).filter_map(|claim| imports::holder(claim));
            let own = self.shared.entries.lock().values().map(|entry| entry.holder.clone()).collect::<Vec<_>>();
            reserved.chain(own).collect()
        };
        let engine = self.shared.engine.clone();
        let held = blocking(move || {
            let (mut token, mut held) = (String::new(), Vec::new());
            loop {
                let listed = engine.list_volumes(0, &token)?;
                for volume in listed.entries {
                    // One that is gone meanwhile, or damaged, is nobody's.
                    let Ok((_, users)) = engine.volume(volume.id.as_str()) else { continue };
                    let holder = users.hold.map(|hold| hold.holder).filter(|holder| !stay.contains(holder));
                    held.extend(holder.map(|holder| (volume.id.as_str().to_owned(), holder)));
                }
                match listed.next {
                    Some(next) => token = next,
                    None => return Ok(held),
                }
            }
        });
        match held.await {
            Ok(held) => {
                for (volume, holder) in held {
                    self.release_unneeded(volume, holder).await;
                }
            }
            Err(error) => tracing::warn!(error = &*error, "failed to look for volumes to give back"),
        }
    }

    /// Gives a volume back if its claim does not need it: the cache may be older than the hold, so the claim is read.
    async fn release_unneeded(&self, volume: String, holder: String) {
        let Some((namespace, name, uid)) = imports::claim_of_holder(&holder) else { return };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.shared.client.clone(), namespace);
        let needed = match claims.get_opt(name).await {
            Ok(found) => found.is_some_and(|claim| {
                claim.metadata.uid.as_deref() == Some(uid)
                    && claim.metadata.deletion_timestamp.is_none()
                    && imports::is_reserved(&claim)
            }),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, namespace, name, "failed to read a claim; its volume stays held");
                return;
            }
        };
        if !needed {
            tracing::info!(volume, holder, "nobody fills the volume any more: given back");
            self.release(volume, holder).await;
        }
    }

    /// Begins an upload into a claim that is ready for one.
    pub(crate) async fn upload(&self, key: &Key) -> Result<Session, Busy> {
        let turn = self.shared.turns.clone().try_acquire_owned().map_err(|_| Busy::Full)?;
        let (sink, content) = pipe_pair().map_err(|error| {
            tracing::error!(%key, %error, "an upload cannot begin");
            Busy::Machine
        })?;
        let (running, stop) = {
            let mut entries = self.shared.entries.lock();
            let entry = entries.get_mut(key).ok_or(Busy::NotReady)?;
            match (&entry.state, &entry.task.content) {
                (Transfer::Ready { .. }, Content::Upload) => {}
                (Transfer::Running { .. }, Content::Upload) => return Err(Busy::Uploading),
                (Transfer::Done { .. }, _) => return Err(Busy::Done),
                _ => return Err(Busy::NotReady),
            }
            entry.state = Transfer::Running { progress: None };
            entry.run = self.shared.runs.fetch_add(1, Ordering::Relaxed);
            entry.stop = CancellationToken::new();
            let (task, holder) = (entry.task.clone(), entry.holder.clone());
            (self.shared.running(key, entry.run, task, holder), entry.stop.clone())
        };
        running.turn.lock().replace(turn);
        Ok(running.take_upload(sink, content, stop))
    }
}

/// Runs blocking work of the engine.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> volumes::Result<T> + Send + 'static,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// One run for a claim.
struct Running {
    shared: Arc<Shared>,
    key: Key,
    run: u64,
    task: Arc<Task>,
    holder: String,
    /// Given back when the run ends.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Shared {
    fn running(self: &Arc<Self>, key: &Key, run: u64, task: Arc<Task>, holder: String) -> Running {
        Running { shared: self.clone(), key: key.clone(), run, task, holder, turn: Mutex::default() }
    }
}

impl Running {
    /// Sets the state, unless another run has taken over, and wakes the pass.
    fn set(&self, state: Transfer) {
        if self.keep(state) {
            self.shared.queue.add(self.key.clone());
        }
    }

    fn keep(&self, state: Transfer) -> bool {
        let mut entries = self.shared.entries.lock();
        match entries.get_mut(&self.key).filter(|entry| entry.run == self.run) {
            Some(entry) => {
                entry.state = state;
                true
            }
            None => false,
        }
    }

    fn failed(&self, message: impl Into<String>, permanent: bool) {
        let failure = Failure { message: message.into(), permanent };
        tracing::info!(key = %self.key, message = failure.message, permanent, "transfer failed");
        self.set(Transfer::Failed { failure, at: Timestamp::now() });
    }

    async fn run(self, stop: CancellationToken) {
        let Some(Some((held, job))) = stop.run_until_cancelled(self.prepare()).await else { return };
        let worker = match self.spawn(&job, held, None).await {
            Ok(worker) => worker,
            Err(error) => return self.failed(format!("failed to start the import worker: {error}"), false),
        };
        let mut told = Instant::now();
        let last = self.follow(worker, &stop, |event| match event {
            Event::Progress(progress) => {
                self.keep(Transfer::Running { progress: Some(*progress) });
                if told.elapsed() >= TELL {
                    told = Instant::now();
                    self.shared.queue.add(self.key.clone());
                }
            }
            Event::Stage(stage) => tracing::debug!(key = %self.key, stage, "transfer"),
            Event::Done(_) | Event::Failed(_) => {}
        });
        match last.await {
            Some(Ok(done)) => {
                tracing::info!(key = %self.key, size = done.virtual_size, format = done.format, "transfer done");
                self.set(Transfer::Done { preallocated: done.preallocated });
            }
            Some(Err(Told { message, permanent, .. })) => self.failed(message, permanent),
            None => tracing::debug!(key = %self.key, "transfer stopped"),
        }
    }

    /// What an import needs: its turn, its volume, and its source. An upload is offered, and that is all.
    async fn prepare(&self) -> Option<(Held, Job)> {
        let import = match &self.task.content {
            Content::Import(import) => import.clone(),
            Content::Upload => {
                self.hold().await?;
                self.ready(None);
                return None;
            }
        };
        let turn = self.shared.turns.clone().acquire_owned().await.ok()?;
        self.turn.lock().replace(turn);
        let held = self.hold().await?;
        match job::source(&self.shared.client, &self.key.namespace, &import).await {
            Ok(source) => {
                self.set(Transfer::Running { progress: None });
                let job = job::job(&self.task, &held, source);
                Some((held, job))
            }
            Err(error) => {
                self.failed(job::words(&error), false);
                None
            }
        }
    }

    /// Follows a worker to its end. It, and all it has started, is gone when this returns: before anybody else may write.
    /// `None` if it was to stop.
    async fn follow(
        &self,
        mut worker: Worker,
        stop: &CancellationToken,
        mut tell: impl FnMut(&Event),
    ) -> Option<Result<Done, Told>> {
        let mut last = None;
        while let Some(Some(event)) = stop.run_until_cancelled(worker.next_event()).await {
            tell(&event);
            match event {
                Event::Progress(_) | Event::Stage(_) => {}
                Event::Done(done) => last = Some(Ok(done)),
                Event::Failed(failure) => last = Some(Err(failure)),
            }
        }
        if let Err(error) = worker.kill().await {
            tracing::warn!(key = %self.key, %error, "failed to end a worker");
        }
        last
    }

    /// The volume, once it can be had. `None` if it never can.
    async fn hold(&self) -> Option<Held> {
        loop {
            let engine = self.shared.engine.clone();
            let (volume, holder) = (self.task.volume.clone(), self.holder.clone());
            let held = tokio::task::spawn_blocking(move || engine.hold(&volume, &holder)).await;
            let error = match held {
                Ok(Ok(held)) => return Some(held),
                Ok(Err(error)) => error,
                Err(error) => {
                    self.failed(format!("failed to take the volume: {error}"), false);
                    return None;
                }
            };
            match error.class() {
                Class::Refused(_) => {
                    self.set(Transfer::Waiting { why: error.to_string() });
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                Class::Internal => {
                    self.failed(chain("failed to take the volume", &error), false);
                    return None;
                }
            }
        }
    }

    async fn spawn(&self, job: &Job, held: Held, upload: Option<OwnedFd>) -> std::io::Result<Worker> {
        let scratch = std::fs::File::open(&self.shared.program.scratch)?;
        let descriptors = Descriptors { target: held.directory_or_file, upload, scratch: Some(scratch.into()) };
        Worker::spawn(&self.shared.program.exe, job, descriptors).await
    }

    /// Offers another upload.
    fn ready(&self, last: Option<String>) {
        let failures = self.shared.entries.lock().get(&self.key).map_or(0, |entry| entry.failures);
        self.set(Transfer::Ready { failures, last });
    }

    fn upload_failed(&self, message: String) {
        tracing::info!(key = %self.key, message, "upload failed");
        if let Some(entry) = self.shared.entries.lock().get_mut(&self.key).filter(|entry| entry.run == self.run) {
            entry.failures = entry.failures.saturating_add(1);
        }
        self.ready(Some(message));
    }

    /// Begins to take an upload.
    fn take_upload(self, sink: pipe::Sender, content: OwnedFd, stop: CancellationToken) -> Session {
        let (state, receiver) = watch::channel(Upload::Taking);
        // Ends the upload, but not what follows on it.
        let abort = stop.child_token();
        let (key, shared, run, aborted) = (self.key.clone(), self.shared.clone(), self.run, abort.clone());
        let handle = tokio::spawn(async move {
            let ended = self.feed(content, &state, &aborted).await;
            let last = match ended {
                Ok(preallocated) => {
                    self.set(Transfer::Done { preallocated });
                    Upload::Done
                }
                Err(_) if stop.is_cancelled() => {
                    Upload::Failed { message: "the claim takes no uploads any more".to_owned(), too_large: false }
                }
                Err((message, too_large)) => {
                    self.upload_failed(message.clone());
                    Upload::Failed { message, too_large }
                }
            };
            state.send_replace(last);
        });
        if let Some(entry) = shared.entries.lock().get_mut(&key).filter(|entry| entry.run == run) {
            entry.running = Some(handle);
        }
        Session { sink, state: receiver, abort }
    }

    /// Runs a worker on an upload. Says whether space was allocated, or why it failed and whether for lack of room.
    async fn feed(
        &self,
        content: OwnedFd,
        state: &watch::Sender<Upload>,
        stop: &CancellationToken,
    ) -> Result<bool, (String, bool)> {
        let interrupted = || ("the upload was interrupted".to_owned(), false);
        let held = stop.run_until_cancelled(self.hold()).await.flatten().ok_or_else(interrupted)?;
        let job = job::job(&self.task, &held, disk_images::Source::Upload {});
        let worker = self.spawn(&job, held, Some(content)).await;
        let worker = worker.map_err(|error| (format!("failed to start the import worker: {error}"), false))?;
        let ended = self.follow(worker, stop, |event| {
            if matches!(event, Event::Stage(stage) if stage != job::FIRST_STAGE) {
                state.send_replace(Upload::Converting);
            }
        });
        match ended.await {
            Some(Ok(done)) => Ok(done.preallocated),
            Some(Err(Told { reason, message, .. })) => Err((message, reason == reasons::TOO_LARGE)),
            None => Err(interrupted()),
        }
    }
}

fn pipe_pair() -> std::io::Result<(pipe::Sender, OwnedFd)> {
    let (sender, receiver) = pipe::pipe()?;
    // At best: the default is smaller, and works as well.
    let _ = rustix::pipe::fcntl_setpipe_size(&sender, PIPE);
    Ok((sender, receiver.into_blocking_fd()?))
}

/// An error with its causes.
fn chain(doing: &str, error: &dyn std::error::Error) -> String {
    let mut text = format!("{doing}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

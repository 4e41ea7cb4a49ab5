//! Detects changes of shims and their records immediately, without polling.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hostfs::process::ProcessId;
use informer::WorkQueue;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::paths::{PodPaths, PodUid};

/// Watches shims and their records, and adds changed Pods to the queue.
#[derive(Clone)]
pub(crate) struct ShimWatch {
    queue: WorkQueue<PodUid>,
    inotify: Arc<AsyncFd<OwnedFd>>,
    state: Arc<Mutex<Watched>>,
    shutdown: CancellationToken,
}

#[derive(Default)]
struct Watched {
    records: HashMap<i32, PodUid>,
    shims: HashSet<ProcessId>,
}

impl ShimWatch {
    /// Starts the watch in its own task, which stops with `shutdown`.
    pub(crate) fn start(queue: WorkQueue<PodUid>, shutdown: CancellationToken) -> Result<ShimWatch, Error> {
        let failed = |e: std::io::Error| Error::Io { doing: "watch", path: "Pods".into(), err: e };
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let inotify = Arc::new(readable(fd).map_err(failed)?);
        let watch = ShimWatch { queue, inotify, state: Arc::default(), shutdown };
        tokio::spawn(watch.shutdown.clone().run_until_cancelled_owned(watch.clone().feed()));
        Ok(watch)
    }

    /// Starts watching a Pod. Idempotent. The watch ends with the Pod's directory and its shim.
    pub(crate) fn add(&self, uid: &PodUid, paths: &PodPaths, shim: Option<ProcessId>) {
        // Records are created by renaming.
        match inotify::add_watch(self.inotify.get_ref(), paths.status_dir(), WatchFlags::MOVED_TO) {
            Ok(watch) => drop(self.lock().records.insert(watch, uid.clone())),
            Err(error) => tracing::warn!(%uid, %error, "failed to watch records; polling instead"),
        }
        if let Some(shim) = shim
            && self.lock().shims.insert(shim)
        {
            let (watch, uid) = (self.clone(), uid.clone());
            tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(async move {
                if let Ok(Some(Ok(pidfd))) = shim.open().map(|fd| fd.map(readable)) {
                    let _ = pidfd.readable().await; // an error ends the wait too, and the Pod is checked
                }
                watch.lock().shims.remove(&shim);
                watch.queue.add(uid);
            }));
        }
    }

    async fn feed(self) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else { return };
            let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
            let mut events = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
            // Drain the pending events.
            while let Ok(event) = events.next() {
                let (watch, removed) = (event.wd(), event.events().contains(inotify::ReadFlags::IGNORED));
                let mut watched = self.lock();
                if let Some(uid) = watched.records.get(&watch) {
                    self.queue.add(uid.clone());
                }
                if removed {
                    watched.records.remove(&watch);
                }
            }
            ready.clear_ready();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.state.lock()
    }
}

fn readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor for as long as it lives, and the `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

//! Notices at once when a shim has written something, instead of looking every second.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use informer::WorkQueue;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;
use crate::paths::{PodPaths, PodUid};

/// Watches the records of Pods and puts the Pods that changed into the queue.
#[derive(Clone)]
pub(crate) struct RecordWatch {
    inotify: Arc<AsyncFd<OwnedFd>>,
    pods: Arc<Mutex<HashMap<i32, PodUid>>>,
}

impl RecordWatch {
    pub(crate) fn new() -> Result<RecordWatch, Error> {
        let failed = |e: std::io::Error| Error::Io { doing: "watch", path: "Pods".into(), err: e };
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        // SAFETY: an `OwnedFd` means one open descriptor for as long as it lives, and the `AsyncFd` owns it.
        let inotify =
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(|e| failed(e.into()))?;
        Ok(RecordWatch { inotify: Arc::new(inotify), pods: Arc::default() })
    }

    /// Starts watching a Pod's records; again and again is fine. The watch ends with the directory.
    pub(crate) fn add(&self, uid: &PodUid, paths: &PodPaths) {
        // Records come into being by a rename.
        match inotify::add_watch(self.inotify.get_ref(), paths.status_dir(), WatchFlags::MOVED_TO) {
            Ok(watch) => {
                self.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(watch, uid.clone());
            }
            Err(error) => tracing::warn!(%uid, %error, "records are not watched; changes are noticed later"),
        }
    }

    /// Runs for ever.
    pub(crate) async fn feed(&self, queue: &WorkQueue<PodUid>) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else { return };
            let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
            let mut events = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
            // Until there is nothing more for now.
            while let Ok(event) = events.next() {
                let (watch, removed) = (event.wd(), event.events().contains(inotify::ReadFlags::IGNORED));
                let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(uid) = pods.get(&watch) {
                    queue.add(uid.clone());
                }
                if removed {
                    pods.remove(&watch);
                }
            }
            ready.clear_ready();
        }
    }
}

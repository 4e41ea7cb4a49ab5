//! The mark that a guest has left, in the claim that keeps its TPM and firmware state.
//!
//! Each side of a migration may have a claim of its own. If both Pods vanish before the controller has learned how it
//! ended, a Job looks for the mark in the source's claim: with it the target's claim is the guest's, without it the
//! source's still is. So it is there before QEMU ends here, and never while the guest may go on here.

use std::path::Path;
use std::time::Duration;

use hostfs::atomic;

use crate::error::chain;

/// Where a directory of the claim is mounted, if the guest has such a claim.
const CLAIM: &str = "/run/kubevirt-private/backend-storage-meta";
const MARK: &str = "/run/kubevirt-private/backend-storage-meta/migrated";
/// A file server that hangs keeps nobody waiting for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The guest runs at the target, whatever comes.
pub(super) async fn leave() {
    change("mark the guest as gone", || atomic::write(MARK, b"")).await;
}

/// A mark that an earlier migration has left in a claim of both sides says nothing about this one.
pub(super) async fn wipe() {
    change("take an old mark away", || atomic::remove(MARK)).await;
}

/// What fails is only told: the controller needs the mark when nobody is left to be asked, and not before.
async fn change(what: &'static str, change: fn() -> hostfs::Result<()>) {
    let work = tokio::task::spawn_blocking(move || if Path::new(CLAIM).is_dir() { change() } else { Ok(()) });
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Err(_) => tracing::warn!("cannot {what} within {} s", PATIENCE.as_secs()),
    }
}

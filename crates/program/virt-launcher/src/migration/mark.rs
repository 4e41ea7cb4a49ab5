//! The mark that a guest has left, in the claim that keeps its TPM and firmware state.
//!
//! Each side of a migration may have a claim of its own. If both Pods vanish before the controller has learned how it
//! ended, a Job looks for the mark in the source's claim: with it the target's claim is the guest's, without it the
//! source's still is. So it is there before QEMU ends here, and never while the guest may go on here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hostfs::atomic;
use launcher_contract::paths::{MIGRATED_MARK, STATE_META};

use crate::error::chain;

/// A file server that hangs keeps nobody waiting for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The guest runs at the target, whatever comes.
pub(super) async fn leave() {
    change("mark the guest as gone", || atomic::write(mark(), b"")).await;
}

/// A mark that an earlier migration has left in a claim of both sides says nothing about this one.
pub(super) async fn wipe() {
    change("take an old mark away", || atomic::remove(mark())).await;
}

fn mark() -> PathBuf {
    Path::new(STATE_META).join(MIGRATED_MARK)
}

/// What fails is only told: the controller needs the mark when nobody is left to be asked, and not before.
async fn change(what: &'static str, change: fn() -> hostfs::Result<()>) {
    let work = tokio::task::spawn_blocking(move || if Path::new(STATE_META).is_dir() { change() } else { Ok(()) });
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Err(_) => tracing::warn!("cannot {what} within {} s", PATIENCE.as_secs()),
    }
}

//! The mark that a guest has migrated away, in the claim with its TPM and firmware state.
//!
//! Each side of a migration may have its own claim. If both Pods vanish before the controller has learned the outcome,
//! a Job looks for the mark in the source's claim: with it the target's claim has the guest's state, without it the
//! source's still does. So the mark is written before QEMU exits here, and never while the guest may continue here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hostfs::atomic;
use launcher_contract::paths::{MIGRATED_MARK, STATE_META};

use crate::error::chain;

/// Timeout for a hung file server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Called when the guest is certain to run at the target.
pub(super) async fn leave() {
    change("mark the guest as gone", || atomic::write(mark(), b"")).await;
}

/// Removes the mark of an earlier migration from a claim shared by both sides: it says nothing about this one.
pub(super) async fn wipe() {
    change("remove the mark of an earlier migration", || atomic::remove(mark())).await;
}

fn mark() -> PathBuf {
    Path::new(STATE_META).join(MIGRATED_MARK)
}

/// Failures are only logged: the controller needs the mark only if neither side can be asked.
async fn change(what: &'static str, change: fn() -> hostfs::Result<()>) {
    let work = tokio::task::spawn_blocking(move || if Path::new(STATE_META).is_dir() { change() } else { Ok(()) });
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "cannot {what}"),
        Err(_) => tracing::warn!("cannot {what} within {} s", PATIENCE.as_secs()),
    }
}

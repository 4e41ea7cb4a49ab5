//! Back-off between starts that keep failing.
//!
//! The n-th failure in a row is followed by a pause of 10·n² seconds plus up to half of that, at most 300. The jitter
//! spreads VMs that failed together; it is derived from the failed VMI's UID.

use std::time::Duration;

use api::v1::{
    RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase as Phase,
    VirtualMachineStartFailure,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;

const BASE_SECONDS: i64 = 10;
const LONGEST_SECONDS: i64 = 300;

/// The run strategies under which failed starts are counted.
pub(super) fn counts_failures(strategy: &RunStrategy) -> bool {
    matches!(strategy, RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once)
}

/// How often starting has failed in a row.
pub(super) fn failed_starts(vm: &VirtualMachine) -> i64 {
    let failure = vm.status.as_ref().and_then(|status| status.start_failure.as_ref());
    failure.and_then(|failure| failure.consecutive_fail_count).unwrap_or(0)
}

/// The time left before the next start.
pub(super) fn left(failure: &VirtualMachineStartFailure, now: &Time) -> Option<Duration> {
    let retry = failure.retry_after_timestamp.as_ref()?;
    let left = retry.0.duration_since(now.0);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// The updated record of failed starts.
pub(super) fn record(
    old: Option<&VirtualMachineStartFailure>,
    strategy: &RunStrategy,
    vmi: Option<&VirtualMachineInstance>,
    now: &Time,
) -> Option<VirtualMachineStartFailure> {
    if !counts_failures(strategy) {
        return None;
    }
    let Some(vmi) = vmi else { return old.cloned() };
    if has_run(vmi) {
        return None;
    }
    let uid = meta::uid(&vmi.metadata);
    let counted = old.and_then(|old| old.last_failed_vmi_uid.as_deref()) == Some(uid);
    if !vmi.is_final() || counted {
        return old.cloned();
    }
    let count = old.and_then(|old| old.consecutive_fail_count).unwrap_or(0).saturating_add(1);
    let pause = jiff::SignedDuration::from_secs(pause_seconds(count, uid));
    Some(VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmi_uid: Some(uid.to_owned()),
        retry_after_timestamp: now.0.checked_add(pause).ok().map(Time),
    })
}

/// Whether the guest ever ran. The phase transition timestamps count, too: we may have missed the moment.
fn has_run(vmi: &VirtualMachineInstance) -> bool {
    let transitions = vmi.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    vmi.is_running() || transitions.into_iter().any(|t| t.phase.as_ref() == Some(&Phase::Running))
}

pub(super) fn pause_seconds(count: i64, uid: &str) -> i64 {
    // Larger counts reach the maximum anyway, and the square does not overflow.
    let count = count.clamp(1, 100);
    let pause = BASE_SECONDS * count * count;
    let spread = i64::from(fnv1a(uid)) % (pause / 2 + 1);
    (pause + spread).min(LONGEST_SECONDS)
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

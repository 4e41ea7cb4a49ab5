//! The phase machine. See the diagram in `decide.rs`.

use api::v1::Between;
use api::v1::VirtualMachineInstanceMigrationState as State;
use api::v1::VirtualMachineInstancePhase as Phase;
use api::{labels, reasons};
use k8s_openapi::api::core::v1::Pod;

use super::volumes;
use super::world::World;
use crate::claims;
use crate::{Note, SyncError, flight, meta, migration, pods};

/// The next transition of the VMI.
#[derive(Debug, PartialEq)]
pub(super) enum Move {
    Stay,
    To(Phase),
    /// The launcher is ready: this write hands the VMI over to virt-handler.
    HandOver,
    /// To Failed, with an event.
    Fail(Note),
    /// To Failed, if a live read confirms that there is no Pod.
    FailIfPodGone(Note),
    /// Back to waiting for a guest: this attempt to receive one is over.
    WaitAgain,
    /// The same, if a live read confirms that there is no Pod.
    WaitAgainIfPodGone,
    /// Removes the finalizers, if a live read confirms that there is no Pod.
    Release,
    /// Stays, for this reason, which is already reported elsewhere.
    Blocked(SyncError),
    /// Stays, for this reason, which needs an event.
    Refused(SyncError),
}

pub(super) fn next(w: &World) -> Move {
    let deleting = w.vmi.is_marked_for_deletion();
    match w.vmi.phase() {
        None | Some(Phase::Pending) => from_pending(w),
        Some(Phase::Scheduling) => from_scheduling(w),
        Some(Phase::Scheduled) => from_scheduled(w),
        Some(Phase::Running) => from_running(w),
        Some(Phase::Succeeded | Phase::Failed) if w.pods.is_empty() && !awaits_outcome(w) => Move::Release,
        Some(Phase::Succeeded | Phase::Failed) => Move::Stay,
        Some(Phase::WaitingForSync | Phase::Unknown | Phase::Other(_)) if deleting => {
            if w.pods.is_empty() {
                Move::Release
            } else {
                Move::Stay
            }
        }
        Some(Phase::WaitingForSync) => from_waiting(w),
        Some(other @ (Phase::Unknown | Phase::Other(_))) => {
            let message = format!("unknown phase {other}; delete the instance to continue");
            Move::Refused(SyncError::new(reasons::UNKNOWN_PHASE, message))
        }
    }
}

/// Its migration has yet to determine which of two claims holds the guest's state, and needs the VMI for that.
fn awaits_outcome(w: &World) -> bool {
    let state = w.migration_state().filter(|state| keeps_apart(state));
    state.is_some() && w.migrations.iter().any(|other| migration::owns(other, state) && !other.is_final())
}

/// The migration that determines the same and is not in the cache: it may be over and gone, or the cache may be late.
pub(super) fn unseen_arbiter(w: &World) -> Option<&str> {
    let state = w.migration_state().filter(|state| keeps_apart(state))?;
    let seen = w.migrations.iter().any(|other| migration::owns(other, Some(state)));
    state.migration_uid.as_deref().filter(|_| !seen)
}

/// Whether source and target have a claim of their own for the guest's state.
fn keeps_apart(state: &State) -> bool {
    let claims = [&state.source_persistent_state_pvc_name, &state.target_persistent_state_pvc_name];
    claims[0].is_some() && claims[1].is_some() && claims[0] != claims[1]
}

fn from_pending(w: &World) -> Move {
    if w.launcher_pod().is_some() {
        return Move::To(Phase::Scheduling);
    }
    if w.vmi.is_marked_for_deletion() {
        return Move::Fail(Note::normal(reasons::SUCCESSFUL_DELETE, "Deleted before a launcher Pod was created"));
    }
    let data_volumes = volumes::data_volumes(w);
    if let Some(failed) = volumes::failed_data_volume(&data_volumes) {
        let message = format!("A volume cannot be populated: {}", claims::waiting(failed));
        return Move::Fail(Note::warning(reasons::FAILED_DATA_VOLUME_IMPORT, message));
    }
    if w.vmi.receives() && !w.has_target_node() {
        return Move::To(Phase::WaitingForSync);
    }
    match w.current_pod() {
        Some(temporary) if volumes::waits_for_consumer(&data_volumes) && pods::is_failed_or_going_down(temporary) => {
            Move::Fail(Note::warning(reasons::POD_TERMINATING, pods::obituary(temporary)))
        }
        None if w.launched => gone("Pending"),
        _ => Move::To(Phase::Pending),
    }
}

fn from_scheduling(w: &World) -> Move {
    let (deleting, receiver) = (w.vmi.is_marked_for_deletion(), w.vmi.receives());
    let Some(pod) = w.launcher_pod() else {
        return if receiver { Move::WaitAgainIfPodGone } else { gone("Scheduling") };
    };
    if pods::is_down_or_going_down(pod) {
        return match (receiver, deleting) {
            (true, _) => Move::WaitAgain,
            (false, true) => Move::To(Phase::Failed),
            (false, false) => Move::Fail(Note::warning(reasons::POD_TERMINATING, pods::obituary(pod))),
        };
    }
    if receiver && !is_of_current_attempt(w, pod) {
        return Move::Stay;
    }
    if pods::is_ready_for_handover(pod) && !deleting {
        return match missing_guarantee(w, pod) {
            Some(error) => Move::Refused(error),
            None => Move::HandOver,
        };
    }
    match pods::blocked_container(pod) {
        Some((reason, message)) => Move::Blocked(SyncError { reason, message }),
        None => Move::Stay,
    }
}

/// Whether the migration that a receiver's Pod was created for may still bring the guest. The end of a Pod can show later than that
/// of its migration.
fn is_of_current_attempt(w: &World, pod: &Pod) -> bool {
    let Some(job) = machinery::meta::label(&pod.metadata, labels::MIGRATION_JOB_UID) else { return true };
    let own = w.migrations.iter().find(|other| meta::uid(&other.metadata) == job);
    own.is_some_and(|migration| !migration.is_final())
}

fn from_scheduled(w: &World) -> Move {
    match (w.launcher_pod(), w.vmi.receives()) {
        (None, false) => gone("Scheduled"),
        (None, true) => Move::WaitAgainIfPodGone,
        (Some(pod), true) if pods::is_down(pod) || migration_failed(w) => Move::WaitAgain,
        // virt-handler would wait minutes for its socket. A launcher that succeeded has reported how its guest ended.
        (Some(pod), false) if pods::has_failed(pod) => {
            Move::Fail(Note::warning(reasons::POD_TERMINATING, pods::obituary(pod)))
        }
        (Some(_), _) => Move::Stay,
    }
}

fn from_running(w: &World) -> Move {
    let Some(pod) = w.launcher_pod() else {
        // The guest may have left the Pod before it disappeared: the migration target must be resolved first.
        let landing = flight::landing(&w.vmi, w.pods.iter().map(AsRef::as_ref));
        return if landing.is_some() { Move::Stay } else { gone("Running") };
    };
    let left = w.migration_state().is_some_and(|state| {
        let moved = state.completed == Some(true) && state.failed != Some(true);
        moved && state.between() == Some(Between::Sends)
    });
    if left && pods::is_succeeded(pod) { Move::To(Phase::Succeeded) } else { Move::Stay }
}

fn from_waiting(w: &World) -> Move {
    // A Pod that is being deleted would bring us back here at once, repeatedly, until it is gone.
    if w.launcher_pod().is_some_and(|pod| !pods::is_down_or_going_down(pod)) && !migration_failed(w) {
        return Move::To(Phase::Scheduling);
    }
    let message = "waiting to receive a guest: needs a migration with spec.receive, and one with spec.sendTo on \
                   the other side";
    Move::Blocked(SyncError::new(reasons::WAITING_FOR_SYNC, message))
}

fn migration_failed(w: &World) -> bool {
    w.migration_state().is_some_and(|state| state.failed == Some(true))
}

fn gone(phase: &str) -> Move {
    let message = format!("The launcher Pod disappeared while the instance was {phase}");
    Move::FailIfPodGone(Note::warning(reasons::POD_NOT_EXISTS, message))
}

/// Dedicated CPUs need a Pod with QoS class Guaranteed; a LimitRange or a webhook may have changed that.
fn missing_guarantee(w: &World, pod: &Pod) -> Option<SyncError> {
    let dedicated = w.vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.dedicated_cpu_placement) == Some(true);
    let class = pods::qos_class(pod).unwrap_or("unknown");
    (dedicated && class != "Guaranteed").then(|| {
        let message = format!(
            "dedicatedCpuPlacement needs a Pod of QoS class Guaranteed, and {} is {class}",
            meta::name(&pod.metadata)
        );
        SyncError::new(reasons::FAILED_GUARANTEE_RESOURCES, message)
    })
}

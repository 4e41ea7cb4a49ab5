//! The phase machine. The drawing is in `decide.rs`.

use api::reasons;
use api::v1::VirtualMachineInstancePhase as Phase;

use super::world::World;
use crate::{Note, SyncError, pods};

/// Where the instance goes from here.
#[derive(Debug, PartialEq)]
pub(super) enum Move {
    Stay,
    To(Phase),
    /// The launcher is ready: this write gives the instance to the node agent.
    HandOver,
    /// To Failed, with what to tell the user.
    Fail(Note),
    /// To Failed, if a live look confirms that there is no Pod.
    FailIfPodGone(Note),
    /// The end: finalizers go, if a live look confirms that there is no Pod.
    Release,
    /// Stays, and this is why. Somebody else has told the user already.
    Blocked(SyncError),
    /// Stays, and this is why; it deserves an event.
    Refused(SyncError),
}

pub(super) fn next(w: &World) -> Move {
    let pod = w.current_pod();
    let deleting = w.vmi.is_marked_for_deletion();
    match w.vmi.phase() {
        None | Some(Phase::Pending) => match pod {
            Some(_) => Move::To(Phase::Scheduling),
            None if deleting => {
                Move::Fail(Note::normal(reasons::SUCCESSFUL_DELETE, "Deleted before a launcher Pod was created"))
            }
            None => Move::To(Phase::Pending),
        },
        Some(Phase::Scheduling) => match pod {
            None => gone("Scheduling"),
            Some(pod) if pods::is_down_or_going_down(pod) && deleting => Move::To(Phase::Failed),
            Some(pod) if pods::is_down_or_going_down(pod) => {
                Move::Fail(Note::warning(reasons::POD_TERMINATING, pods::obituary(pod)))
            }
            Some(pod) if pods::is_ready_for_handover(pod) && !deleting => match missing_guarantee(w) {
                Some(error) => Move::Refused(error),
                None => Move::HandOver,
            },
            Some(pod) => match pods::blocked_container(pod) {
                Some((reason, message)) => Move::Blocked(SyncError { reason, message }),
                None => Move::Stay,
            },
        },
        Some(Phase::Scheduled) if pod.is_none() => gone("Scheduled"),
        Some(Phase::Running) if pod.is_none() => gone("Running"),
        Some(Phase::Scheduled | Phase::Running) => Move::Stay,
        Some(Phase::Succeeded | Phase::Failed) if w.pods.is_empty() => Move::Release,
        Some(Phase::Succeeded | Phase::Failed) => Move::Stay,
        Some(Phase::WaitingForSync | Phase::Unknown | Phase::Other(_)) if deleting && w.pods.is_empty() => {
            Move::Release
        }
        Some(other @ (Phase::WaitingForSync | Phase::Unknown | Phase::Other(_))) => {
            let message = format!("phase {other} is not one this controller can act on; delete the instance to go on");
            Move::Refused(SyncError::new("UnknownPhase", message))
        }
    }
}

fn gone(phase: &str) -> Move {
    let message = format!("The launcher Pod disappeared while the instance was {phase}");
    Move::FailIfPodGone(Note::warning(reasons::POD_NOT_EXISTS, message))
}

/// Pinned CPUs need a Pod with guaranteed resources; a limit range or a webhook may have taken that away.
fn missing_guarantee(w: &World) -> Option<SyncError> {
    let dedicated = w.vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.dedicated_cpu_placement) == Some(true);
    let class = w.current_pod().and_then(pods::qos_class).unwrap_or("unknown");
    (dedicated && class != "Guaranteed").then(|| {
        let message = format!("dedicatedCpuPlacement needs a Pod of QoS class Guaranteed, and this one is {class}");
        SyncError::new(reasons::FAILED_GUARANTEE_RESOURCES, message)
    })
}

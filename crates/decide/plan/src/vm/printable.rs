//! The VM's `printableStatus`: a table whose first true row wins.

use api::v1::{
    RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase as Phase,
    VirtualMachinePrintableStatus as Status,
};
use api::{conditions, reasons};

use super::backoff::{counts_failures, failed_starts};
use super::data_volumes;
use super::strategy::is_set_to_start;
use super::world::World;
use crate::claims::claim_name;

/// `vm` is the VM with the status computed in this pass.
pub(super) fn status(w: &World, vm: &VirtualMachine, strategy: &RunStrategy) -> Status {
    let vmi = w.instance();
    let phase = vmi.and_then(VirtualMachineInstance::phase);
    let ended = vmi.is_some_and(VirtualMachineInstance::is_final);
    let paused = vmi.is_some_and(|vmi| vmi.has_condition(conditions::PAUSED));
    let running = phase == Some(&Phase::Running);
    let none = vmi.is_none() && !w.expects_creation();
    let going = vmi.is_some_and(|vmi| vmi.is_marked_for_deletion() || w.expects_deletion());
    let coming = vmi.is_some() && matches!(phase, None | Some(Phase::Pending | Phase::Scheduling | Phase::Scheduled));
    let unsynced = |reason: &str| has_false(vmi, conditions::SYNCHRONIZED, reason);
    // Regardless of the current run strategy: the VMI does not start a guest of its own.
    let receives = phase == Some(&Phase::WaitingForSync) || (*strategy == RunStrategy::WaitAsReceiver && vmi.is_none());
    let table = [
        (Status::Terminating, vm.is_marked_for_deletion()),
        (Status::Stopping, !ended && going),
        (Status::Migrating, !ended && vmi.is_some_and(|vmi| w.is_migrating(vmi))),
        (Status::Paused, running && paused),
        (Status::Running, running),
        (Status::ErrorPvcNotFound, unsynced(reasons::FAILED_PVC_NOT_FOUND)),
        (Status::DataVolumeError, data_volumes::has_error(w)),
        (Status::ErrorUnschedulable, has_false(vmi, conditions::POD_SCHEDULED, reasons::UNSCHEDULABLE)),
        (Status::Provisioning, data_volumes::is_provisioning(w)),
        (Status::WaitingForVolumeBinding, is_set_to_start(w, strategy) && has_unbound_claim(w)),
        (Status::ErrImagePull, unsynced(reasons::ERR_IMAGE_PULL)),
        (Status::ImagePullBackOff, unsynced(reasons::IMAGE_PULL_BACK_OFF)),
        (Status::Starting, w.expects_creation() || coming),
        (Status::CrashLoopBackOff, (none || ended) && failed_starts(vm) > 0 && counts_failures(strategy)),
        (Status::Stopped, none || ended),
        (Status::WaitingForReceiver, receives),
    ];
    table.into_iter().find(|(_, holds)| *holds).map_or(Status::Unknown, |(status, _)| status)
}

fn has_false(vmi: Option<&VirtualMachineInstance>, type_: &str, reason: &str) -> bool {
    vmi.and_then(|vmi| vmi.condition(type_))
        .is_some_and(|condition| condition.is_false() && condition.reason() == reason)
}

/// A claim of the template exists and is not bound yet.
fn has_unbound_claim(w: &World) -> bool {
    let names = w.vm.spec.template.spec.volumes.iter().filter_map(claim_name);
    let mut claims = names.filter_map(|name| w.claims.claim(name));
    claims.any(|claim| claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound"))
}

//! The virtual machine's state in one word: a table whose first true row wins.

use api::v1::{
    RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase as Phase,
    VirtualMachinePrintableStatus as Status,
};
use api::{conditions, reasons};

use super::backoff::{counts_failures, failed_starts};
use super::world::World;

/// `vm` is the virtual machine with the status of this pass.
pub(super) fn status(w: &World, vm: &VirtualMachine, strategy: &RunStrategy) -> Status {
    let vmi = w.instance();
    let phase = vmi.and_then(VirtualMachineInstance::phase);
    let ended = vmi.is_some_and(VirtualMachineInstance::is_final);
    let paused = vmi.is_some_and(|vmi| vmi.has_condition(conditions::PAUSED));
    let running = phase == Some(&Phase::Running);
    let absent_or_ended = vmi.is_none() || ended;
    let deleting = vmi.is_some_and(VirtualMachineInstance::is_marked_for_deletion);
    let starting = vmi.is_some() && matches!(phase, None | Some(Phase::Pending | Phase::Scheduling | Phase::Scheduled));
    let unsynced = |reason: &str| has_false(vmi, conditions::SYNCHRONIZED, reason);
    let table = [
        (Status::Terminating, vm.is_marked_for_deletion()),
        (Status::Stopping, !ended && deleting),
        (Status::Migrating, vmi.is_some_and(|vmi| is_migrating(vmi, w))),
        (Status::Paused, running && paused),
        (Status::Running, running),
        (Status::ErrorUnschedulable, has_false(vmi, conditions::POD_SCHEDULED, reasons::UNSCHEDULABLE)),
        (Status::ErrImagePull, unsynced(reasons::ERR_IMAGE_PULL)),
        (Status::ImagePullBackOff, unsynced(reasons::IMAGE_PULL_BACK_OFF)),
        (Status::Starting, starting),
        (Status::CrashLoopBackOff, absent_or_ended && failed_starts(vm) > 0 && counts_failures(strategy)),
        (Status::Stopped, absent_or_ended),
    ];
    table.into_iter().find(|(_, holds)| *holds).map_or(Status::Unknown, |(status, _)| status)
}

fn has_false(vmi: Option<&VirtualMachineInstance>, type_: &str, reason: &str) -> bool {
    vmi.and_then(|vmi| vmi.condition(type_))
        .is_some_and(|condition| condition.is_false() && condition.reason() == reason)
}

fn is_migrating(vmi: &VirtualMachineInstance, w: &World) -> bool {
    let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()) else { return false };
    let reached = |time: &Option<_>| time.as_ref().is_some_and(|time| *time <= w.now);
    reached(&state.start_timestamp) && !reached(&state.end_timestamp)
}

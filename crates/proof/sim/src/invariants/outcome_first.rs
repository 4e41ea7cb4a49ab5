//! 12: the VM's finalizer is removed from a VMI only after the VM has recorded how the VMI ended, or if there is no
//! such VM.

use api::finalizers::VIRTUAL_MACHINE_CONTROLLER;
use api::v1::{RunStrategy, VirtualMachineInstancePhase as Phase, VirtualMachinePrintableStatus as Printable};
use machinery::meta::{has_finalizer, is_deleting};

use super::support::{ensure, is_receiver, name, owner_vm, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "outcome_first"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let left = has_finalizer(&was.metadata, VIRTUAL_MACHINE_CONTROLLER)
            && !has_finalizer(&is.metadata, VIRTUAL_MACHINE_CONTROLLER);
        let Some(vm) = owner_vm(scene.server, is).filter(|_| left) else { return Ok(()) };
        // A VMI whose guest never came has no outcome.
        let never = is_receiver(is) && is_deleting(&is.metadata) && is.phase() == Some(&Phase::WaitingForSync);
        if never {
            return Ok(());
        }
        ensure(is.is_final(), || format!("the finalizer left instance {} before it ended", name(is)))?;
        let status = vm.status.clone().unwrap_or_default();
        let shows_running = matches!(status.printable_status, Some(Printable::Running | Printable::Paused | Printable::Starting));
        ensure(!shows_running, || {
            format!("the finalizer left instance {} while the virtual machine is shown as {:?}", name(is), status.printable_status)
        })?;
        let ran = is.status.iter().flat_map(|status| &status.phase_transition_timestamps).any(|step| step.phase == Some(Phase::Running));
        let counted = matches!(status.run_strategy, Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once));
        let recorded = status.start_failure.and_then(|failure| failure.last_failed_vmi_uid);
        ensure(ran || !counted || vm.is_marked_for_deletion() || recorded.as_deref() == Some(uid(&is.metadata)), || {
            format!("the finalizer left instance {}, which never ran, before that was counted", name(is))
        })
    }
}

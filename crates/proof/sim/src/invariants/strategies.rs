//! 23: a VM starts only when its run strategy says so: Halted never, Manual on request, RerunOnFailure on request or
//! when it was just set; and never while the last VMI exists.

use api::v1::{RunStrategy, StateChangeRequestAction as Action, VirtualMachine};
use machinery::meta::is_deleting;

use super::support::{cached_vm, ensure, is_receiver, new_vmi, pass_of};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

pub(super) fn head(vm: &VirtualMachine) -> Option<&api::v1::VirtualMachineStateChangeRequest> {
    vm.status.as_ref().and_then(|status| status.state_change_requests.first())
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "strategies"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(vmi) = new_vmi(change) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::VM) else { return Ok(()) };
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        let Some(vm) = cached_vm(scene, pass) else { return Err(format!("instance {name} for no virtual machine")) };
        ensure(!is_deleting(&vm.metadata), || format!("{name} is being deleted, yet started"))?;
        let asked = head(&vm).is_some_and(|request| request.action == Action::Start);
        let allowed = match vm.run_strategy() {
            Ok(RunStrategy::Always | RunStrategy::Once) => true,
            Ok(RunStrategy::WaitAsReceiver) => is_receiver(vmi),
            Ok(RunStrategy::Manual) => asked,
            Ok(RunStrategy::RerunOnFailure) => {
                let known = vm.status.as_ref().and_then(|status| status.run_strategy.as_ref());
                asked || known != Some(&RunStrategy::RerunOnFailure)
            }
            _ => false,
        };
        ensure(allowed, || format!("{name} is {:?} and was not asked to start, yet it was", vm.spec.run_strategy))
    }
}

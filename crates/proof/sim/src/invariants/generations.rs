//! 30: desired and observed generation differ only while the template differs from the one the instance was started with.

use virt_controller::Stores;

use super::support::{ensure, name, owner_vm};
use super::{Invariant, Scene, Verdict};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "generations"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all().filter(|vmi| vmi.is_running()) {
            let Some(vm) = owner_vm(scene.server, vmi) else { continue };
            if vmi.status.as_ref().is_none_or(|status| status.virtual_machine_revision_name.is_none()) {
                continue;
            }
            let status = vm.status.clone().unwrap_or_default();
            let same = vm.spec.template.spec.volumes.len() == vmi.spec.volumes.len()
                && vm.spec.template.spec.termination_grace_period_seconds == vmi.spec.termination_grace_period_seconds;
            ensure(status.desired_generation == vm.metadata.generation, || {
                format!("{}: generation {:?}, desired {:?}", name(vmi), vm.metadata.generation, status.desired_generation)
            })?;
            // A plugged volume is in both; it makes the template another one than that of the start.
            let plugged = vmi.spec.volumes.len() > 1;
            ensure(plugged || (status.observed_generation == status.desired_generation) == same, || {
                format!("{}: observed {:?}, desired {:?}", name(vmi), status.observed_generation, status.desired_generation)
            })?;
        }
        Ok(())
    }
}

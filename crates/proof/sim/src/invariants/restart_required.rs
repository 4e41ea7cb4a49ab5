//! 28: a running VM requires a restart exactly if its template differs from the one it was started with. (The simulated
//! user only makes changes that cannot be applied live.)

use virt_controller::Stores;

use super::support::{ensure, name, own_revision, owner_vm};
use super::{Invariant, Scene, Verdict};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "restart_required"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all().filter(|vmi| vmi.is_running()) {
            let Some(vm) = owner_vm(scene.server, vmi) else { continue };
            // There is no recorded template for an adopted VMI.
            if own_revision(vm, vmi).is_none() {
                continue;
            }
            let differs = vm.spec.template.spec.termination_grace_period_seconds != vmi.spec.termination_grace_period_seconds;
            let asks = vm.condition("RestartRequired").is_some_and(|condition| condition.is_true());
            ensure(asks == differs, || format!("{}: the template differs is {differs}, a restart is asked for is {asks}", name(vmi)))?;
        }
        Ok(())
    }
}

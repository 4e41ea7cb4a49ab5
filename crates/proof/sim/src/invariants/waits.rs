//! Every wait is explained (the fifth of the design's decisions): at rest, whatever does not run has a condition with a
//! reason, and VMIs a message as well.

use api::conditions;
use informer::Key;
use virt_controller::Stores;

use super::support::{ensure, name, phase};
use super::{Invariant, Scene, Verdict};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for vmi in tables.vmis.all().filter(|vmi| !vmi.is_running() && !vmi.is_final()) {
            let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
            let told = conditions.filter(|condition| !condition.reason().is_empty() && !condition.message().is_empty()).count();
            ensure(told > 0, || format!("instance {} waits in phase {} and does not say why", name(vmi), phase(vmi)))?;
        }
        for vm in tables.vms.all() {
            let ready = vm.condition(conditions::READY);
            let told = ready.is_some_and(|ready| ready.is_true() || !ready.reason().is_empty());
            let running = tables.vmis.get(&Key::of(vm.as_ref())).is_some_and(|vmi| vmi.is_running());
            ensure(told || running, || format!("{:?} is not ready and does not say why", vm.metadata.name))?;
        }
        Ok(())
    }
}

//! 30: desired and observed generation differ only while the template differs from the one the VMI was started with.

use informer::Key;
use virt_controller::Stores;

use super::support::{ensure, name, own_revision, owner_vm};
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
            let Some(revision) = own_revision(vm, vmi) else { continue };
            let status = vm.status.clone().unwrap_or_default();
            let key = Key::new(vm.metadata.namespace.clone().unwrap_or_default(), revision);
            let kept = scene.server.tables.revisions.get(&key).and_then(|revision| revision.data.clone());
            let template = serde_json::to_value(&vm.spec.template).unwrap_or_default();
            let same = kept.is_some_and(|kept| kept.0["spec"]["template"] == template);
            ensure(status.desired_generation == vm.metadata.generation, || {
                format!("{}: generation {:?}, desired {:?}", name(vmi), vm.metadata.generation, status.desired_generation)
            })?;
            ensure((status.observed_generation == status.desired_generation) == same, || {
                format!("{}: observed {:?}, desired {:?}", name(vmi), status.observed_generation, status.desired_generation)
            })?;
        }
        Ok(())
    }
}

//! 31: a template without a firmware UUID gets one derived from its name, and keeps it.

use virt_controller::Stores;

use super::support::{ensure, vm_change};
use super::{Invariant, Scene, Verdict};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

fn uuid(vm: &api::v1::VirtualMachine) -> Option<String> {
    vm.spec.template.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone())
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "firmware"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vm_change(change) else { return Ok(()) };
        ensure(uuid(was).is_none() || uuid(was) == uuid(is), || {
            format!("{:?}: firmware UUID {:?} became {:?}", is.metadata.name, uuid(was), uuid(is))
        })
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all().filter(|vmi| vmi.is_running()) {
            let Some(vm) = super::support::owner_vm(scene.server, vmi) else { continue };
            let own = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
            ensure(uuid(vm).is_some() && (own.is_none() || own == uuid(vm)), || {
                format!("{:?}: firmware UUID {:?}, the instance has {own:?}", vm.metadata.name, uuid(vm))
            })?;
        }
        Ok(())
    }
}

//! Utility volumes: plugged in for a backup and unplugged afterwards.

use std::sync::Arc;

use api::v1::{UtilityVolume, VirtualMachineInstance};
use informer::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery::meta::is_deleting;
use virt_controller::api::Part;

use super::build;
use crate::engine::Sim;
use crate::hub::lock;
use crate::script::{NAMESPACE, utility_name, vm_name};
use crate::server::{Server, Writer};

/// Plugs one in, unless the nodes are migrating the guest or there is one already.
pub(super) fn plug_utility(server: &mut Server, vm: u8) -> Option<Arc<VirtualMachineInstance>> {
    let key = Key::new(NAMESPACE, vm_name(vm));
    let vmi = server.lookup::<VirtualMachineInstance>(&key).filter(|vmi| vmi.is_running())?;
    let moving = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let busy = moving.is_some_and(|state| !state.is_over());
    if busy || is_deleting(&vmi.metadata) || !vmi.spec.utility_volumes.is_empty() {
        return None;
    }
    let claim_name = utility_name(vm);
    if server.lookup::<PersistentVolumeClaim>(&Key::new(NAMESPACE, &claim_name)).is_none() {
        server.create(Writer::User, build::claim(&claim_name)).ok()?;
    }
    let mut new = (*vmi).clone();
    new.spec.utility_volumes =
        vec![UtilityVolume { claim_name, name: "utility".to_owned(), ..UtilityVolume::default() }];
    server.update(Writer::User, Part::Object, new).ok()
}

impl Sim {
    /// It is no longer needed.
    pub(super) fn end_utility(&mut self, key: &Key, uid: &str) {
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, uid) else { return };
        let mut new = (*vmi).clone();
        new.spec.utility_volumes.clear();
        lock(&self.hub).server.update(Writer::User, Part::Object, new).expect("written right after it was read");
    }
}

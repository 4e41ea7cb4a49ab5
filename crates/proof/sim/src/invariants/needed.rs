//! 52, the rest: an evacuation migrates a guest only while it is on that node and marked for evacuation. Its creator
//! may not have seen that the guest had left: then no target Pod is created, and an existing one is not handed off. The
//! same holds for a canceled evacuation, however late the cancel is seen; in the settled state its migration has ended.

use api::annotations::EVACUATION_MIGRATION;
use api::labels;
use api::v1::VirtualMachineInstance;
use machinery::meta::{annotation, controller_of, label};
use virt_controller::Stores;

use super::support::{ensure, instance_key, migration_state, name, new_pod, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::kinds::uid;
use crate::server::{Change, Server};

#[derive(Default)]
pub(crate) struct Rule;

/// The node that the migration with this UID evacuates.
fn emptied(server: &Server, migration: &str) -> Option<String> {
    let found = server.tables.migrations.all().find(|found| uid(&found.metadata) == migration)?;
    annotation(&found.metadata, EVACUATION_MIGRATION).map(str::to_owned)
}

/// The node from which the guest is to be evacuated.
fn mark(vmi: &VirtualMachineInstance) -> Option<String> {
    vmi.status.as_ref()?.evacuation_node_name.clone()
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "needed"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Some((Some(was), is)) = vmi_change(change) {
            let owner = |vmi| migration_state(vmi).and_then(|state| state.migration_uid.clone());
            let Some(owner) = owner(is).filter(|new| owner(was).as_ref() != Some(new)) else { return Ok(()) };
            let at = was.status.as_ref().and_then(|status| status.node_name.clone());
            let from = emptied(scene.server, &owner);
            ensure(from.is_none() || from == at, || {
                format!("VMI {} is evacuated from {from:?}, but is on {at:?}", name(is))
            })?;
            return ensure(from.is_none() || from == mark(was), || {
                format!("VMI {} is evacuated from {from:?}, but that was canceled", name(is))
            });
        }
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let from = label(&pod.metadata, labels::MIGRATION_JOB_UID).and_then(|of| emptied(scene.server, of));
        let owner = controller_of(&pod.metadata).map(|owner| owner.uid.clone());
        let vmi = scene.server.tables.vmis.all().find(|vmi| vmi.metadata.uid == owner);
        let at = vmi.and_then(|vmi| vmi.status.as_ref()?.node_name.clone());
        ensure(from.is_none() || vmi.is_none() || from == at, || {
            format!("target Pod {:?} was created to evacuate {from:?}, but the guest is on {at:?}", pod.metadata.name)
        })
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for migration in tables.migrations.all().filter(|migration| !migration.is_final()) {
            let vmi = instance_key(migration).and_then(|key| tables.vmis.get(&key).cloned());
            let from = annotation(&migration.metadata, EVACUATION_MIGRATION).map(str::to_owned);
            let wanted = from.is_none() || vmi.is_none_or(|vmi| mark(&vmi) == from);
            ensure(wanted, || format!("migration {:?} still waits, but its evacuation was canceled", migration.metadata.name))?;
        }
        Ok(())
    }
}

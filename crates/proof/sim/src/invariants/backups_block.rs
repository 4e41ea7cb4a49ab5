//! 50: a guest with a running backup or with utility volumes is not handed off; once they are gone, nothing claims that
//! they block it.

use api::conditions;
use api::v1::VirtualMachineInstance;
use informer::Key;
use virt_controller::Stores;

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

fn owner(vmi: &VirtualMachineInstance) -> Option<&String> {
    vmi.status.as_ref()?.migration_state.as_ref()?.migration_uid.as_ref()
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "backups_block"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        if owner(was) == owner(is) || owner(is).is_none() {
            return Ok(());
        }
        let tracking = was.status.as_ref().and_then(|status| status.changed_block_tracking.as_ref());
        let backup = tracking.and_then(|tracking| tracking.backup_status.as_ref());
        let reads = backup.is_some_and(|backup| backup.completed != Some(true) && backup.failed != Some(true));
        ensure(!reads, || format!("{} was handed off during a backup", name(is)))?;
        ensure(was.spec.utility_volumes.is_empty(), || format!("{} was handed off with utility volumes", name(is)))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for migration in scene.server.tables.migrations.all() {
            let key = Key::new(
                migration.metadata.namespace.clone().unwrap_or_default(),
                migration.spec.vmi_name.clone().unwrap_or_default(),
            );
            let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let blocked = conditions::is_true(list, conditions::MIGRATION_BLOCKED_BY_UTILITY_VOLUMES);
            let vmi = scene.server.tables.vmis.get(&key);
            let free = vmi.is_none_or(|vmi| vmi.spec.utility_volumes.is_empty());
            ensure(!blocked || !free, || format!("{:?} waits for utility volumes that have gone", migration.metadata.name))?;
        }
        Ok(())
    }
}

//! The record of volumes that were migrating to other claims.

use api::v1::{Condition, ConditionStatus, StorageMigratedVolumeInfo, VirtualMachineStatus};
use api::{conditions, reasons};

use super::world::World;
use crate::claims::claim_name;

/// Clears a finished migration, and requests help with one whose VMI was lost. Must run before the VMI's conditions are
/// mirrored: the VM still holds the last conditions of the lost VMI.
pub(super) fn keep_record(w: &World, status: &mut VirtualMachineStatus) {
    let state = status.volume_update_state.as_ref().and_then(|state| state.volume_migration_state.as_ref());
    let Some(moved) = state.map(|state| state.migrated_volumes.clone()) else { return };
    let migrates = w.vm.spec.update_volumes_strategy.as_deref() == Some("Migration");
    if !migrates || is_reverted(w, &moved) {
        forget(status);
        conditions::remove(&mut status.conditions, conditions::VOLUMES_CHANGE);
        conditions::remove(&mut status.conditions, conditions::MANUAL_RECOVERY_REQUIRED);
        return;
    }
    let lost = w.instance().is_none_or(|vmi| vmi.is_final());
    if lost && conditions::is_true(&status.conditions, conditions::VOLUMES_CHANGE) {
        let message = "the instance ended while its volumes were moving; restore the former claims in the template, \
                       or remove spec.updateVolumesStrategy to start with the new ones";
        let type_ = conditions::MANUAL_RECOVERY_REQUIRED;
        conditions::set(
            &mut status.conditions,
            Condition::new(type_, ConditionStatus::True, "", message, w.now.clone()),
        );
        return;
    }
    let change = w.instance().and_then(|vmi| vmi.condition(conditions::VOLUMES_CHANGE));
    if change.is_some_and(|c| c.is_false() && c.reason() == reasons::VOLUMES_CHANGE_CANCELLATION) {
        forget(status);
    }
}

fn forget(status: &mut VirtualMachineStatus) {
    status.volume_update_state = None;
}

/// The template again names all the claims that the volumes came from.
fn is_reverted(w: &World, moved: &[StorageMigratedVolumeInfo]) -> bool {
    moved.iter().all(|volume| {
        let source = volume.source_pvc_info.as_ref().and_then(|info| info.claim_name.as_deref());
        let named = w.vm.spec.template.spec.volumes.iter().find(|named| named.name == volume.volume_name);
        source.is_some() && named.and_then(claim_name) == source
    })
}

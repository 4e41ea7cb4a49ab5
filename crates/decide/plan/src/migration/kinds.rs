//! The meaning of a migration's phase and kind.

use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{MigrationPriority, VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use api::{annotations, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;

/// Where a guest moves from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Between two nodes of one cluster, within one VMI.
    Local,
    /// The source side of a decentralized migration.
    Sends,
    /// The target side of a decentralized migration.
    Receives,
}

pub fn kind(migration: &Migration) -> Kind {
    match (&migration.spec.send_to, &migration.spec.receive) {
        (Some(_), None) => Kind::Sends,
        (None, Some(_)) => Kind::Receives,
        _ => Kind::Local,
    }
}

/// Whether it has a target or is about to get one, and so counts against the limits. The guest may be in transfer.
pub fn is_running(migration: &Migration) -> bool {
    match migration.phase() {
        Some(phase) if phase.is_final() => false,
        Some(Phase::Scheduling) => kind(migration) != Kind::Sends,
        _ => has_target(migration),
    }
}

/// Whether a target Pod was created.
pub(super) fn has_target(migration: &Migration) -> bool {
    !matches!(migration.phase(), None | Some(Phase::Pending | Phase::WaitingForSync | Phase::Synchronizing))
}

/// Whether it is handed off, judging by its phase alone.
pub(super) fn is_with_nodes(migration: &Migration) -> bool {
    has_target(migration) && !matches!(migration.phase(), Some(Phase::Scheduling | Phase::Scheduled))
}

/// Whether the VMI's migration state is about this migration.
pub fn owns(migration: &Migration, state: Option<&State>) -> bool {
    let uid = meta::uid(&migration.metadata);
    !uid.is_empty() && state.and_then(|state| state.migration_uid.as_deref()) == Some(uid)
}

/// Whether this is the VMI that the migration is about. It may have been recreated under the same name. The sides of a
/// decentralized migration record its UID: they rely on each other's, and a guest that was sent lives on after its VMI
/// has ended.
pub fn concerns(migration: &Migration, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = migration.status.as_ref().and_then(|status| status.migration_state.as_ref()) else { return true };
    let noted = match kind(migration) {
        Kind::Local => None,
        Kind::Sends => state.source_state.as_ref().and_then(|side| side.virtual_machine_instance_uid.as_deref()),
        Kind::Receives => state.target_state.as_ref().and_then(|side| side.virtual_machine_instance_uid.as_deref()),
    };
    noted.is_none_or(|noted| noted == meta::uid(&vmi.metadata))
}

/// Whether one of our controllers created it, so that failures delay the next one.
pub(super) fn is_automatic(migration: &Migration) -> bool {
    let has = |key| meta::annotation(&migration.metadata, key).is_some();
    has(annotations::EVACUATION_MIGRATION) || has(annotations::WORKLOAD_UPDATE_MIGRATION)
}

/// Whether it is no longer wanted: it is being deleted, or was canceled.
pub fn was_given_up(migration: &Migration) -> bool {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    meta::is_deleting(&migration.metadata) || conditions::is_true(list, conditions::MIGRATION_ABORT_REQUESTED)
}

/// Whether it would evacuate a node that the guest is no longer on: it was created from a stale view, or another
/// migration was faster.
pub fn is_needless(migration: &Migration, vmi: &VirtualMachineInstance) -> bool {
    let from = meta::annotation(&migration.metadata, annotations::EVACUATION_MIGRATION);
    let at = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let set = |node: Option<&str>| node.is_some_and(|node| !node.is_empty());
    set(from) && set(at) && from != at
}

/// When it first reached a phase.
pub(super) fn reached(migration: &Migration, phase: &Phase) -> Option<Time> {
    let transitions = migration.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    let mut times = transitions.filter(|t| t.phase.as_ref() == Some(phase));
    times.find_map(|t| t.phase_transition_timestamp.clone())
}

/// When it ended.
pub(crate) fn ended(migration: &Migration) -> Option<Time> {
    reached(migration, &Phase::Succeeded).or_else(|| reached(migration, &Phase::Failed))
}

/// The priority of running migrations, which must not queue behind waiting ones.
pub const RUNNING_PRIORITY: i32 = 1000;

/// The requested priority: which migrations start first when not all can run at once.
pub fn spec_priority(migration: &Migration) -> i32 {
    match &migration.spec.priority {
        Some(MigrationPriority::SystemCritical) => 100,
        Some(MigrationPriority::UserTriggered) => 50,
        Some(MigrationPriority::SystemMaintenance) => 20,
        Some(MigrationPriority::Other(_)) | None => 0,
    }
}

/// The work queue priority for changes of the migration, or of objects it depends on.
pub fn priority(migration: &Migration) -> i32 {
    match migration.phase() {
        Some(Phase::Running) => RUNNING_PRIORITY,
        _ => spec_priority(migration),
    }
}

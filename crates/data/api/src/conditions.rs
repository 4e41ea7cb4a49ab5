//! Condition types, and how a list of conditions is kept.
//!
//! A stored condition gives way only when its status or reason changes. New words or a new probe time alone are not
//! worth a write, or two observers with slightly different sentences would write for ever.

use crate::v1::Condition;

/// Instance and virtual machine: the guest can take traffic. Snapshot, restore, export and clone: it can be used.
pub const READY: &str = "Ready";
/// Instance and KubeVirt: present and False while the last attempt to act on it failed.
pub const SYNCHRONIZED: &str = "Synchronized";
/// Instance: False while no node fits its launcher Pod.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// Instance: volumes are being made.
pub const PROVISIONING: &str = "Provisioning";
/// Instance: whether its DataVolumes are ready.
pub const DATA_VOLUMES_READY: &str = "DataVolumesReady";
/// Instance: somebody asked its Pod to leave the node.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
/// Instance: the guest is paused.
pub const PAUSED: &str = "Paused";
/// Instance: whether it can move to another node.
pub const LIVE_MIGRATABLE: &str = "LiveMigratable";
/// Instance: whether it can move together with its disks.
pub const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
/// Instance: the guest agent is connected.
pub const AGENT_CONNECTED: &str = "AgentConnected";
/// Instance: the guest agent lacks commands that are needed.
pub const AGENT_VERSION_NOT_SUPPORTED: &str = "AgentVersionNotSupported";
/// Instance: credentials have reached the guest.
pub const ACCESS_CREDENTIALS_SYNCHRONIZED: &str = "AccessCredentialsSynchronized";
/// Instance: the node has no usable hardware virtualization, so the guest's CPUs are emulated.
pub const SOFTWARE_EMULATION: &str = "SoftwareEmulation";
/// Instance and virtual machine: the number of virtual CPUs is about to change.
pub const HOT_VCPU_CHANGE: &str = "HotVCPUChange";
/// Instance and virtual machine: the guest's memory is about to change.
pub const HOT_MEMORY_CHANGE: &str = "HotMemoryChange";
/// Instance and virtual machine: volumes are being replaced.
pub const VOLUMES_CHANGE: &str = "VolumesChange";
/// Instance: a change takes effect only by migrating.
pub const MIGRATION_REQUIRED: &str = "MigrationRequired";
/// Virtual machine: the last reconcile failed. Snapshot and restore: it failed for good.
pub const FAILURE: &str = "Failure";
/// Virtual machine: the template differs from the running instance in a way only a restart can apply.
pub const RESTART_REQUIRED: &str = "RestartRequired";
/// Virtual machine: an interrupted change of volumes needs its owner's decision.
pub const MANUAL_RECOVERY_REQUIRED: &str = "ManualRecoveryRequired";
/// Launcher Pod: readiness gate that follows the guest's pause state.
pub const VIRTUAL_MACHINE_UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";
/// Instance: a migration between clusters cannot go on.
pub const DECENTRALIZED_LIVE_MIGRATION_FAILURE: &str = "DecentralizedLiveMigrationFailure";

/// Migration: somebody asked to give it up.
pub const MIGRATION_ABORT_REQUESTED: &str = "migrationAbortRequested";
/// Migration: the namespace's quota has no room for the target Pod.
pub const MIGRATION_REJECTED_BY_RESOURCE_QUOTA: &str = "migrationRejectedByResourceQuota";
/// Migration: it waits for utility volumes to go.
pub const MIGRATION_BLOCKED_BY_UTILITY_VOLUMES: &str = "migrationBlockedByUtilityVolumes";
/// Migration: it waits for a backup to end.
pub const MIGRATION_BLOCKED_BY_BACKUP: &str = "migrationBlockedByBackup";
/// Migration: what it waits for, in its reason and message. Ours; the four beside it are KubeVirt's.
pub const MIGRATION_WAITING: &str = "migrationWaiting";
/// Migration between clusters: its instance says why it cannot go on.
pub const DECENTRALIZED_MIGRATION_BLOCKED: &str = "decentralizedMigrationBlocked";

/// Replica set and pool: the last change of its size failed.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// Replica set and pool: its size is left alone for now.
pub const REPLICA_PAUSED: &str = "ReplicaPaused";

/// Snapshot, restore, clone, backup and KubeVirt: it is being worked on.
pub const PROGRESSING: &str = "Progressing";
/// Export: the claims to export can be read.
pub const PVC_READY: &str = "PVCReady";
/// Export: claims have been made from snapshots to export.
pub const VOLUMES_CREATED: &str = "VolumesCreated";
/// Export: the OCI artifact's digests are known.
pub const OCI_READY: &str = "OCIReady";
/// Backup: it holds all it should.
pub const COMPLETE: &str = "Complete";
/// Backup: it did not succeed.
pub const FAILED: &str = "Failed";
/// Backup: whether the guest's file systems were frozen for it.
pub const QUIESCED: &str = "Quiesced";

/// KubeVirt: components run and serve.
pub const AVAILABLE: &str = "Available";
/// KubeVirt: something needs an administrator.
pub const DEGRADED: &str = "Degraded";
/// KubeVirt: the objects of this version exist.
pub const CREATED: &str = "Created";

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition exists and is True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(Condition::is_true)
}

/// Whether the condition exists and is False.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(Condition::is_false)
}

/// Stores a condition unless one with the same status and reason is there. Returns whether the list changed.
///
/// The time of the last transition moves only with the status: a new reason keeps the old time.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        None => {
            conditions.push(new);
            true
        }
        Some(old) if old.status == new.status && old.reason() == new.reason() => false,
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.take();
            }
            *old = new;
            true
        }
    }
}

/// Removes the condition of this type. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != type_);
    conditions.len() != before
}

/// Whether two lists say the same: the same types, each with the same status and reason, in any order.
pub fn same(a: &[Condition], b: &[Condition]) -> bool {
    a.len() == b.len()
        && a.iter().all(|left| {
            find(b, &left.type_).is_some_and(|right| left.status == right.status && left.reason() == right.reason())
        })
}

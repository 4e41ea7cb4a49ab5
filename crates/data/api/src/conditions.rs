//! Condition types, and helpers for lists of conditions.
//!
//! A stored condition is replaced only when its status or reason changes. A new message or probe time alone is not
//! worth a write; otherwise two observers with slightly different messages would write for ever.

use crate::v1::Condition;

/// VMI and virtual machine: the guest can take traffic. Snapshot, restore, export and clone: it can be used.
pub const READY: &str = "Ready";
/// VMI and KubeVirt: present and False while the last reconcile failed.
pub const SYNCHRONIZED: &str = "Synchronized";
/// VMI: False while no node fits its launcher Pod.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// VMI: volumes are being provisioned.
pub const PROVISIONING: &str = "Provisioning";
/// VMI: whether its DataVolumes are ready.
pub const DATA_VOLUMES_READY: &str = "DataVolumesReady";
/// VMI: its Pod was asked to leave the node.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
/// VMI: the guest is paused.
pub const PAUSED: &str = "Paused";
/// VMI: whether it can migrate to another node.
pub const LIVE_MIGRATABLE: &str = "LiveMigratable";
/// VMI: whether it can migrate together with its disks.
pub const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
/// VMI: the guest agent is connected.
pub const AGENT_CONNECTED: &str = "AgentConnected";
/// VMI: the guest agent lacks commands that are needed.
pub const AGENT_VERSION_NOT_SUPPORTED: &str = "AgentVersionNotSupported";
/// VMI: credentials have reached the guest.
pub const ACCESS_CREDENTIALS_SYNCHRONIZED: &str = "AccessCredentialsSynchronized";
/// VMI: the node has no usable hardware virtualization, so the guest's CPUs are emulated.
pub const SOFTWARE_EMULATION: &str = "SoftwareEmulation";
/// VMI and virtual machine: the number of virtual CPUs is about to change.
pub const HOT_VCPU_CHANGE: &str = "HotVCPUChange";
/// VMI and virtual machine: the guest's memory is about to change.
pub const HOT_MEMORY_CHANGE: &str = "HotMemoryChange";
/// VMI and virtual machine: volumes are being replaced.
pub const VOLUMES_CHANGE: &str = "VolumesChange";
/// VMI: a change takes effect only by migrating.
pub const MIGRATION_REQUIRED: &str = "MigrationRequired";
/// Virtual machine: the last reconcile failed. Snapshot and restore: it failed for good.
pub const FAILURE: &str = "Failure";
/// Virtual machine: the template differs from the running instance in a way only a restart can apply.
pub const RESTART_REQUIRED: &str = "RestartRequired";
/// Virtual machine: an interrupted change of volumes needs its owner's decision.
pub const MANUAL_RECOVERY_REQUIRED: &str = "ManualRecoveryRequired";
/// Launcher Pod: readiness gate that follows the guest's pause state.
pub const VIRTUAL_MACHINE_UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";
/// VMI: a decentralized migration cannot continue.
pub const DECENTRALIZED_LIVE_MIGRATION_FAILURE: &str = "DecentralizedLiveMigrationFailure";

/// Migration: an abort was requested.
pub const MIGRATION_ABORT_REQUESTED: &str = "migrationAbortRequested";
/// Migration: the target Pod exceeds the namespace's quota.
pub const MIGRATION_REJECTED_BY_RESOURCE_QUOTA: &str = "migrationRejectedByResourceQuota";
/// Migration: it waits for utility volumes to be detached.
pub const MIGRATION_BLOCKED_BY_UTILITY_VOLUMES: &str = "migrationBlockedByUtilityVolumes";
/// Migration: it waits for a backup to end.
pub const MIGRATION_BLOCKED_BY_BACKUP: &str = "migrationBlockedByBackup";
/// Migration: what it waits for, in its reason and message. Not in KubeVirt, unlike the four around it.
pub const MIGRATION_WAITING: &str = "migrationWaiting";
/// Decentralized migration: its VMI says why it cannot continue.
pub const DECENTRALIZED_MIGRATION_BLOCKED: &str = "decentralizedMigrationBlocked";

/// Replica set and pool: the last change of its size failed.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// Replica set and pool: scaling is paused.
pub const REPLICA_PAUSED: &str = "ReplicaPaused";

/// Snapshot, restore, clone, backup and KubeVirt: it is in progress.
pub const PROGRESSING: &str = "Progressing";
/// Export: the claims to export can be read.
pub const PVC_READY: &str = "PVCReady";
/// Export: claims to export have been created from snapshots.
pub const VOLUMES_CREATED: &str = "VolumesCreated";
/// Export: the OCI artifact's digests are known.
pub const OCI_READY: &str = "OCIReady";
/// Backup: it is complete.
pub const COMPLETE: &str = "Complete";
/// Backup: it failed.
pub const FAILED: &str = "Failed";
/// Backup: whether the guest's file systems were frozen for it.
pub const QUIESCED: &str = "Quiesced";

/// KubeVirt: components run and serve.
pub const AVAILABLE: &str = "Available";
/// KubeVirt: an administrator has to act.
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
/// `lastTransitionTime` changes only with the status: a new reason keeps the old time.
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

/// Whether two lists are equivalent: the same types, each with the same status and reason, in any order.
pub fn same(a: &[Condition], b: &[Condition]) -> bool {
    a.len() == b.len()
        && a.iter().all(|left| {
            find(b, &left.type_).is_some_and(|right| left.status == right.status && left.reason() == right.reason())
        })
}

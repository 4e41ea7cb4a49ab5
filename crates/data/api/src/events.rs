//! Reasons of events, and the source components of events.

pub use crate::reasons::{
    CONTAINER_PATH_VOLUMES_DISABLED, FAILED_CREATE, FAILED_DATA_VOLUME_IMPORT, FAILED_DELETE, FAILED_FIND_INSTANCETYPE,
    FAILED_FIND_PREFERENCE, FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS, FAILED_GUARANTEE_RESOURCES, FAILED_HAND_OVER,
    FAILED_PVC_NOT_FOUND, FAILED_REVISION_PRUNING, FAILED_SCALE_IN, FAILED_SCALE_OUT, FAILED_UPDATE, MIGRATION_BACKOFF,
    MISSING_VIRTIOFS_CONTAINERS, NODE_UNRESPONSIVE, SUCCESSFUL_CREATE, SUCCESSFUL_DELETE,
};

// Virtual machines.

/// A DataVolume of the virtual machine was created.
pub const SUCCESSFUL_DATA_VOLUME_CREATE: &str = "SuccessfulDataVolumeCreate";
/// A DataVolume of the virtual machine could not be created.
pub const FAILED_DATA_VOLUME_CREATE: &str = "FailedDataVolumeCreate";
/// The virtual machine's service account may not clone the source of a DataVolume.
pub const UNAUTHORIZED_DATA_VOLUME_CREATE: &str = "UnauthorizedDataVolumeCreate";
/// The claim that a DataVolume is to be cloned from does not exist. The spelling is KubeVirt's.
pub const SOURCE_PVC_NOT_AVAILABLE: &str = "SourcePVCNotAvailabe";

// Migrations.

/// The target Pod was handed off to the nodes.
pub const SUCCESSFUL_HAND_OVER: &str = "SuccessfulHandOver";
/// The guest runs on the target.
pub const SUCCESSFUL_MIGRATION: &str = "SuccessfulMigration";
/// The guest stays on the source.
pub const FAILED_MIGRATION: &str = "FailedMigration";
/// The nodes were asked to abort the migration.
pub const SUCCESSFUL_ABORT_MIGRATION: &str = "SuccessfulAbortMigration";
/// The nodes could not be asked to abort the migration.
pub const FAILED_ABORT_MIGRATION: &str = "FailedAbortMigration";
/// No node fits the target Pod.
pub const MIGRATION_TARGET_POD_UNSCHEDULABLE: &str = "migrationTargetPodUnschedulable";
/// No other node can run a guest with the source's CPU model.
pub const NO_SUITABLE_NODES_FOR_HOST_MODEL_MIGRATION: &str = "NoSuitableNodesForHostModelMigration";
/// The migration waits for utility volumes to be detached.
pub const UTILITY_VOLUME_MIGRATION_PENDING: &str = "UtilityVolumeMigrationPending";
/// A backup was aborted in favor of an urgent migration.
pub const BACKUP_ABORTED_FOR_MIGRATION: &str = "BackupAbortedForMigration";
/// A backup could not be aborted in favor of an urgent migration.
pub const BACKUP_ABORT_FAILED: &str = "BackupAbortFailed";

// Updates of instances.

/// The launcher Pod was evicted.
pub const SUCCESSFUL_EVICT: &str = "SuccessfulEvict";
/// The launcher Pod could not be evicted.
pub const FAILED_EVICT: &str = "FailedEvict";
/// A migration was aborted because the change it was for was reverted.
pub const SUCCESSFUL_CHANGE_ABORTION: &str = "SuccessfulChangeAbortion";
/// A migration could not be aborted although the change it was for was reverted.
pub const FAILED_CHANGE_ABORTION: &str = "FailedChangeAbortion";

// Replica sets and pools.

/// Scaling of the set is paused.
pub const SUCCESSFUL_PAUSED: &str = "SuccessfulPaused";
/// Replica set: scaling is resumed.
pub const SUCCESSFUL_RESUMED: &str = "SuccessfulResumed";
/// Pool: scaling is resumed.
pub const SUCCESSFUL_RESUME: &str = "SuccessfulResume";
/// Pool: a virtual machine got the new template.
pub const SUCCESSFUL_UPDATE: &str = "SuccessfulUpdate";

// Clones.

/// The snapshot to clone from was created.
pub const SNAPSHOT_CREATED: &str = "SnapshotCreated";
/// The snapshot to clone from is ready.
pub const SNAPSHOT_READY: &str = "SnapshotReady";
/// The snapshot to clone from is gone.
pub const SNAPSHOT_DELETED: &str = "SnapshotDeleted";
/// The snapshot to clone from lacks volumes.
pub const SNAPSHOT_CONTENT_INVALID: &str = "SnapshotContentInvalid";
/// The restore into the copy was created.
pub const RESTORE_CREATED: &str = "RestoreCreated";
/// The restore into the copy could not be created.
pub const RESTORE_CREATION_FAILED: &str = "RestoreCreationFailed";
/// The restore into the copy is complete.
pub const RESTORE_READY: &str = "RestoreReady";
/// The copy exists.
pub const TARGET_VM_CREATED: &str = "TargetVMCreated";
/// The copy's claims are bound.
pub const PVC_BOUND: &str = "PVCBound";
/// The source of the clone does not exist.
pub const SOURCE_DOES_NOT_EXIST: &str = "SourceDoesNotExist";
/// The source has persistent state that cannot be cloned.
pub const SOURCE_VM_WITH_BACKEND_STORAGE_INVALID: &str = "SourceVMWithBackendStorageInvalid";
/// The source has volumes that cannot be snapshotted.
pub const VM_VOLUME_SNAPSHOTS_INVALID: &str = "VMVolumeSnapshotsInvalid";

// Snapshots and restores.

/// A snapshot's content was created.
pub const SUCCESSFUL_SNAPSHOT_CONTENT_CREATE: &str = "SuccessfulVirtualMachineSnapshotContentCreate";
/// A volume's snapshot was created.
pub const SUCCESSFUL_VOLUME_SNAPSHOT_CREATE: &str = "SuccessfulVolumeSnapshotCreate";
/// A volume's snapshot is gone.
pub const VOLUME_SNAPSHOT_MISSING: &str = "VolumeSnapshotMissing";
/// A restore is complete.
pub const RESTORE_COMPLETE: &str = "VirtualMachineRestoreComplete";
/// A restore met an error and continues.
pub const RESTORE_ERROR: &str = "VirtualMachineRestoreError";
/// A restore failed permanently. The wording is KubeVirt's.
pub const RESTORE_FAILED: &str = "Operation failed";
/// A restore waits for its target to stop.
pub const RESTORE_TARGET_NOT_READY: &str = "RestoreTargetNotReady";
/// A restored DataVolume could not be created.
pub const RESTORE_DATA_VOLUME_CREATE_ERROR: &str = "RestoreDataVolumeCreateError";

// Exports.

/// An export's Service was created.
pub const SERVICE_CREATED: &str = "ServiceCreated";
/// An export's secret was created.
pub const SECRET_CREATED: &str = "SecretCreated";
/// An export's Pod was created.
pub const EXPORTER_POD_CREATED: &str = "ExporterPodCreated";
/// An export's manifests were written.
pub const DATA_MANIFEST_CREATED: &str = "DataManifestCreated";
/// An export's Pod has ended and is replaced.
pub const EXPORTER_POD_FAILED_OR_COMPLETED: &str = "ExporterPodFailedOrCompleted";
/// An export waits because its source is in use.
pub const EXPORT_PAUSED: &str = "ExportPaused";
/// An export's Pod is replaced because the certificate settings changed.
pub const CERTIFICATE_PARAMETERS_CHANGED: &str = "CertificateParametersChanged";

// Backups.

/// A backup is complete.
pub const BACKUP_COMPLETED: &str = "VirtualMachineBackupCompletedSuccessfully";
/// A backup is complete, with a warning.
pub const BACKUP_COMPLETED_WITH_WARNING: &str = "VirtualMachineBackupCompletedWithWarning";
/// A backup failed.
pub const BACKUP_FAILED: &str = "VirtualMachineBackupFailed";
/// A backup is being aborted.
pub const BACKUP_ABORTING: &str = "VirtualMachineBackupAborting";
/// A checkpoint can no longer be used, so the next backup is a full one.
pub const CHECKPOINT_REDEFINITION_FAILED: &str = "CheckpointRedefinitionFailed";

// Instances on their node.

/// The guest is defined.
pub const CREATED: &str = "Created";
/// The guest is gone.
pub const DELETED: &str = "Deleted";
/// The guest runs.
pub const STARTED: &str = "Started";
/// The guest was asked to shut down.
pub const SHUTTING_DOWN: &str = "ShuttingDown";
/// The guest has stopped.
pub const STOPPED: &str = "Stopped";
/// The guest runs again after a pause.
pub const RESUMED: &str = "Resumed";
/// The domain could not be synchronized with the VMI.
pub const SYNC_FAILED: &str = "SyncFailed";
/// The node prepares to receive the guest.
pub const PREPARING_TARGET: &str = "PreparingTarget";
/// The guest is migrating to another node.
pub const MIGRATING: &str = "Migrating";
/// The migration has ended, or is not possible.
pub const MIGRATED: &str = "Migrated";
/// A preset could not be applied.
pub const PRESET_FAILED: &str = "PresetFailed";
/// A preset was overridden by the VMI.
pub const OVERRIDE: &str = "Override";
/// Credentials have reached the guest.
pub const ACCESS_CREDENTIALS_SYNC_SUCCESS: &str = "AccessCredentialsSyncSuccess";
/// Credentials could not be injected into the guest.
pub const ACCESS_CREDENTIALS_SYNC_FAILED: &str = "AccessCredentialsSyncFailed";
/// A volume could not be hot-plugged.
pub const HOTPLUG_FAILED: &str = "HotplugFailed";
/// An interface could not be plugged or unplugged.
pub const NIC_HOTPLUG: &str = "NicHotplug";
/// A volume was unplugged from the guest.
pub const VOLUME_UNPLUGGED: &str = "VolumeUnplugged";
/// The guest's kernel panicked.
pub const GUEST_PANICKED: &str = "GuestPanicked";
/// A volume is smaller than requested, within the cluster's tolerance.
pub const TOLERATED_SMALL_PV: &str = "ToleratedSmallPV";
/// Launchers cannot notify virt-handler.
pub const NOTIFY_SERVER_FAILURE: &str = "NotifyServerFailure";

/// Source components of events.
pub mod source {
    /// The controllers of VMIs, virtual machines and migrations.
    pub const VIRTUAL_MACHINE: &str = "virtualmachine-controller";
    /// The controller of nodes.
    pub const NODE: &str = "node-controller";
    /// The controller of replica sets.
    pub const REPLICA_SET: &str = "virtualmachinereplicaset-controller";
    /// The controller of pools.
    pub const POOL: &str = "virtualmachinepool-controller";
    /// The controller that removes disruption budgets.
    pub const DISRUPTION_BUDGET: &str = "disruptionbudget-controller";
    /// The evacuation controller.
    pub const EVACUATION: &str = "evacuation-controller";
    /// The workload updater.
    pub const WORKLOAD_UPDATE: &str = "workload-update-controller";
    /// The controller of snapshots.
    pub const SNAPSHOT: &str = "snapshot-controller";
    /// The controller of restores.
    pub const RESTORE: &str = "restore-controller";
    /// The controller of exports.
    pub const EXPORT: &str = "export-controller";
    /// The controller of clones.
    pub const CLONE: &str = "clone-controller";
    /// The controller of backups.
    pub const BACKUP: &str = "backup-controller";
}

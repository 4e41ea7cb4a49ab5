//! Finalizers.

/// On VMIs: holds the object until the guest and its Pods are gone.
pub const VIRTUAL_MACHINE_INSTANCE: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// On VMIs: the same under its legacy name, still found on old objects.
pub const VIRTUAL_MACHINE_INSTANCE_LEGACY: &str = "foregroundDeleteVirtualMachine";
/// On virtual machines and their VMIs: holds the object until the VM controller has recorded the outcome.
pub const VIRTUAL_MACHINE_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On migrations: holds the object until both sides have cleaned up.
pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";
/// On decentralized migrations: holds the object until the other side has seen how it ended.
pub const MIGRATION_SYNCHRONIZATION: &str = "synchronization.kubevirt.io/migrationFinalizer";
/// On pools and their virtual machines: holds them until the state to be preserved has been released.
pub const POOL: &str = "pool.kubevirt.io/finalizer";
/// On snapshots: holds the object until its source is unlocked.
pub const SNAPSHOT: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
/// On snapshot contents: holds the object until its guest is thawed.
pub const SNAPSHOT_CONTENT: &str = "snapshot.kubevirt.io/vmsnapshotcontent-protection";
/// On virtual machines: holds the object while a snapshot is taken of it.
pub const SNAPSHOT_SOURCE: &str = "snapshot.kubevirt.io/snapshot-source-protection";
/// On restores: holds the object until its target is unlocked.
pub const RESTORE: &str = "snapshot.kubevirt.io/vmrestore-protection";
/// On backups: holds the object until the guest has released it.
pub const BACKUP: &str = "backup.kubevirt.io/vmbackup-protection";
/// On the installation: holds the object until all components are gone.
pub const KUBEVIRT: &str = "kubevirt.io/foregroundDeleteKubeVirt";
/// On the installation: the same under its legacy name, still found on old objects.
pub const KUBEVIRT_LEGACY: &str = "foregroundDeleteKubeVirt";
/// On definitions: holds them until the operator has removed their objects.
pub const OPERATOR: &str = "kubevirt.io/virtOperatorFinalizer";
/// Set by Kubernetes: dependents are orphaned when the object is deleted.
pub const ORPHAN: &str = "orphan";

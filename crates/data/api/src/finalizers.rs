//! Finalizers.

/// On instances: holds the object until the guest and its Pods are gone.
pub const VIRTUAL_MACHINE_INSTANCE: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// On instances: the same under its old name, still found on old objects.
pub const VIRTUAL_MACHINE_INSTANCE_LEGACY: &str = "foregroundDeleteVirtualMachine";
/// On virtual machines and their instances: holds the object until the VM controller has recorded the outcome.
pub const VIRTUAL_MACHINE_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On migrations: holds the object until both sides have cleaned up.
pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";

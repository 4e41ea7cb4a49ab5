//! The launcher's command-line flags, without the leading dashes: `render` writes them into the Pod, virt-launcher
//! parses them.
//!
//! `render` passes further flags of KubeVirt's launcher for features that admission does not admit yet.

pub const NAME: &str = "name";
pub const UID: &str = "uid";
pub const NAMESPACE: &str = "namespace";
pub const SHARE_DIRECTORY: &str = "kubevirt-share-dir";
pub const EPHEMERAL_DISK_DIRECTORY: &str = "ephemeral-disk-dir";
pub const CONTAINER_DISK_DIRECTORY: &str = "container-disk-dir";
pub const IMAGE_VOLUME: &str = "image-volume";
pub const GRACE_PERIOD_SECONDS: &str = "grace-period-seconds";
pub const QEMU_TIMEOUT: &str = "qemu-timeout";
pub const ALLOW_EMULATION: &str = "allow-emulation";
pub const DISK_MEMORY_LIMIT: &str = "disk-memory-limit";

/// All flags, so that the launcher can check that it knows each.
pub const ALL: [&str; 11] = [
    NAME,
    UID,
    NAMESPACE,
    SHARE_DIRECTORY,
    EPHEMERAL_DISK_DIRECTORY,
    CONTAINER_DISK_DIRECTORY,
    IMAGE_VOLUME,
    GRACE_PERIOD_SECONDS,
    QEMU_TIMEOUT,
    ALLOW_EMULATION,
    DISK_MEMORY_LIMIT,
];

/// Environment variable with the name of the launcher's Pod.
pub const POD_NAME_VARIABLE: &str = "POD_NAME";

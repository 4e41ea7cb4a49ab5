//! Where things lie inside the launcher's container. Launcher and node agent rely on them.

/// Sockets and files that launcher and node agent share.
pub const SHARE: &str = "/var/run/kubevirt";
/// Overlays of disks whose writes end with the instance.
pub const EPHEMERAL_DISKS: &str = "/var/run/kubevirt-ephemeral-disks";
/// Images of container disks as image volumes: `disk_<index of the volume>`.
pub const CONTAINER_DISKS: &str = "/var/run/kubevirt-image-volume";
/// Images of container disks where there are no image volumes: `<UID>/disk_<index of the volume>`.
pub const COPIED_CONTAINER_DISKS: &str = "/var/run/kubevirt/container-disks";
/// The image that holds a directly booted kernel.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";
/// Sockets of the guest's serial line and display, and what the launcher's programs keep under their home.
pub const PRIVATE: &str = "/var/run/kubevirt-private";
/// Volumes that are plugged while the guest runs.
pub const HOTPLUG_DISKS: &str = "/var/run/kubevirt/hotplug-disks";
/// Sockets of virtiofs servers.
pub const VIRTIOFS: &str = "/var/run/kubevirt/virtiofs-containers";
/// Sockets of hook sidecars.
pub const HOOK_SOCKETS: &str = "/var/run/kubevirt-hooks";
/// What the node's network plugins tell about devices.
pub const NETWORK_INFO: &str = "/etc/podinfo";
/// Secrets, one directory per volume; likewise the next ones.
pub const SECRETS: &str = "/var/run/kubevirt-private/secret";
/// ConfigMaps.
pub const CONFIG_MAPS: &str = "/var/run/kubevirt-private/config-map";
/// Fields of the Pod as files.
pub const DOWNWARD_API: &str = "/var/run/kubevirt-private/downwardapi";
/// Answer files for Windows.
pub const SYSPREP: &str = "/var/run/kubevirt-private/sysprep";
/// Figures about the host for the guest to read.
pub const DOWNWARD_METRICS: &str = "/var/run/kubevirt-private/downwardmetric-disk";
/// The Pod's service account, where Kubernetes mounts it.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/";

/// Scratch volumes of every launcher Pod, by name. The order matters where one lies inside another.
pub const SCRATCH: [(&str, &str); 5] = [
    ("private", PRIVATE),
    ("public", SHARE),
    ("sockets", "/var/run/kubevirt/sockets"),
    ("libvirt-runtime", "/var/run/libvirt"),
    ("ephemeral-disks", EPHEMERAL_DISKS),
];

pub(crate) const PRIVATE_VOLUME: &str = "private";
pub(crate) const BINARIES_VOLUME: &str = "virt-bin-share-dir";
pub(crate) const CONTAINER_DISKS_VOLUME: &str = "container-disks";
pub(crate) const HOTPLUG_VOLUME: &str = "hotplug-disks";
pub(crate) const HOOK_SOCKETS_VOLUME: &str = "hook-sidecar-sockets";
pub(crate) const VIRTIOFS_VOLUME: &str = "virtiofs-containers";
pub(crate) const NETWORK_INFO_VOLUME: &str = "network-info-annotation";

/// The directory with the disk image of a volume whose data is a file system.
pub fn disk_directory(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}")
}

//! Directories inside the launcher's container, and the Pod's volumes behind them. The names are KubeVirt's.

/// Sockets and files that virt-launcher and virt-handler share.
pub const SHARE: &str = "/var/run/kubevirt";
/// Runtime state of the launcher's programs: [`XDG_RUNTIME_DIR`](crate::variables::XDG_RUNTIME_DIR).
pub const RUNTIME: &str = "/var/run";
/// libvirtd's sockets and state.
pub const LIBVIRT: &str = "/var/run/libvirt";
/// Images of empty disks.
pub const EMPTY_DISKS: &str = "/var/run/libvirt/empty-disks";
/// Overlays of disks whose writes are discarded with the VMI.
pub const EPHEMERAL_DISKS: &str = "/var/run/kubevirt-ephemeral-disks";
/// Images of container disks as image volumes: `disk_<index of the volume>`.
pub const CONTAINER_DISKS: &str = "/var/run/kubevirt-image-volume";
/// Images of container disks without image volumes: `<UID>/disk_<index of the volume>`.
pub const COPIED_CONTAINER_DISKS: &str = "/var/run/kubevirt/container-disks";
/// The image with a directly booted kernel.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";
/// Sockets of the guest's serial console and display, and the home directory of the launcher's programs.
pub const PRIVATE: &str = "/var/run/kubevirt-private";
/// Claims in file system mode and host disks, one directory per volume.
pub const DISKS: &str = "/var/run/kubevirt-private/vmi-disks";
/// The disk image on a claim in file system mode.
pub const DISK_IMAGE: &str = "disk.img";
/// Devices; a claim in block mode has the name of its volume.
pub const DEVICES: &str = "/dev";
/// Hot-plugged volumes: `<volume>.img`, or the device `<volume>`.
pub const HOTPLUG_DISKS: &str = "/var/run/kubevirt/hotplug-disks";
/// Sockets of virtiofs servers.
pub const VIRTIOFS: &str = "/var/run/kubevirt/virtiofs-containers";
/// Sockets of hook sidecars.
pub const HOOK_SOCKETS: &str = "/var/run/kubevirt-hooks";
/// Device information from the node's network plugins.
pub const NETWORK_INFO: &str = "/etc/podinfo";
/// Secrets, one directory per volume; likewise the following ones.
pub const SECRETS: &str = "/var/run/kubevirt-private/secret";
/// ConfigMaps.
pub const CONFIG_MAPS: &str = "/var/run/kubevirt-private/config-map";
/// Fields of the Pod as files.
pub const DOWNWARD_API: &str = "/var/run/kubevirt-private/downwardapi";
/// Answer files for Windows.
pub const SYSPREP: &str = "/var/run/kubevirt-private/sysprep";
/// Host metrics for the guest.
pub const DOWNWARD_METRICS: &str = "/var/run/kubevirt-private/downwardmetric-disk";
/// The Pod's service account, where Kubernetes mounts it.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/";

/// `meta` of the claim with the guest's TPM and firmware state, if it has one.
pub const STATE_META: &str = "/run/kubevirt-private/backend-storage-meta";
/// The file in [`STATE_META`] that marks that the guest has left with a migration.
pub const MIGRATED_MARK: &str = "migrated";

/// Scratch volumes of every launcher Pod, by name. The order matters where one is inside another.
pub const SCRATCH: [(&str, &str); 5] = [
    (PRIVATE_VOLUME, PRIVATE),
    (SHARE_VOLUME, SHARE),
    (SOCKETS_VOLUME, "/var/run/kubevirt/sockets"),
    (LIBVIRT_VOLUME, LIBVIRT),
    ("ephemeral-disks", EPHEMERAL_DISKS),
];

/// The volume of [`PRIVATE`].
pub const PRIVATE_VOLUME: &str = "private";
/// The volume of [`SHARE`].
pub const SHARE_VOLUME: &str = "public";
/// The volume of the launcher's own socket: [`DIRECTORY`](crate::sockets::DIRECTORY) below [`SHARE`].
pub const SOCKETS_VOLUME: &str = "sockets";
/// The volume of [`LIBVIRT`].
pub const LIBVIRT_VOLUME: &str = "libvirt-runtime";
/// Binaries for container disks without image volumes.
pub const BINARIES_VOLUME: &str = "virt-bin-share-dir";
/// The volume of [`COPIED_CONTAINER_DISKS`].
pub const CONTAINER_DISKS_VOLUME: &str = "container-disks";
/// The volume of [`HOTPLUG_DISKS`].
pub const HOTPLUG_VOLUME: &str = "hotplug-disks";
/// The volume of [`HOOK_SOCKETS`].
pub const HOOK_SOCKETS_VOLUME: &str = "hook-sidecar-sockets";
/// The volume of [`VIRTIOFS`].
pub const VIRTIOFS_VOLUME: &str = "virtiofs-containers";
/// The volume of [`NETWORK_INFO`].
pub const NETWORK_INFO_VOLUME: &str = "network-info-annotation";

/// The directory with the disk image of a volume in file system mode.
pub fn disk_directory(volume: &str) -> String {
    format!("{DISKS}/{volume}")
}

/// The qcow2 that takes the writes to a container disk, below `ephemeral`.
pub fn container_disk_overlay(ephemeral: &str, volume: &str) -> String {
    format!("{ephemeral}/disk-data/{volume}/disk.qcow2")
}

/// The directory with one VMI's cloud-init image, below `ephemeral`. A migration to another VMI replaces it in the domain
/// that it sends.
pub fn cloud_init_directory(ephemeral: &str, namespace: &str, name: &str) -> String {
    format!("{ephemeral}/cloud-init-data/{namespace}/{name}")
}

/// The directory of one VMI's console sockets, below `private`.
pub fn console_directory(private: &str, vmi_uid: &str) -> String {
    format!("{private}/{vmi_uid}")
}

/// The name of the mounted image of a container disk, by the index of its volume.
pub fn image_directory(index: usize) -> String {
    format!("disk_{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_socket_lies_on_its_volume() {
        let volume = SCRATCH.into_iter().find(|(name, _)| *name == SOCKETS_VOLUME);
        let path = format!("{SHARE}/{}", crate::sockets::DIRECTORY);
        assert_eq!(volume, Some((SOCKETS_VOLUME, path.as_str())));
    }
}

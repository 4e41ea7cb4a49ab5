//! Where things lie inside the launcher's container. Launcher and node agent rely on them.

/// Sockets and files that launcher and node agent share.
pub const SHARE: &str = "/var/run/kubevirt";
/// Overlays of disks whose writes end with the instance.
pub const EPHEMERAL_DISKS: &str = "/var/run/kubevirt-ephemeral-disks";
/// Images of container disks: `disk_<index of the volume>`.
pub const CONTAINER_DISKS: &str = "/var/run/kubevirt-image-volume";
/// The image that holds a directly booted kernel.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";
/// Sockets of the guest's serial line and display, and what the launcher's programs keep under their home.
pub const PRIVATE: &str = "/var/run/kubevirt-private";

/// Scratch volumes of every launcher Pod, by name. The order matters where one lies inside another.
pub const SCRATCH: [(&str, &str); 5] = [
    ("private", PRIVATE),
    ("public", SHARE),
    ("sockets", "/var/run/kubevirt/sockets"),
    ("libvirt-runtime", "/var/run/libvirt"),
    ("ephemeral-disks", EPHEMERAL_DISKS),
];

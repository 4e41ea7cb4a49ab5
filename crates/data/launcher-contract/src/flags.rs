//! The launcher's command-line flags, without the leading dashes: `render` writes them into the Pod, virt-launcher
//! parses them.

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $flag:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $flag;)*

        /// All flags, so that the launcher can check that it knows each.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

flags! {
    NAME = "name";
    UID = "uid";
    NAMESPACE = "namespace";
    SHARE_DIRECTORY = "kubevirt-share-dir";
    EPHEMERAL_DISK_DIRECTORY = "ephemeral-disk-dir";
    CONTAINER_DISK_DIRECTORY = "container-disk-dir";
    IMAGE_VOLUME = "image-volume";
    GRACE_PERIOD_SECONDS = "grace-period-seconds";
    QEMU_TIMEOUT = "qemu-timeout";
    ALLOW_EMULATION = "allow-emulation";
    DISK_MEMORY_LIMIT = "disk-memory-limit";
    /// The launcher fails at once.
    SIMULATE_CRASH = "simulate-crash";
    /// How many sidecars to wait for. This one and the following have no effect yet.
    HOOK_SIDECARS = "hook-sidecars";
    OVMF_PATH = "ovmf-path";
    HYPERVISOR = "hypervisor";
    LIBVIRT_LOG_FILTERS = "libvirt-log-filters";
    KEEP_AFTER_FAILURE = "keep-after-failure";
    VGPU_DEDICATED_HOOK = "vgpu-dedicated-hook";
    VM_STATS_COLLECTOR = "vm-stats-collector";
    FIRMWARE_AUTO_SELECTION = "firmware-auto-selection";
    ALLOW_CROSS_ARCH_EMULATION = "allow-cross-arch-emulation";
}

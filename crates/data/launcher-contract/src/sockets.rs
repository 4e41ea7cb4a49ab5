//! Names of the sockets and files through which virt-handler and virt-launcher meet.

/// Below [`SHARE`](crate::paths::SHARE), as a volume of its own: [`LAUNCHER`] and [`LAST_STATE`].
pub const DIRECTORY: &str = "sockets";
/// The launcher answers here. virt-handler takes its appearance for "ready".
pub const LAUNCHER: &str = "launcher-sock";
/// The launcher's socket until it is ready.
pub const LAUNCHER_STARTING: &str = "launcher-init-sock";
/// The launcher's last [`LauncherState`](crate::types::LauncherState), written when the guest has ended: a virt-handler
/// that was away until the launcher had ended reads here how the guest ended.
pub const LAST_STATE: &str = "last-state.json";

/// libvirtd's socket, in [`LIBVIRT`](crate::paths::LIBVIRT).
pub const LIBVIRT: &str = "libvirt-sock";

/// The guest's first serial port, in [`console_directory`](crate::paths::console_directory).
pub const SERIAL: &str = "virt-serial0";
/// What the guest printed on it, beside the socket.
pub const SERIAL_LOG: &str = "virt-serial0-log";
/// The guest's display, beside the serial port.
pub const VNC: &str = "virt-vnc";

/// Below [`SHARE`](crate::paths::SHARE): the sockets of migrations, one per [`Channel`](crate::Channel).
pub const MIGRATIONS: &str = "migrationproxy";
/// Beside them: QEMU's monitor, for the launcher alone.
pub const RECOVERY_MONITOR: &str = "monitor.sock";

//! Names of the sockets and files that virt-handler and virt-launcher share.

/// Below [`SHARE`](crate::paths::SHARE), as a volume of its own: [`LAUNCHER`] and [`LAST_STATE`].
pub const DIRECTORY: &str = "sockets";
/// The launcher's socket. Its existence means that the launcher is ready.
pub const LAUNCHER: &str = "launcher-sock";
/// The launcher's socket until it is ready.
pub const LAUNCHER_STARTING: &str = "launcher-init-sock";
/// The launcher's last [`LauncherState`](crate::types::LauncherState), written when the guest has ended: virt-handler
/// reads it to learn how the guest ended if it was down until the launcher had exited.
pub const LAST_STATE: &str = "last-state.json";

/// libvirtd's socket, in [`LIBVIRT`](crate::paths::LIBVIRT).
pub const LIBVIRT: &str = "libvirt-sock";

/// The guest's first serial port, in [`console_directory`](crate::paths::console_directory).
pub const SERIAL: &str = "virt-serial0";
/// The output of the serial port, next to the socket.
pub const SERIAL_LOG: &str = "virt-serial0-log";
/// The guest's display, next to the serial port.
pub const VNC: &str = "virt-vnc";

/// Below [`SHARE`](crate::paths::SHARE): the sockets of migrations, one per [`Channel`](crate::Channel).
pub const MIGRATIONS: &str = "migrationproxy";
/// Next to them: QEMU's monitor, for the launcher alone.
pub const RECOVERY_MONITOR: &str = "monitor.sock";

//! The SELinux label of a launcher.

use hostfs::process::ProcessId;

/// The label, or that SELinux is off; `None` if that cannot be told, or the process is gone.
pub(crate) fn context(launcher: ProcessId) -> Option<String> {
    let filesystems = std::fs::read_to_string("/proc/filesystems").ok()?;
    // Without a security module the attribute cannot be read.
    let current = std::fs::read_to_string(format!("/proc/{}/attr/current", launcher.pid)).unwrap_or_default();
    let context = vmstate::selinux::context(&filesystems, &current);
    context.filter(|_| launcher.alive()) // the PID may have been reused
}

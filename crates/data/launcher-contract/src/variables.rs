//! Environment variables of the launcher's container and of its sidecars.

/// The name of the launcher's Pod.
pub const POD_NAME: &str = "POD_NAME";
/// How much the launcher logs.
pub const LOG_VERBOSITY: &str = "VIRT_LAUNCHER_LOG_VERBOSITY";
/// `1`: libvirt logs everything.
pub const LIBVIRT_DEBUG_LOGS: &str = "LIBVIRT_DEBUG_LOGS";
/// `1`: virtiofsd logs everything.
pub const VIRTIOFSD_DEBUG_LOGS: &str = "VIRTIOFSD_DEBUG_LOGS";
/// Directories of volumes that several nodes write to, separated by colons.
pub const SHARED_FILESYSTEM_PATHS: &str = "SHARED_FILESYSTEM_PATHS";
/// libvirtd in session mode keeps image metadata below this directory …
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// … its configuration and logs below this one …
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// … and its sockets and state below this one.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

//! Device nodes in a launcher's container: the container runtime makes them as the node has them, mostly for root.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use hostfs::beneath::{OFlags, Root, descriptor_path};
use hostfs::process::ProcessId;
use launcher_contract::{USER, devices};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error("virt-launcher exited before its devices were set up")]
    LauncherGone,
    #[error("failed to inspect the launcher's devices")]
    Open(#[source] hostfs::Error),
    #[error("failed to make the launcher the owner of {path}")]
    Own {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Gives the launcher's user the device nodes that its container has. Blocks.
pub(crate) fn give(launcher: ProcessId) -> Result<(), DeviceError> {
    let root = Root::open(format!("/proc/{}/root", launcher.pid)).map_err(|error| match launcher.alive() {
        true => DeviceError::Open(error),
        false => DeviceError::LauncherGone,
    })?;
    if !launcher.alive() {
        return Err(DeviceError::LauncherGone); // the PID may have been reused before the directory was opened
    }
    give_in(&root.open_dir("dev").map_err(DeviceError::Open)?)
}

fn give_in(dev: &Root) -> Result<(), DeviceError> {
    for device in devices::ALL {
        let file = match dev.open_file(device.node, OFlags::PATH | OFlags::CLOEXEC) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(DeviceError::Open(error)),
        };
        let own = || -> io::Result<()> {
            let (found, directory) = (file.metadata()?, std::fs::metadata(descriptor_path(dev))?);
            // A node on another file system is the host's own, mounted here: it belongs to everybody on the host.
            let is_ours = found.file_type().is_char_device() && found.dev() == directory.dev();
            if !is_ours || (found.uid(), found.gid()) == (USER, USER) {
                return Ok(());
            }
            std::os::unix::fs::chown(descriptor_path(&file), Some(USER), Some(USER))
        };
        own().map_err(|source| DeviceError::Own { path: device.path(), source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_device_nodes_of_the_container_change_hands() {
        if !rustix::process::geteuid().is_root() {
            return test_support::skip("only root can make device nodes");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("net")).unwrap();
        let node = |name: &str| {
            let path = dir.path().join(name);
            // The numbers of /dev/null.
            assert!(Command::new("mknod").arg(&path).args(["c", "1", "3"]).status().unwrap().success());
            path
        };
        let (kvm, tun) = (node("kvm"), node("net/tun"));
        std::fs::write(dir.path().join("vhost-vsock"), "a file").unwrap();
        let owner =
            |path: &std::path::Path| std::fs::symlink_metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
        give_in(&Root::open(dir.path()).unwrap()).unwrap();
        assert_eq!((owner(&kvm), owner(&tun)), ((USER, USER), (USER, USER)));
        assert_eq!(owner(&dir.path().join("vhost-vsock")), (0, 0));

        symlink("/dev/null", dir.path().join("vhost-net")).unwrap();
        assert!(give_in(&Root::open(dir.path()).unwrap()).is_err(), "a link is not followed");
        assert_eq!(owner(std::path::Path::new("/dev/null")), (0, 0));
    }

    #[test]
    fn a_launcher_that_ended_has_no_devices() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = ProcessId::of(pid).unwrap();
        child.wait().unwrap();
        assert!(matches!(give(process), Err(DeviceError::LauncherGone)));
    }
}

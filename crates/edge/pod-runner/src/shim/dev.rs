//! A container's `/dev`: harmless devices and those granted to it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hostfs::beneath::{MountPoint, Root, descriptor_path};
use hostfs::mounts;
use rustix::fs::{FileType, Mode, makedev, mknodat, symlinkat};
use rustix::mount::MountFlags;

use super::StartError;

const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Mounts `/dev` in the root. The caller's umask must be 0.
pub(super) fn mount(root: &Root, granted: &[String]) -> Result<(), StartError> {
    let place = root.mount_point("/dev", MountPoint::Directory)?;
    mounts::mount_fresh("tmpfs", descriptor_path(&place), MountFlags::NOSUID | MountFlags::NOEXEC, "mode=755,size=1m")?;
    let dev = root.open_dir("dev")?;
    for (name, major, minor) in NODES {
        make_node(&dev, name, makedev(major, minor))?;
    }
    for path in granted {
        let on_host = Path::new("/dev").join(path);
        let meta = fs::metadata(&on_host).map_err(StartError::io("find device", &on_host))?;
        if let Some(parent) = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty()) {
            dev.mkdir_all(parent, 0o755, 0, 0)?;
        }
        make_node(&dev, path, meta.rdev())?;
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name)
            .map_err(|e| StartError::io("make link", Path::new("/dev").join(name))(e.into()))?;
    }
    let private = MountFlags::NOSUID | MountFlags::NOEXEC;
    let pts = root.mount_point("/dev/pts", MountPoint::Directory)?;
    mounts::mount_fresh("devpts", descriptor_path(&pts), private, "newinstance,ptmxmode=0666,mode=620,gid=5")?;
    let shm = root.mount_point("/dev/shm", MountPoint::Directory)?;
    mounts::tmpfs(descriptor_path(&shm), 0o1777, None)?;
    Ok(())
}

/// Accessible to all users in the container. The host's own modes often restrict devices to root.
fn make_node(dev: &Root, path: &str, number: u64) -> Result<(), StartError> {
    let mode = Mode::from_raw_mode(0o666);
    mknodat(dev, path, FileType::CharacterDevice, mode, number)
        .map_err(|e| StartError::io("make device", Path::new("/dev").join(path))(io::Error::from(e)))
}

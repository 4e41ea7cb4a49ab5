//! A container's `/dev`: harmless devices and those granted to it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use hostfs::beneath::{MountPoint, OFlags, Root, descriptor_path};
use hostfs::mounts;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, StatVfsMountFlags, Uid, chownat, fstatvfs, makedev, mknodat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::StartError;
use crate::record::BlockDevice;

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

/// Makes the node of a block claim, for the container's user. The caller's umask must be 0.
pub(super) fn make_block(root: &Root, device: &BlockDevice) -> Result<(), StartError> {
    let meta = fs::metadata(&device.source).map_err(StartError::io("find the device", &device.source))?;
    if !meta.file_type().is_block_device() {
        let err = io::Error::other("it is no block device");
        return Err(StartError::io("use", &device.source)(err));
    }
    let path = Path::new(&device.target);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(StartError::io("make device", path)(io::ErrorKind::InvalidInput.into()));
    };
    let folder = match folder.parent() {
        Some(_) => root.mount_point(folder, MountPoint::Directory)?,
        None => root.open_file(".", OFlags::PATH)?.into(), // in the root itself
    };
    let failed = |e: Errno| StartError::io("make device", path)(e.into());
    // Left by the container's last run, where the path is in a volume.
    match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::BlockDevice => {
            unlinkat(&folder, name, AtFlags::empty()).map_err(failed)?;
        }
        Ok(_) => return Err(failed(Errno::EXIST)),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(failed(error)),
    }
    own_block(&folder, name.as_ref(), meta.rdev(), device).map_err(failed)?;
    let flags = fstatvfs(&folder).map_err(failed)?.f_flag;
    if !flags.contains(StatVfsMountFlags::NODEV) {
        return Ok(());
    }
    // Nothing can be opened there as a device. The node of /dev can: it stays reachable through its mount.
    const UNNAMED: &str = ".block";
    let dev = root.open_dir("dev")?;
    own_block(&dev, Path::new(UNNAMED), meta.rdev(), device).map_err(failed)?;
    let node = dev.open_file(UNNAMED, OFlags::PATH)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(&folder, name, flags, Mode::empty()).map_err(failed)?;
    mounts::bind(descriptor_path(&node), descriptor_path(&place))?;
    Ok(dev.remove(UNNAMED)?)
}

fn own_block(folder: impl AsFd, name: &Path, number: u64, device: &BlockDevice) -> Result<(), Errno> {
    mknodat(&folder, name, FileType::BlockDevice, Mode::from_raw_mode(0o660), number)?;
    let (uid, gid) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    chownat(&folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

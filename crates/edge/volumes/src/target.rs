//! Paths of Pods at which volumes are mounted: reached beneath the kubelet's directory, without following links.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use hostfs::beneath::{OFlags, Root, descriptor_path};
use hostfs::mounts;
use rustix::fs::{AtFlags, FileType, Mode, StatxAttributes, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use volumeplan::{Kind, MountFlag};

use crate::error::{Context as _, Result};

/// Mounts that crashes may have stacked.
const LAYERS: usize = 16;

/// A place for a mount.
#[derive(Debug)]
pub(crate) struct Target {
    parent: Root,
    name: OsString,
    path: PathBuf,
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) mounted: bool,
    pub(crate) identity: Identity,
    kind: FileType,
    size: u64,
}

impl Seen {
    /// Whether a volume of this kind can be mounted here: on a directory, or on an empty file.
    pub(crate) fn holds(self, kind: Kind) -> bool {
        match kind {
            Kind::Filesystem => self.kind == FileType::Directory,
            Kind::Block => self.kind == FileType::RegularFile && self.size == 0,
        }
    }
}

/// What a file or a directory is, wherever it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Inode(u64, u64),
    Device(u64),
}

/// What a mount shows: a directory, or the node of a device.
pub(crate) fn identity(file: impl AsFd) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(file)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => Identity::Device(stat.st_rdev),
        _ => Identity::Inode(stat.st_dev, stat.st_ino),
    })
}

impl Target {
    /// The place at `inner` below the kubelet's directory; its parent has to exist.
    pub(crate) fn open(kubelet_dir: &Path, inner: &Path) -> Result<Target> {
        let root = Root::open(kubelet_dir)?;
        let parent = match inner.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => root.open_dir(parent)?,
            _ => root,
        };
        let name = inner.file_name().unwrap_or_default().to_owned();
        Ok(Target { parent, name, path: kubelet_dir.join(inner) })
    }

    /// What is there, and whether it is a mount.
    pub(crate) fn look(&self) -> Result<Option<Seen>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match rustix::fs::statx(&self.parent, &self.name, flags, StatxFlags::BASIC_STATS) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error).doing("look up", &self.path),
        };
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let identity = match kind {
            FileType::BlockDevice => Identity::Device(makedev(stat.stx_rdev_major, stat.stx_rdev_minor)),
            _ => Identity::Inode(makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
        };
        Ok(Some(Seen {
            mounted: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            identity,
            kind,
            size: stat.stx_size,
        }))
    }

    /// Makes what a volume of this kind is mounted on.
    pub(crate) fn make(&self, kind: Kind) -> Result<()> {
        let made = match kind {
            Kind::Filesystem => rustix::fs::mkdirat(&self.parent, &self.name, Mode::from_raw_mode(0o750)),
            Kind::Block => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::openat(&self.parent, &self.name, flags, Mode::from_raw_mode(0o640)).map(drop)
            }
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).doing("make", &self.path),
        }
    }

    /// Mounts what `source` refers to.
    pub(crate) fn mount(&self, source: impl AsFd) -> Result<()> {
        let here = self.parent.open_file(&self.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        Ok(mounts::bind(descriptor_path(source), descriptor_path(&here))?)
    }

    /// Gives the mount its options.
    pub(crate) fn restrict(&self, read_only: bool, flags: &[MountFlag]) -> Result<()> {
        let mut all = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        for flag in flags {
            all |= match flag {
                MountFlag::ReadOnly => MountFlags::RDONLY,
                MountFlag::NoExec => MountFlags::NOEXEC,
                MountFlag::NoSuid => MountFlags::NOSUID,
                MountFlag::NoDev => MountFlags::NODEV,
                MountFlag::NoAtime => MountFlags::NOATIME,
                MountFlag::NoDirAtime => MountFlags::NODIRATIME,
                MountFlag::RelAtime => MountFlags::RELATIME,
            };
        }
        if all.is_empty() {
            return Ok(());
        }
        Ok(mounts::restrict(self.mounted_path(), all)?)
    }

    /// Unmounts all that is mounted here. A mount that is in use stays, and that is an error: to detach it would leave a
    /// writer that nobody knows of.
    pub(crate) fn unmount(&self) -> Result<()> {
        for _ in 0..LAYERS {
            if !self.look()?.is_some_and(|seen| seen.mounted) {
                return Ok(());
            }
            rustix::mount::unmount(self.mounted_path(), UnmountFlags::NOFOLLOW).doing("unmount", &self.path)?;
        }
        Err(std::io::Error::from(Errno::BUSY)).doing("unmount all layers of", &self.path)
    }

    /// Removes what [`Target::make`] has made; what holds data is not ours and stays.
    pub(crate) fn remove(&self) -> Result<()> {
        match self.look()? {
            Some(seen) if seen.kind != FileType::Directory && seen.size > 0 => {
                let error = std::io::Error::other("it is a file that is not empty");
                Err(error).doing("remove", &self.path)
            }
            Some(_) => Ok(self.parent.remove(&self.name)?),
            None => Ok(()),
        }
    }

    /// A path that leads through the parent's descriptor to what is mounted on top.
    fn mounted_path(&self) -> PathBuf {
        descriptor_path(&self.parent).join(&self.name)
    }
}

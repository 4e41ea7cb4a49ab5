//! The target before and after the stages: as root, with nothing of the source in sight.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::confine::{GUEST_UID, WORKER_UID};
use crate::job::{ContentType, Failure, Job, Source, Target};

const DISK: &str = "disk.img";
const ALIGNMENT: u64 = 1 << 20;

/// A prepared target.
pub(super) enum Prepared {
    /// `disk.img` of a file system volume, and its directory.
    Disk {
        file: OwnedFd,
        directory: OwnedFd,
        usable: u64,
    },
    /// A block volume, which keeps its size; with the owner that it had.
    Raw {
        file: OwnedFd,
        owner: Option<(u32, u32)>,
        zeros: bool,
    },
    Archive {
        directory: OwnedFd,
    },
}

impl Prepared {
    pub(super) fn open(target: OwnedFd, job: &Job) -> Result<Self, Failure> {
        let failed = |err: io::Error| Failure::machine(format!("cannot prepare the volume: {err}"));
        let meta = File::from(target.try_clone().map_err(failed)?).metadata().map_err(failed)?;
        let archive = job.content_type == ContentType::Archive;
        match (job.target, &job.source) {
            (_, Source::Blank {}) if archive => {
                Err(Failure::bad_job("Cannot create empty disk with content type archive"))
            }
            (Target::File {} | Target::Block {}, _) if archive => {
                Err(Failure::bad_job("an archive cannot be unpacked into a block volume"))
            }
            (_, Source::Registry(_)) if archive => {
                Err(Failure::bad_job("Unsupported content type archive when importing from registry"))
            }
            (Target::Directory {}, _) if !meta.is_dir() => Err(Failure::bad_job("the target is no directory")),
            (Target::File {}, _) if !meta.is_file() => Err(Failure::bad_job("the target is no regular file")),
            (Target::Directory {}, _) if archive => {
                own(&target, GUEST_UID).map_err(failed)?;
                Ok(Prepared::Archive { directory: target })
            }
            (Target::Directory {}, _) => Self::disk(target, job).map_err(failed),
            (Target::File {}, _) => Self::file(target, &meta, job).map_err(failed),
            (Target::Block {}, _) => Self::block(target, job).map_err(failed),
        }
    }

    fn disk(directory: OwnedFd, job: &Job) -> io::Result<Self> {
        remove(&directory)?;
        // Not by name any more: what a Pod of the tenant may have put there in the meantime is not written to.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, DISK, flags, Mode::from_raw_mode(0o600))?;
        own(&file, WORKER_UID)?;
        let usable = usable(job.size, job.filesystem_overhead);
        rustix::fs::ftruncate(&file, usable)?;
        if job.preallocate {
            allocate(&file, usable)?;
        }
        Ok(Prepared::Disk { file, directory, usable })
    }

    fn file(file: OwnedFd, meta: &std::fs::Metadata, job: &Job) -> io::Result<Self> {
        wipe(&file, meta.len())?;
        if meta.len() < job.size {
            rustix::fs::ftruncate(&file, job.size)?;
        }
        if job.preallocate {
            allocate(&file, job.size.max(meta.len()))?;
        }
        own(&file, WORKER_UID)?;
        Ok(Prepared::Raw { file, owner: Some((meta.uid(), meta.gid())), zeros: true })
    }

    fn block(file: OwnedFd, job: &Job) -> io::Result<Self> {
        let length = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        let zeros = wipe(&file, length.max(job.size)).is_ok();
        let meta = File::from(file.try_clone()?).metadata()?;
        own(&file, WORKER_UID)?;
        Ok(Prepared::Raw { file, owner: Some((meta.uid(), meta.gid())), zeros })
    }

    /// Where the content goes.
    pub(super) fn content(&self) -> &OwnedFd {
        match self {
            Prepared::Disk { file, .. } | Prepared::Raw { file, .. } => file,
            Prepared::Archive { directory } => directory,
        }
    }

    /// Makes room for a disk that takes more than its share of a file system.
    pub(super) fn make_room(&self, size: u64) -> io::Result<()> {
        match self {
            Prepared::Disk { file, usable, .. } if size > *usable => Ok(rustix::fs::ftruncate(file, size)?),
            Prepared::Disk { .. } | Prepared::Raw { .. } | Prepared::Archive { .. } => Ok(()),
        }
    }

    /// Whether what is not written to reads as zeros.
    pub(super) fn zeros(&self) -> bool {
        !matches!(self, Prepared::Raw { zeros: false, .. })
    }

    /// Gives the volume to the guest and makes it durable; returns the size that the guest sees.
    pub(super) fn finish(&self, written: u64, size: u64) -> io::Result<u64> {
        match self {
            Prepared::Disk { file, directory, usable } => {
                let length = written.max(*usable).next_multiple_of(image_format::SECTOR);
                rustix::fs::ftruncate(file, length)?;
                own(file, GUEST_UID)?;
                rustix::fs::fchmod(file, Mode::from_raw_mode(0o660))?;
                rustix::fs::fsync(file)?;
                rustix::fs::fsync(directory)?;
                Ok(length)
            }
            Prepared::Raw { file, .. } => {
                rustix::fs::fsync(file)?;
                self.give_back();
                Ok(size)
            }
            Prepared::Archive { directory } => {
                rustix::fs::syncfs(directory)?;
                Ok(written)
            }
        }
    }

    /// Leaves nothing of content that may be bad.
    pub(super) fn discard(&self) {
        let result = match self {
            Prepared::Disk { directory, .. } => remove(directory),
            Prepared::Raw { file, .. } => {
                let length = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)).unwrap_or_default();
                self.give_back();
                wipe(file, length)
            }
            // The next attempt clears it, as the user that wrote it.
            Prepared::Archive { .. } => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "what was written before the import failed cannot be removed");
        }
    }

    fn give_back(&self) {
        if let Prepared::Raw { file, owner: Some((uid, gid)), .. } = self
            && let Err(error) = rustix::fs::fchown(file, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)))
        {
            tracing::warn!(%error, "the volume's owner cannot be restored");
        }
    }
}

/// A file without a name, for an image to be converted.
pub(super) fn scratch_file(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, Mode::from_raw_mode(0o600)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = format!(".import-{}", std::process::id());
            let create = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(directory, name.as_str(), flags | create, Mode::from_raw_mode(0o600))?;
            rustix::fs::unlinkat(directory, name.as_str(), AtFlags::empty())?;
            file
        }
        other => other?,
    };
    own(&file, WORKER_UID)?;
    Ok(file)
}

/// Whether the file's file system takes direct I/O.
pub(super) fn takes_direct_io(file: &OwnedFd) -> bool {
    let path = hostfs::beneath::descriptor_path(file.as_fd());
    rustix::fs::open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

fn own(file: &OwnedFd, uid: u32) -> io::Result<()> {
    Ok(rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))?)
}

fn remove(directory: &OwnedFd) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, DISK, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

/// What a disk may take of a file system volume, as CDI calculates it.
fn usable(size: u64, overhead: f64) -> u64 {
    let overhead = if overhead.is_finite() && overhead > 0.0 { overhead } else { 0.0 };
    let usable = (size as f64 / (1.0 + overhead)).ceil() as u64;
    let aligned = usable / ALIGNMENT * ALIGNMENT;
    // A volume of less than that is for tests.
    if aligned == 0 { usable.min(size) / image_format::SECTOR * image_format::SECTOR } else { aligned }
}

fn allocate(file: &OwnedFd, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(err) => Err(io::Error::new(io::Error::from(err).kind(), format!("cannot allocate {length} bytes: {err}"))),
    }
}

/// Makes everything zero without writing it.
fn wipe(file: &OwnedFd, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, punch, 0, length) {
        Ok(()) => Ok(()),
        Err(_) => Ok(rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 0, length)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_keeps_its_share() {
        let gib = 1u64 << 30;
        assert_eq!(usable(gib, 0.0), gib);
        assert_eq!(usable(gib, 0.055), 970 << 20);
        assert_eq!(usable(gib, 0.06), 966 << 20);
        assert_eq!(usable(gib, f64::NAN), gib);
        assert_eq!(usable(gib, -1.0), gib);
        assert_eq!(usable(10_000, 0.0), 9728);
    }
}

//! Locks on objects of the pool, among all processes that use it.
//!
//! One byte of the file `lock` stands for each object, far beyond its end, and is locked by an open file description: so
//! the lock also holds between threads of one process, ends with the process, however it ends, works on network file
//! systems, and leaves nothing behind. Two objects whose hashes collide wait for each other, which is harmless.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use volumeplan::PoolId;

use crate::error::{Context as _, Error, Result};

/// How long a request waits for another one before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// The byte of the pool itself, above those of all objects.
const POOL: i64 = 1 << 62;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

/// What of an object is locked.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Its files: who removes or grows them excludes who copies them.
    Content,
    /// Where it is published. Not a part of the content, since a Pod must be able to leave a volume that is being copied.
    Publications,
}

/// The lock file of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    path: PathBuf,
}

impl Locks {
    pub(crate) fn new(pool: &Path) -> Self {
        Self { path: pool.join("lock") }
    }

    /// For whoever makes, grows or removes an object.
    pub(crate) fn content<Id: PoolId>(&self, id: &Id) -> Result<Lock> {
        self.wait(id, Part::Content, Mode::Exclusive)
    }

    /// For whoever copies an object.
    pub(crate) fn source<Id: PoolId>(&self, id: &Id) -> Result<Lock> {
        self.wait(id, Part::Content, Mode::Shared)
    }

    /// For whoever publishes a volume, or must know that nobody does.
    pub(crate) fn publications<Id: PoolId>(&self, id: &Id) -> Result<Lock> {
        self.wait(id, Part::Publications, Mode::Exclusive)
    }

    /// For whoever clears up: `None` if somebody is at work on the object.
    pub(crate) fn try_content<Id: PoolId>(&self, id: &Id) -> Result<Option<Lock>> {
        self.attempt(key(id, Part::Content), Mode::Exclusive)
    }

    /// For whoever writes into the pool's own directory.
    pub(crate) fn pool(&self) -> Result<Lock> {
        self.wait_for(POOL, Mode::Exclusive, || Error::busy("the pool", &self.path.display().to_string()))
    }

    fn wait<Id: PoolId>(&self, id: &Id, part: Part, mode: Mode) -> Result<Lock> {
        self.wait_for(key(id, part), mode, || Error::busy(Id::WHAT, id.as_str()))
    }

    fn wait_for(&self, key: i64, mode: Mode, busy: impl FnOnce() -> Error) -> Result<Lock> {
        let started = Instant::now();
        loop {
            if let Some(lock) = self.attempt(key, mode)? {
                return Ok(lock);
            }
            if started.elapsed() > PATIENCE {
                return Err(busy());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn attempt(&self, key: i64, mode: Mode) -> Result<Option<Lock>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path);
        let file = file.doing("open", &self.path)?;
        // SAFETY: all fields of `flock` are numbers, for which zero is valid.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = match mode {
            Mode::Shared => libc::F_RDLCK as libc::c_short,
            Mode::Exclusive => libc::F_WRLCK as libc::c_short,
        };
        range.l_whence = libc::SEEK_SET as libc::c_short;
        range.l_start = key;
        range.l_len = 1;
        // SAFETY: the descriptor is open and `range` outlives the call, which only reads it.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
        if result == 0 {
            return Ok(Some(Lock { _file: file }));
        }
        match std::io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            error => Err(error).doing("lock", &self.path),
        }
    }
}

/// A byte of the file: the beginning of the ID's hash, which differs between volumes and snapshots of one name, and a last
/// bit that says which part.
fn key<Id: PoolId>(id: &Id, part: Part) -> i64 {
    let digits = id.as_str().strip_prefix(Id::PREFIX).and_then(|digits| digits.get(..15)).unwrap_or_default();
    let hash = i64::from_str_radix(digits, 16).unwrap_or_default();
    hash << 1 | i64::from(matches!(part, Part::Publications))
}

#[cfg(test)]
mod tests {
    use volumeplan::{Reach, RequestName, SnapshotId, VolumeId};

    use super::*;

    #[test]
    fn locks_exclude_each_other_within_a_process_too() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::new(dir.path());
        let name = RequestName::parse("v").unwrap();
        let id = VolumeId::derive(&name, &Reach::Shared);
        let (first, second) = (locks.source(&id).unwrap(), locks.source(&id).unwrap());
        assert!(locks.try_content(&id).unwrap().is_none());
        let _beside = locks.publications(&id).unwrap();
        let _another = locks.content(&SnapshotId::derive(&name, &Reach::Shared)).unwrap();
        drop((first, second));
        let content = locks.content(&id).unwrap();
        assert!(locks.try_content(&id).unwrap().is_none());
        drop(content);
        assert!(locks.try_content(&id).unwrap().is_some());
    }
}

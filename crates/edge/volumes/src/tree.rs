//! Trees of files, whose content belongs to a tenant: copied and removed through descriptors, without following links.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hostfs::beneath::{OFlags, Root};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, RenameFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::copy::{self, Method};
use crate::error::{Context as _, Error, Result};
use crate::steps::Watched;

/// Levels of directories, each of which takes descriptors and stack.
const DEPTH_MAX: usize = 128;
/// Files and directories of one volume.
const ENTRIES_MAX: u64 = 20_000_000;
/// Files with several names, which have to be remembered.
const LINKED_MAX: usize = 1_000_000;
/// The kernel's limits for the names and for the value of extended attributes.
const XATTR_MAX: usize = 64 << 10;

/// Opens without waiting for whoever is at the other end of a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// Copies everything in `from` to the empty directory `to`, with owners, modes, times, extended attributes and hard links,
/// and syncs it. Sockets are left out. Returns the slowest method that was needed.
pub(crate) fn copy(from: &Root, to: &Root, path: &Path, steps: &Watched) -> Result<Method> {
    let mut copying = Copying { top: to, steps, method: Method::Reflink, entries: 0, linked: HashMap::new() };
    copying.directory(from, to, path, Path::new(""), 0)?;
    Ok(copying.method)
}

/// Copies one regular file to a new one of this name.
pub(crate) fn copy_file(from: &File, to: &Root, name: &str, path: &Path) -> Result<(File, Method)> {
    let target = to.open_file(name, CREATE)?;
    let method = copy::copy(from, &target).doing("copy", path)?;
    let method = method.ok_or_else(|| Error::Changed { path: path.to_owned() })?;
    Ok((target, method))
}

struct Copying<'a> {
    top: &'a Root,
    steps: &'a Watched,
    method: Method,
    entries: u64,
    /// The first name of each file that has several, below `top`.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl Copying<'_> {
    fn directory(&mut self, from: &Root, to: &Root, path: &Path, inner: &Path, depth: usize) -> Result<()> {
        let too = |why| Err(Error::Tree { path: path.to_owned(), why });
        if depth > DEPTH_MAX {
            return too("its directories are nested too deeply");
        }
        for name in names(from).doing("list", path)? {
            self.entries += 1;
            if self.entries > ENTRIES_MAX || self.linked.len() > LINKED_MAX {
                return too("it has too many files");
            }
            let name = OsStr::from_bytes(&name);
            let (path, inner) = (path.join(name), inner.join(name));
            let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).doing("look up", &path)?;
            self.entry(from, to, name, &stat, &path, &inner, depth)?;
        }
        let stat = rustix::fs::fstat(from).doing("look up", path)?;
        let target = to.open_file(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let source = from.open_file(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        attributes(&source, &target, &stat).doing("copy the attributes of", path)?;
        target.sync_all().doing("sync the copy of", path)
    }

    fn entry(
        &mut self,
        from: &Root,
        to: &Root,
        name: &OsStr,
        stat: &Stat,
        path: &Path,
        inner: &Path,
        depth: usize,
    ) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        self.steps.before("copy an entry");
        if stat.st_nlink > 1 && kind != FileType::Directory {
            if let Some(first) = self.linked.get(&(stat.st_dev, stat.st_ino)) {
                return rustix::fs::linkat(self.top, first, to, name, AtFlags::empty()).doing("link the copy of", path);
            }
            self.linked.insert((stat.st_dev, stat.st_ino), inner.to_owned());
        }
        match kind {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700)).doing("make the copy of", path)?;
                self.directory(&from.open_dir(name)?, &to.open_dir(name)?, path, inner, depth + 1)
            }
            FileType::RegularFile => self.file(from, to, name, path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new()).doing("read the link", path)?;
                rustix::fs::symlinkat(target, to, name).doing("make the copy of", path)?;
                own(to, name, stat).doing("change the owner of the copy of", path)
            }
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                rustix::fs::mknodat(to, name, kind, mode, stat.st_rdev).doing("make the copy of", path)?;
                own(to, name, stat).doing("change the owner of the copy of", path)?;
                // The umask restricted the mode.
                rustix::fs::chmodat(to, name, mode, AtFlags::empty()).doing("set the permissions of the copy of", path)
            }
            // Nobody listens on the copy of a socket.
            _ => Ok(()),
        }
    }

    fn file(&mut self, from: &Root, to: &Root, name: &OsStr, path: &Path) -> Result<()> {
        let source = from.open_file(name, READ)?;
        let stat = rustix::fs::fstat(&source).doing("look up", path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::Changed { path: path.to_owned() });
        }
        let target = to.open_file(name, CREATE)?;
        let method = copy::copy(&source, &target).doing("copy", path)?;
        self.method = self.method.max(method.ok_or_else(|| Error::Changed { path: path.to_owned() })?);
        attributes(&source, &target, &stat).doing("copy the attributes of", path)?;
        target.sync_all().doing("sync the copy of", path)
    }
}

/// The names in a directory, other than its own and its parent's.
fn names(dir: &Root) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn own(dir: &Root, name: &OsStr, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn attributes(from: &File, to: &File, stat: &Stat) -> Result<(), Errno> {
    rustix::fs::fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    // After the owner: changing the owner clears the set-id bits and capabilities.
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    extended_attributes(from, to)?;
    let time = |seconds: i64, nanos: u64| Timespec { tv_sec: seconds, tv_nsec: nanos.cast_signed() };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(to, &times)
}

fn extended_attributes(from: &File, to: &File) -> Result<(), Errno> {
    let mut list = vec![0; XATTR_MAX];
    let length = match rustix::fs::flistxattr(from, &mut list[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        other => other?,
    };
    let mut value = vec![0; XATTR_MAX];
    for name in list[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// Removes a directory of this name with all it holds, however deep: what is inside of inner directories is moved up
/// first, so that neither descriptors nor the stack limit what a tenant can have made. Succeeds if it is absent.
pub(crate) fn remove(parent: &Root, name: &str, path: &Path, steps: &Watched) -> Result<()> {
    let dir = match parent.open_dir(name) {
        Ok(dir) => dir,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0;
    loop {
        let entries = names(&dir).doing("list", path)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            steps.before("remove an entry");
            let entry = OsStr::from_bytes(&entry);
            if !removed(&dir, entry).doing("remove an entry of", path)? {
                let inner = dir.open_dir(entry)?;
                hoist(&inner, &dir, &mut moved).doing("empty a directory of", path)?;
            }
        }
    }
    drop(dir);
    steps.before("remove the directory");
    Ok(parent.remove(name)?)
}

/// Removes a file or an empty directory; `false` if it is a directory that is not empty.
fn removed(dir: &Root, name: &OsStr) -> Result<bool, Errno> {
    let result = match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Empties a directory: what cannot be removed yet moves to `top`.
fn hoist(inner: &Root, top: &Root, moved: &mut u64) -> Result<(), Errno> {
    for name in names(inner)? {
        let name = OsStr::from_bytes(&name);
        if removed(inner, name)? {
            continue;
        }
        loop {
            *moved += 1;
            let to = format!("moved-{moved}");
            match rustix::fs::renameat_with(inner, name, top, to.as_str(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {} // a tenant's own name
                result => break result?,
            }
        }
    }
    Ok(())
}

/// The bytes that a file takes of the pool.
pub(crate) fn allocated(file: &File) -> std::io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    use std::sync::Arc;

    use super::*;
    use crate::steps::Unwatched;

    fn steps() -> Watched {
        Arc::new(Unwatched)
    }

    #[test]
    fn a_copy_has_what_the_tree_has_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("a/b/f"), "content").unwrap();
        fs::set_permissions(from.join("a/b/f"), fs::Permissions::from_mode(0o4711)).unwrap();
        fs::hard_link(from.join("a/b/f"), from.join("second")).unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        copy(&Root::open(&from).unwrap(), &Root::open(&to).unwrap(), &from, &steps()).unwrap();

        assert_eq!(fs::read_to_string(to.join("a/b/f")).unwrap(), "content");
        let meta = fs::metadata(to.join("second")).unwrap();
        assert_eq!((meta.nlink(), meta.mode() & 0o7777), (2, 0o4711));
        assert_eq!(meta.modified().unwrap(), fs::metadata(from.join("second")).unwrap().modified().unwrap());
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert!(fs::metadata(to.join("pipe")).unwrap().file_type().is_fifo());
        assert!(!to.join("socket").exists());
    }

    #[test]
    fn a_tree_that_is_too_deep_to_copy_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let doomed = dir.path().join("doomed");
        fs::create_dir(&doomed).unwrap();
        let mut here = Root::open(&doomed).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, "moved-1", Mode::RWXU).unwrap();
            here.open_file("file", OFlags::CREATE | OFlags::WRONLY).unwrap();
            here = here.open_dir("moved-1").unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        rustix::fs::mkdirat(&root, "copy", Mode::RWXU).unwrap();
        let copied = copy(&root.open_dir("doomed").unwrap(), &root.open_dir("copy").unwrap(), &doomed, &steps());
        assert!(matches!(copied, Err(Error::Tree { .. })));
        for name in ["doomed", "copy", "never was"] {
            remove(&root, name, &doomed, &steps()).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn removal_leaves_alone_what_links_point_to() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "").unwrap();
        fs::create_dir_all(dir.path().join("doomed/a")).unwrap();
        symlink(outside.path(), dir.path().join("doomed/a/link")).unwrap();
        symlink(outside.path(), dir.path().join("doomed/link")).unwrap();
        remove(&Root::open(dir.path()).unwrap(), "doomed", dir.path(), &steps()).unwrap();
        assert!(outside.path().join("kept").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

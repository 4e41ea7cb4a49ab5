//! Untrusted paths: resolved by the kernel beneath a directory descriptor.
//!
//! [`Root`] never follows symlinks and never leaves its directory, so a tenant who replaces a component with a symlink
//! causes an error instead of access to another file. Unix sockets are reached through `/proc/self/fd`, which also
//! avoids the 108 byte limit on their paths. The only exception is [`Root::mount_point`], for root file systems of
//! images, where `/var/run` is commonly a symlink: it follows symlinks as if the root were `/`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, ResolveFlags, Uid};
use rustix::io::Errno;

pub use rustix::fs::OFlags;

use crate::error::{Context, Error, Result, invalid};

const STRICT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory and everything beneath it.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    /// For messages only; never used to open anything.
    path: PathBuf,
}

/// What [`Root::mount_point`] creates if nothing exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPoint {
    Directory,
    File,
}

impl Root {
    /// Opens a directory by a trusted path.
    pub fn open(path: impl AsRef<Path>) -> Result<Root> {
        let path = path.as_ref();
        let dir = rustix::fs::open(path, DIRECTORY, Mode::empty()).doing("open directory", path)?;
        Ok(Root { dir, path: path.to_owned() })
    }

    /// Opens a file; with [`OFlags::CREATE`] a new one gets the mode 0600.
    pub fn open_file(&self, rel: impl AsRef<Path>, flags: OFlags) -> Result<File> {
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
        let fd = self.resolve(rel.as_ref(), flags, mode).doing("open", self.path.join(&rel))?;
        Ok(File::from(fd))
    }

    /// Opens a subdirectory as another root.
    pub fn open_dir(&self, rel: impl AsRef<Path>) -> Result<Root> {
        let path = self.path.join(&rel);
        let dir = self.resolve(rel.as_ref(), DIRECTORY, Mode::empty()).doing("open directory", &path)?;
        Ok(Root { dir, path })
    }

    /// Opens a directory inside a root file system, following symlinks within it like a process whose `/` this is.
    pub fn open_dir_inside(&self, path: impl AsRef<Path>) -> Result<Root> {
        let relative = path.as_ref().strip_prefix("/").unwrap_or(path.as_ref());
        let path = self.path.join(relative);
        let dir = rustix::fs::openat2(&self.dir, relative, DIRECTORY, Mode::empty(), IN_ROOT);
        Ok(Root { dir: dir.doing("open directory", &path)?, path })
    }

    /// Creates a directory and its missing parents. Created directories, and the last one in any case, get this mode
    /// and owner.
    pub fn mkdir_all(&self, rel: impl AsRef<Path>, mode: u32, uid: u32, gid: u32) -> Result<Root> {
        let mut here = self.reopen()?;
        let mut components = plain_components(rel.as_ref(), &self.path)?.into_iter().peekable();
        while let Some(name) = components.next() {
            let made = match rustix::fs::mkdirat(&here.dir, name, Mode::from_raw_mode(mode)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(e) => return Err(e).doing("make directory", here.path.join(name)),
            };
            here = here.open_dir(name)?;
            if made || components.peek().is_none() {
                here.own(mode, uid, gid)?;
            }
        }
        Ok(here)
    }

    /// Connects to a Unix socket.
    pub fn connect_unix(&self, rel: impl AsRef<Path>) -> Result<UnixStream> {
        let path = self.path.join(&rel);
        let socket =
            self.resolve(rel.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).doing("open socket", &path)?;
        UnixStream::connect(by_descriptor(&socket)).doing("connect to", &path)
    }

    /// Listens on a Unix socket, replacing a stale one.
    pub fn bind_unix(&self, rel: impl AsRef<Path>) -> Result<UnixListener> {
        let path = self.path.join(&rel);
        let (parent, name) = self.parent_of(rel.as_ref())?;
        self.remove(&rel)?;
        UnixListener::bind(by_descriptor(&parent.dir).join(name)).doing("listen on", path)
    }

    /// Whether the name exists, including a dangling symlink.
    pub fn exists(&self, rel: impl AsRef<Path>) -> Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.resolve(rel.as_ref(), flags, Mode::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            // A symlink as the last component: it exists and is not followed.
            Err(Errno::LOOP) => self.is_link(rel.as_ref()),
            Err(e) => Err(e).doing("look up", self.path.join(&rel)),
        }
    }

    /// Removes a file, a symlink, a socket or an empty directory; succeeds if it is absent.
    pub fn remove(&self, rel: impl AsRef<Path>) -> Result<()> {
        let path = self.path.join(&rel);
        let (parent, name) = match self.parent_of(rel.as_ref()) {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        let result = match rustix::fs::unlinkat(&parent.dir, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&parent.dir, &name, AtFlags::REMOVEDIR),
            other => other,
        };
        match result {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).doing("remove", path),
        }
    }

    /// Finds or creates the place at `path` inside a root file system, following symlinks within it like a process
    /// whose `/` this is. Mount on [`descriptor_path`] of the result: any other path may refer to another place.
    pub fn mount_point(&self, path: impl AsRef<Path>, kind: MountPoint) -> Result<OwnedFd> {
        const MOST_LINKS: usize = 8;
        self.walk(path.as_ref(), kind, MOST_LINKS)
    }

    fn walk(&self, path: &Path, kind: MountPoint, links: usize) -> Result<OwnedFd> {
        let mut walked = PathBuf::from(".");
        let relative = path.strip_prefix("/").unwrap_or(path);
        let mut names = plain_components(relative, &self.path)?.into_iter().peekable();
        while let Some(name) = names.next() {
            let parent = self.in_root(&walked)?;
            walked.push(name);
            let kind = if names.peek().is_none() { kind } else { MountPoint::Directory };
            match rustix::fs::openat2(&self.dir, &walked, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), IN_ROOT) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).doing("open", self.path.join(&walked)),
            }
            match make_mount_point(&parent, name, kind) {
                // A dangling symlink: its target is what is missing.
                Err(Errno::EXIST) if links > 0 => {
                    let target = rustix::fs::readlinkat(&parent, name, Vec::new())
                        .doing("read link", self.path.join(&walked))?;
                    let target = walked.with_file_name(OsStr::from_bytes(target.as_bytes()));
                    self.walk(target.strip_prefix(".").unwrap_or(&target), kind, links - 1)?;
                }
                other => other.doing("make mount point", self.path.join(&walked))?,
            }
        }
        self.in_root(&walked)
    }

    fn in_root(&self, path: &Path) -> Result<OwnedFd> {
        rustix::fs::openat2(&self.dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), IN_ROOT)
            .doing("open", self.path.join(path))
    }

    fn resolve(&self, rel: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(&self.dir, rel, flags | OFlags::CLOEXEC, mode, STRICT)
    }

    fn reopen(&self) -> Result<Root> {
        let dir = self.dir.try_clone().doing("duplicate the descriptor of", &self.path)?;
        Ok(Root { dir, path: self.path.clone() })
    }

    fn own(&self, mode: u32, uid: u32, gid: u32) -> Result<()> {
        rustix::fs::fchown(&self.dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .doing("change the owner of", &self.path)?;
        // After the owner: changing the owner clears the set-id bits.
        rustix::fs::fchmod(&self.dir, Mode::from_raw_mode(mode)).doing("change the mode of", &self.path)
    }

    fn is_link(&self, rel: &Path) -> Result<bool> {
        let (parent, name) = self.parent_of(rel)?;
        rustix::fs::statat(&parent.dir, &name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|_| true)
            .doing("look up", self.path.join(rel))
    }

    fn parent_of(&self, rel: &Path) -> Result<(Root, PathBuf)> {
        let name = match rel.components().next_back() {
            Some(Component::Normal(name)) => PathBuf::from(name),
            _ => return Err(invalid("use", self.path.join(rel), "the path does not end in a name")),
        };
        match rel.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => Ok((self.open_dir(parent)?, name)),
            _ => Ok((self.reopen()?, name)),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn make_mount_point(parent: &OwnedFd, name: &Path, kind: MountPoint) -> Result<(), Errno> {
    match kind {
        MountPoint::Directory => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)),
        MountPoint::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    }
}

const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// A path by which only this process reaches what `fd` refers to.
pub fn descriptor_path(fd: impl AsFd) -> PathBuf {
    by_descriptor(fd)
}

fn by_descriptor(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Splits a path into names; rejects absolute paths and `..`.
fn plain_components<'a>(rel: &'a Path, root: &Path) -> Result<Vec<&'a Path>, Error> {
    rel.components()
        .filter(|c| !matches!(c, Component::CurDir))
        .map(|c| match c {
            Component::Normal(name) => Ok(Path::new(name)),
            _ => Err(Error::new(
                "use",
                root.join(rel).display(),
                io::Error::new(io::ErrorKind::InvalidInput, "the path must be relative and must not contain \"..\""),
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, symlink};

    fn errno(error: &Error) -> Option<Errno> {
        error.errno().map(Errno::from_raw_os_error)
    }

    #[test]
    fn links_and_dots_do_not_lead_out() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("dir")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        let root = Root::open(dir.path()).unwrap();

        assert_eq!(errno(&root.open_file("file", OFlags::RDONLY).unwrap_err()), Some(Errno::LOOP));
        assert_eq!(errno(&root.open_file("dir/secret", OFlags::RDONLY).unwrap_err()), Some(Errno::LOOP));
        assert_eq!(errno(&root.open_file("../x", OFlags::RDONLY).unwrap_err()), Some(Errno::XDEV));
        let new = OFlags::WRONLY | OFlags::CREATE;
        assert_eq!(errno(&root.open_file("file", new).unwrap_err()), Some(Errno::LOOP));
        assert!(root.mkdir_all("dir/made", 0o700, 0, 0).is_err());
        assert!(root.mkdir_all("a/../../b", 0o700, 0, 0).is_err());
        assert!(root.bind_unix("dir/socket").is_err());
        assert!(root.remove("dir/secret").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        assert!(root.exists("file").unwrap(), "a link is there, though never followed");
    }

    #[test]
    fn removing_a_link_removes_the_link_alone() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "k").unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path().join("kept"), dir.path().join("link")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.remove("link").unwrap();
        root.remove("link").unwrap();
        root.remove("no/such/parent").unwrap();
        assert!(!root.exists("link").unwrap());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn directories_get_mode_and_owner_also_when_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.mkdir_all("a/b", 0o750, 107, 107).unwrap();
        fs::set_permissions(dir.path().join("a/b"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        root.mkdir_all("a/b", 0o2770, 107, 108).unwrap();
        let meta = fs::metadata(dir.path().join("a/b")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o2770, 107, 108));
        let parent = fs::metadata(dir.path().join("a")).unwrap();
        assert_eq!((parent.mode() & 0o7777, parent.gid()), (0o750, 107), "only what was made is changed");
    }

    #[test]
    fn sockets_work_at_any_depth_and_a_link_to_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let deep = format!("{}/{}", "d".repeat(90), "e".repeat(90));
        let root = Root::open(dir.path()).unwrap();
        let socket_dir = root.mkdir_all(&deep, 0o755, 0, 0).unwrap();
        drop(socket_dir.bind_unix("s").unwrap());
        let listener = socket_dir.bind_unix("s").expect("the one left behind is replaced");

        let mut client = root.connect_unix(format!("{deep}/s")).unwrap();
        client.write_all(b"hi").unwrap();
        drop(client);
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");

        symlink(dir.path().join(&deep).join("s"), dir.path().join("link")).unwrap();
        assert_eq!(errno(&root.connect_unix("link").unwrap_err()), Some(Errno::LOOP));
    }

    #[test]
    fn mount_points_follow_the_links_of_the_image_within_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var")).unwrap();
        fs::create_dir_all(dir.path().join("run")).unwrap();
        symlink("/run", dir.path().join("var/run")).unwrap();
        symlink("../../../../../etc", dir.path().join("escape")).unwrap();
        symlink("/made/later", dir.path().join("dangling")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.mount_point("/var/run/kubevirt/sockets", MountPoint::Directory).unwrap();
        assert!(dir.path().join("run/kubevirt/sockets").is_dir());
        let file = root.mount_point("/run/kubevirt/file", MountPoint::File).unwrap();
        assert_eq!(fs::canonicalize(descriptor_path(&file)).unwrap(), dir.path().join("run/kubevirt/file"));
        root.mount_point("/dangling/x", MountPoint::Directory).unwrap();
        assert!(dir.path().join("made/later/x").is_dir());
        assert!(root.mount_point("/escape/x", MountPoint::Directory).is_err(), "there is no /etc in this root");
        assert!(root.mount_point("/loop/x", MountPoint::Directory).is_err());
        assert!(root.mount_point("/a/../b", MountPoint::Directory).is_err());
    }
}

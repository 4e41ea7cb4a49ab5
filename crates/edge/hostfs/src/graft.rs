//! Mounts that are put into the mount namespace of another process: a file, a directory or a device node appears in a
//! container that runs.
//!
//! Nothing is mounted in the caller's namespace, and nothing depends on mount propagation: what was put into a container
//! goes with it. Sources are given by descriptor, places by a directory and a name in it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Context, Error, Result, invalid};
use crate::mounts;
use crate::ns::{self, Kinds};
use crate::process::ProcessId;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A mount that is nowhere yet.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Detached {
    /// A file or a directory with what is below it, without mounts below it. Programs and devices there do not work.
    pub fn of(source: impl AsFd, what: impl AsRef<Path>) -> Result<Detached> {
        let tree = clone(source.as_fd(), "").doing("clone the mount of", what.as_ref())?;
        let flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
        set_attributes(&tree, flags).doing("restrict the mount of", what)?;
        Ok(Detached(tree))
    }

    /// A node for a block device, for one user alone. It lies on a file system in memory of its own.
    pub fn block_device(number: u64, uid: u32, gid: u32, scratch: impl AsRef<Path>) -> Result<Detached> {
        const NAME: &str = "device";
        let scratch = scratch.as_ref();
        on_fresh_thread(|| {
            ns::unshare(Kinds::NEWNS | Kinds::FS)?;
            mounts::make_private_recursive("/")?;
            let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
            mounts::mount_fresh("tmpfs", scratch, flags, "mode=700,size=16k,nr_inodes=4")?;
            let path = scratch.join(NAME);
            let make = || {
                let dir = rustix::fs::open(scratch, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                rustix::fs::mknodat(&dir, NAME, FileType::BlockDevice, Mode::from_raw_mode(0o600), number)?;
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                rustix::fs::chownat(&dir, NAME, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                let tree = clone(dir.as_fd(), NAME)?;
                set_attributes(&tree, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
                Ok::<_, Errno>(Detached(tree))
            };
            make().doing("make a device node", &path)
        })
    }
}

/// Clones the mount of what `name` is in `dir`, or of `dir` itself.
fn clone(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags |= if name.is_empty() { OpenTreeFlags::AT_EMPTY_PATH } else { OpenTreeFlags::AT_SYMLINK_NOFOLLOW };
    open_tree(dir, name, flags)
}

/// Sets flags of a detached mount, and keeps it apart from the mount that it was cloned from.
fn set_attributes(tree: &OwnedFd, flags: u64) -> Result<(), Errno> {
    let attributes = libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    // SAFETY: the path is a C string and the attributes a structure of the given size; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)) }
}

/// A directory as a process in another mount namespace sees it.
#[derive(Debug)]
pub struct Place {
    namespace: OwnedFd,
    path: PathBuf,
    /// What is expected there.
    identity: (u64, u64),
}

impl Place {
    /// The directory that `process` has at `path`, and that the caller knows as `directory`: only if both are the same is
    /// anything done there. `None` if the process is gone.
    pub fn of(process: ProcessId, path: impl Into<PathBuf>, directory: impl AsFd) -> Result<Option<Place>> {
        let path = path.into();
        let namespace = PathBuf::from(format!("/proc/{}/ns/mnt", process.pid));
        let opened = File::open(&namespace).map(OwnedFd::from);
        if !process.alive() {
            return Ok(None); // the PID may have been reused before the namespace was opened
        }
        let metadata = File::from(directory.as_fd().try_clone_to_owned().doing("duplicate the descriptor of", &path)?)
            .metadata()
            .doing("look at", &path)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(Place { namespace: opened.doing("open mount namespace", &namespace)?, path, identity }))
    }

    /// Puts a mount at a name, in place of what was mounted there and is not in use. A directory or an empty file is made
    /// for it.
    pub fn put(&self, tree: &Detached, name: &str, is_directory: bool) -> Result<()> {
        self.inside(|dir| {
            let path = self.path.join(name);
            take_off(name).doing("unmount", &path)?;
            let made = if is_directory {
                rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))
            } else {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).map(drop)
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).doing("make mount point", path),
            }
            let kind = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
            let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
            let place = rustix::fs::openat2(dir, name, flags, Mode::empty(), BENEATH).doing("open", &path)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(&tree.0, "", &place, "", flags).doing("mount", path)
        })
    }

    /// Unmounts what is mounted at a name and removes the mount point. Fails while it is in use.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.inside(|dir| {
            let path = self.path.join(name);
            take_off(name).doing("unmount", &path)?;
            let removed = match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR),
                other => other,
            };
            match removed {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(e).doing("remove", path),
            }
        })
    }

    /// Runs `f` in the other namespace, with the directory as the working directory of its thread.
    fn inside<T: Send>(&self, f: impl FnOnce(BorrowedFd<'_>) -> Result<T> + Send) -> Result<T> {
        on_fresh_thread(|| {
            // The root and the working directory of this process stay where they are.
            ns::unshare(Kinds::FS)?;
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount))
                .map_err(|e| Error::new("enter the mount namespace of", self.path.display(), e))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(&self.path, flags, Mode::empty()).doing("open directory", &self.path)?;
            let found = fs::File::from(dir.try_clone().doing("duplicate the descriptor of", &self.path)?);
            let found = found.metadata().doing("look at", &self.path)?;
            if (found.dev(), found.ino()) != self.identity {
                return Err(invalid("use", &self.path, "it is another directory in the container than on the node"));
            }
            // Names are resolved by the kernel from here: in this namespace /proc does not know our descriptors.
            rustix::process::fchdir(&dir).doing("enter", &self.path)?;
            f(dir.as_fd())
        })
    }
}

/// Unmounts what is at a name in the working directory, if anything is. What is in use stays.
fn take_off(name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    if name.as_bytes().is_empty() || name.as_bytes().contains(&b'/') {
        return Err(Errno::INVAL);
    }
    // The kernel closes the files of a process that has ended a little later.
    const ATTEMPTS: u32 = 10;
    for attempt in 1.. {
        match unmount(name.as_c_str(), UnmountFlags::NOFOLLOW) {
            // Not there, or nothing is mounted on it.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => break,
            Err(Errno::BUSY) if attempt < ATTEMPTS => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn on_fresh_thread<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("mounts".into())
            .spawn_scoped(scope, f)
            .map_err(|e| Error::new("start", "a thread for a mount namespace", e))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Root;
    use std::os::unix::fs::FileTypeExt;
    use std::process::{Child, Command};

    /// A process in a mount namespace of its own, which sees `dir` at /mnt.
    struct Container(Child);

    impl Container {
        fn start(dir: &Path) -> Container {
            let script = "mount --bind \"$D\" /mnt && mount -o remount,bind,nodev /mnt && echo ready && exec sleep 100";
            let mut child = Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c", script])
                .env("D", dir)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 6];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            Container(child)
        }

        fn process(&self) -> ProcessId {
            ProcessId::of(self.0.id().try_into().unwrap()).unwrap()
        }

        fn inside(&self, script: &str) -> String {
            let target = self.0.id().to_string();
            let command = Command::new("nsenter").args(["-m", "-t", &target, "sh", "-c", script]).output().unwrap();
            String::from_utf8(command.stdout).unwrap().trim().to_owned()
        }
    }

    impl Drop for Container {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_file_a_directory_and_a_device_appear_in_a_running_container_and_nowhere_else() {
        let (here, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let container = Container::start(here.path());
        let root = Root::open(here.path()).unwrap();
        let place = Place::of(container.process(), "/mnt", &root).unwrap().expect("it runs");
        fs::write(outside.path().join("disk.img"), "content").unwrap();
        let source = Root::open(outside.path()).unwrap();

        let image = source.open_file("disk.img", OFlags::PATH).unwrap();
        for _ in 0..2 {
            place.put(&Detached::of(&image, "disk.img").unwrap(), "data.img", false).unwrap();
            assert_eq!(container.inside("cat /mnt/data.img"), "content");
        }
        assert_eq!(container.inside("grep -c /mnt/data.img /proc/self/mountinfo"), "1", "not stacked");
        assert_eq!(fs::read_to_string(here.path().join("data.img")).unwrap(), "", "only a mount point out here");
        place.put(&Detached::of(&source, "dir").unwrap(), "dump", true).unwrap();
        assert_eq!(container.inside("cat /mnt/dump/disk.img; echo new >/mnt/dump/new"), "content");
        assert_eq!(fs::read_to_string(outside.path().join("new")).unwrap(), "new\n");

        // /dev/ram0, which need not exist: the node is there, though the directory is mounted without devices.
        let number = rustix::fs::makedev(1, 0);
        place.put(&Detached::block_device(number, 107, 107, outside.path()).unwrap(), "block", false).unwrap();
        assert_eq!(container.inside("stat -c '%F %t %T %u %g %a' /mnt/block"), "block special file 1 0 107 107 600");
        let mounted = container.inside("grep ' /mnt/block ' /proc/self/mountinfo");
        assert!(mounted.contains("nosuid") && !mounted.contains("nodev"), "{mounted}");
        assert!(!fs::metadata(here.path().join("block")).unwrap().file_type().is_block_device());

        for name in ["data.img", "dump", "block"] {
            for _ in 0..2 {
                place.remove(name).unwrap();
            }
        }
        assert_eq!(container.inside("ls /mnt"), "");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
        assert!(outside.path().join("disk.img").exists());
    }

    #[test]
    fn what_is_in_use_stays() {
        let (here, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let container = Container::start(here.path());
        let root = Root::open(here.path()).unwrap();
        let place = Place::of(container.process(), "/mnt", &root).unwrap().expect("it runs");
        fs::write(outside.path().join("disk.img"), "content").unwrap();
        let source = Root::open(outside.path()).unwrap();
        let image = source.open_file("disk.img", OFlags::PATH).unwrap();
        place.put(&Detached::of(&image, "disk.img").unwrap(), "data.img", false).unwrap();
        container.inside("sleep 100 </mnt/data.img >/dev/null 2>&1 & echo $! >/mnt/user");
        let user = fs::read_to_string(here.path().join("user")).unwrap();
        let error = place.remove("data.img").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        assert!(place.put(&Detached::of(&image, "disk.img").unwrap(), "data.img", false).is_err());
        assert_eq!(container.inside("cat /mnt/data.img"), "content");
        let pid: i32 = user.trim().parse().unwrap();
        ProcessId::of(pid).unwrap().signal(crate::process::Signal::KILL).unwrap();
        let started = std::time::Instant::now();
        while place.remove("data.img").is_err() {
            assert!(started.elapsed().as_secs() < 10, "it stays in use");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn links_another_directory_and_a_process_that_ended_are_refused() {
        let (here, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut container = Container::start(here.path());
        let root = Root::open(here.path()).unwrap();
        let place = Place::of(container.process(), "/mnt", &root).unwrap().expect("it runs");
        fs::write(outside.path().join("disk.img"), "content").unwrap();
        fs::write(outside.path().join("victim"), "victim").unwrap();
        let source = Root::open(outside.path()).unwrap();
        let tree = || Detached::of(source.open_file("disk.img", OFlags::PATH).unwrap(), "disk.img").unwrap();

        std::os::unix::fs::symlink(outside.path().join("victim"), here.path().join("link")).unwrap();
        assert!(place.put(&tree(), "link", false).is_err(), "a link is not followed");
        for name in ["", "a/b", "..", "."] {
            assert!(place.put(&tree(), name, false).is_err(), "{name:?}");
        }
        assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "victim");
        let other = Place::of(container.process(), "/mnt", &source).unwrap().expect("it runs");
        let error = other.put(&tree(), "x", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(!here.path().join("x").exists());

        let process = container.process();
        container.0.kill().unwrap();
        container.0.wait().unwrap();
        assert!(Place::of(process, "/mnt", &root).unwrap().is_none());
    }
}

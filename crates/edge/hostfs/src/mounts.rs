//! Mounts in the calling process's mount namespace.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use crate::error::{Context, Error, Result};

/// Bind-mounts `source` at `target`, without submounts.
pub fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
    mount_bind(source.as_ref(), target.as_ref()).doing("bind-mount on", target)
}

/// Bind-mounts `source` with all submounts at `target`.
pub fn bind_recursive(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
    mount_bind_recursive(source.as_ref(), target.as_ref()).doing("bind-mount on", target)
}

/// Changes the flags of the bind mount at `target`; submounts keep theirs.
pub fn restrict(target: impl AsRef<Path>, flags: MountFlags) -> Result<()> {
    mount_remount(target.as_ref(), MountFlags::BIND | flags, "").doing("restrict the mount at", target)
}

/// Makes the mount at `target` and all submounts read-only, nodev and nosuid.
pub fn restrict_recursive(target: impl AsRef<Path>) -> Result<()> {
    let target = target.as_ref();
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let path = CString::new(target.as_os_str().as_bytes()).map_err(std::io::Error::from).doing("restrict", target)?;
    // SAFETY: the path is a C string and the attributes a structure of the given size; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("restrict the mounts at", target) }
}

/// Makes mounts below `target` private: no propagation in either direction.
pub fn make_private_recursive(target: impl AsRef<Path>) -> Result<()> {
    mount_change(target.as_ref(), MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing("make private the mounts below", target)
}

/// Makes the mount at `target` a shared one: copies of it in other namespaces receive what is mounted below it later.
pub fn make_shared(target: impl AsRef<Path>) -> Result<()> {
    mount_change(target.as_ref(), MountPropagationFlags::SHARED).doing("share the mount at", target)
}

/// Makes mounts below `target` slaves: they receive later mounts of other namespaces, but do not propagate their own.
pub fn make_slave_recursive(target: impl AsRef<Path>) -> Result<()> {
    mount_change(target.as_ref(), MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .doing("follow the mounts below", target)
}

/// Mounts a file system without a device, such as `tmpfs`, `proc` or `devpts`.
pub fn mount_fresh(kind: &str, target: impl AsRef<Path>, flags: MountFlags, options: &str) -> Result<()> {
    let target = target.as_ref();
    let data = CString::new(options).map_err(std::io::Error::from).doing("mount", target)?;
    mount(kind, target, kind, flags, data.as_c_str()).doing("mount a file system at", target)
}

/// Mounts a tmpfs; `size` in bytes, by default half of the machine's memory.
pub fn tmpfs(target: impl AsRef<Path>, mode: u32, size: Option<u64>) -> Result<()> {
    let mut options = format!("mode={mode:o}");
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    mount_fresh("tmpfs", target, MountFlags::NOSUID | MountFlags::NODEV, &options)
}

/// Makes `new_root` the root of the calling process's mount namespace and drops the old one with all its mounts.
/// `new_root` must be a mount point and its parent mount private. The working directory becomes `/`.
pub fn pivot_root(new_root: impl AsRef<Path>) -> Result<()> {
    let new_root = new_root.as_ref();
    rustix::process::chdir(new_root).doing("enter", new_root)?;
    // Stacks the old root on the new one, so no directory is needed for it.
    rustix::process::pivot_root(".", ".").doing("make the root", new_root)?;
    unmount(".", UnmountFlags::DETACH).doing("detach the old root of", new_root)?;
    rustix::process::chdir("/").doing("enter", "/")
}

/// Unmounts one mount; succeeds if nothing is mounted there.
fn unmount_one(target: &Path) -> Result<()> {
    let result = match unmount(target, UnmountFlags::NOFOLLOW) {
        // Still in use: detach it now; it is freed when the last user is done.
        Err(Errno::BUSY) => unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
        other => other,
    };
    match result {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(e) => Err(e).doing("unmount", target),
    }
}

/// Unmounts everything at and below `path` in this mount namespace, deepest first, including stacked mounts.
pub fn umount_all_below(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    // Mount points are listed with symlinks resolved.
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).doing("resolve", path),
    };
    // Removing a mount may reveal another one below it; every round removes the visible layer.
    const LAYERS: usize = 64;
    for _ in 0..LAYERS {
        let targets: Vec<PathBuf> = mount_points()?.into_iter().filter(|m| m.starts_with(&real)).collect();
        if targets.is_empty() {
            return Ok(());
        }
        for target in targets.iter().rev() {
            unmount_one(target)?;
        }
    }
    Err(Error::new("unmount everything below", path.display(), Errno::BUSY))
}

/// Whether something is mounted exactly here.
pub fn is_mount_point(path: impl AsRef<Path>) -> Result<bool> {
    let path = path.as_ref();
    match fs::canonicalize(path) {
        Ok(real) => Ok(mount_points()?.contains(&real)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).doing("resolve", path),
    }
}

/// The mount points of this namespace, in mount order.
pub fn mount_points() -> Result<Vec<PathBuf>> {
    Ok(mountinfo()?.into_iter().map(|m| m.target).collect())
}

/// One line of `/proc/self/mountinfo`.
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
    pub(crate) super_options: String,
}

pub(crate) fn mountinfo() -> Result<Vec<Mount>> {
    // `thread-self`: the calling thread may be in another mount namespace than the main thread.
    const PATH: &str = "/proc/thread-self/mountinfo";
    let text = fs::read(PATH).doing("read", PATH)?;
    Ok(parse(&text))
}

pub(crate) fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let target = unescape(fields.nth(4)?);
    // The variable number of optional fields ends with a single hyphen.
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let super_options = String::from_utf8_lossy(rest.nth(1)?).into_owned();
    Some(Mount { target: PathBuf::from(target), kind, super_options })
}

/// The kernel escapes space, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match (first, tail.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::ffi::OsStr::from_bytes(digits).to_str()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ns;

    /// Tests mount in a mount namespace of their own thread, so that nothing leaks into the host's.
    fn isolated(test: impl FnOnce() + Send) {
        std::thread::scope(|s| {
            s.spawn(|| {
                ns::unshare(ns::Kinds::NEWNS | ns::Kinds::FS).unwrap();
                make_private_recursive("/").unwrap();
                test();
            })
            .join()
            .unwrap();
        });
    }

    #[test]
    fn everything_below_goes_and_neighbours_stay() {
        isolated(|| {
            let dir = tempfile::tempdir().unwrap();
            let (inside, beside) = (dir.path().join("a b"), dir.path().join("a b2"));
            for d in [&inside, &beside] {
                fs::create_dir(d).unwrap();
                tmpfs(d, 0o755, Some(1 << 20)).unwrap();
            }
            fs::create_dir(inside.join("deep")).unwrap();
            tmpfs(inside.join("deep"), 0o755, None).unwrap();
            tmpfs(inside.join("deep"), 0o755, None).unwrap(); // stacked
            let busy = fs::File::create(inside.join("deep/open")).unwrap();
            umount_all_below(&inside).unwrap();
            umount_all_below(&inside).unwrap();
            umount_all_below(dir.path().join("never was")).unwrap();
            drop(busy);
            assert!(!is_mount_point(&inside).unwrap());
            assert!(is_mount_point(&beside).unwrap());
            umount_all_below(&beside).unwrap();
        });
    }

    #[test]
    fn a_bind_mount_that_is_made_read_only_refuses_writes() {
        isolated(|| {
            let dir = tempfile::tempdir().unwrap();
            let (source, target) = (dir.path().join("s"), dir.path().join("t"));
            fs::create_dir(&source).unwrap();
            fs::create_dir(&target).unwrap();
            fs::write(source.join("f"), "x").unwrap();
            bind(&source, &target).unwrap();
            restrict(&target, MountFlags::RDONLY | MountFlags::NODEV).unwrap();
            assert_eq!(fs::read_to_string(target.join("f")).unwrap(), "x");
            assert_eq!(fs::write(target.join("f"), "y").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
            umount_all_below(&target).unwrap();
        });
    }

    #[test]
    fn escapes_and_optional_fields_are_understood() {
        let line = br"36 35 98:0 /r /mnt\040a\134b rw shared:1 master:2 - cgroup2 none rw,x";
        let m = parse_mount(line).unwrap();
        assert_eq!(m.target, Path::new(r"/mnt a\b"));
        assert_eq!((m.kind.as_str(), m.super_options.as_str()), ("cgroup2", "rw,x"));
        assert!(parse_mount(b"").is_none());
    }
}

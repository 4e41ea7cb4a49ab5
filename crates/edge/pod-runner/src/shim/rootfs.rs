//! Builds a container's root file system inside its own mount namespace.
//!
//! ```text
//! <pod>/root            a file system in memory, gone with the mount namespace
//!   ├─ upper, work      what an overlay writes
//!   └─ root             becomes /
//!        image          an overlay of the image's files
//!        host           /usr, /bin, /lib… of the host read-only, an overlay of its /etc, the rest empty
//! ```
//!
//! Then /proc, /sys, /dev, the Pod's volumes, files in /etc and the program at /ferrovirt/bin are mounted on top.
//! Everything below the root is accessed through [`Root`], which resolves an image's symlinks within it.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hostfs::beneath::{MountPoint, OFlags, Root, descriptor_path};
use hostfs::mounts;
use rustix::fs::{Gid, Mode, Uid};
use rustix::mount::MountFlags;

use super::launch::Launch;
use super::{StartError, dev, users};
use crate::record::{MountSource, MountSpec, RootSource};
use crate::resolve::{PROGRAM_DIR, home};

/// Host directories with its programs, mounted read-only.
const HOST_PROGRAMS: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"];
/// Empty directories besides them.
const HOST_DIRECTORIES: [(&str, u32); 16] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];
/// Parts of the host's /etc that are hidden from containers.
const HOST_SECRETS: [&str; 6] = ["shadow", "shadow-", "gshadow", "gshadow-", "ssh", "ssl/private"];

const PROC_READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
const HIDDEN_FILES: [&str; 5] =
    ["/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/timer_list"];
const HIDDEN_DIRECTORIES: [&str; 3] = ["/proc/acpi", "/proc/scsi", "/sys/firmware"];

/// Builds the root and returns its path; the caller makes it `/`. The umask must be 0.
pub(super) fn build(launch: &Launch<'_>) -> Result<PathBuf, StartError> {
    let base = launch.paths.root();
    mounts::tmpfs(&base, 0o755, None)?;
    let place = base.join("root");
    for dir in ["upper", "work", "root"] {
        let dir = base.join(dir);
        fs::create_dir(&dir).map_err(StartError::io("make", &dir))?;
    }
    match &launch.container.root {
        RootSource::Host => compose_host(&base, &place)?,
        RootSource::Image(dir) => overlay(&launch.image(dir)?.rootfs(), &base, &place)?,
    }
    let root = Root::open(&place)?;
    kernel_file_systems(&root)?;
    dev::mount(&root, &launch.container.devices)?;
    names_in_etc(&root, launch)?;
    homes(&root, launch)?;
    programs(&root, &launch.pod.exe)?;
    for mount in &launch.container.mounts {
        mount_volume(&root, launch, mount)?;
    }
    // After the volumes: a device may have its path in one.
    for device in &launch.container.block_devices {
        dev::make_block(&root, device)?;
    }
    termination_message(&root, launch)?;
    if launch.container.read_only_root {
        let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
        if launch.container.root == RootSource::Host {
            mounts::restrict(place.join("etc"), flags)?;
        }
        mounts::restrict(&place, flags)?;
    }
    Ok(place)
}

fn compose_host(base: &Path, place: &Path) -> Result<(), StartError> {
    // Only a mount point can become the root.
    mounts::bind(place, place)?;
    for name in HOST_PROGRAMS {
        let (host, here) = (Path::new("/").join(name), place.join(name));
        match fs::symlink_metadata(&host) {
            Ok(meta) if meta.is_symlink() => {
                let target = fs::read_link(&host).map_err(StartError::io("read link", &host))?;
                symlink(target, &here).map_err(StartError::io("make link", &here))?;
            }
            Ok(meta) if meta.is_dir() => {
                fs::create_dir(&here).map_err(StartError::io("make", &here))?;
                mounts::bind_recursive(&host, &here)?;
                mounts::restrict_recursive(&here)?;
                mounts::make_private_recursive(&here)?;
            }
            _ => {}
        }
    }
    for (name, mode) in HOST_DIRECTORIES {
        let dir = place.join(name);
        fs::create_dir(&dir).map_err(StartError::io("make", &dir))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).map_err(StartError::io("open up", &dir))?;
    }
    for (name, target) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        let link = place.join(name);
        symlink(target, &link).map_err(StartError::io("make link", &link))?;
    }
    let etc = place.join("etc");
    overlay(Path::new("/etc"), base, &etc)?;
    for secret in HOST_SECRETS {
        let path = etc.join(secret);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(StartError::io("hide", &path)(e)),
            _ => {}
        }
    }
    Ok(())
}

/// Mounts an overlay of `lower` at `place`; writes stay in memory.
fn overlay(lower: &Path, base: &Path, place: &Path) -> Result<(), StartError> {
    let escape = |path: &Path| path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        escape(lower),
        escape(&base.join("upper")),
        escape(&base.join("work"))
    );
    mounts::mount_fresh("overlay", place, MountFlags::NODEV, &options)?;
    Ok(())
}

fn kernel_file_systems(root: &Root) -> Result<(), StartError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let proc = root.mount_point("/proc", MountPoint::Directory)?;
    mounts::mount_fresh("proc", descriptor_path(&proc), flags, "")?;
    let sys = root.mount_point("/sys", MountPoint::Directory)?;
    mounts::mount_fresh("sysfs", descriptor_path(&sys), flags | MountFlags::RDONLY, "")?;
    for name in PROC_READ_ONLY {
        let path = Path::new("/proc").join(name);
        if let Some(place) = existing(root, &path)? {
            mounts::bind(descriptor_path(&place), descriptor_path(&place))?;
            restrict(root, &path, flags | MountFlags::RDONLY)?;
        }
    }
    for path in HIDDEN_FILES {
        if let Some(place) = existing(root, Path::new(path))? {
            mounts::bind("/dev/null", descriptor_path(&place))?;
        }
    }
    for path in HIDDEN_DIRECTORIES {
        if let Some(place) = existing(root, Path::new(path))? {
            mounts::mount_fresh("tmpfs", descriptor_path(&place), flags | MountFlags::RDONLY, "size=0")?;
        }
    }
    Ok(())
}

/// Kernel file systems do not allow new names, so only existing ones can be covered.
fn existing(root: &Root, path: &Path) -> Result<Option<OwnedFd>, StartError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    match root.open_file(relative, OFlags::PATH) {
        Ok(file) => Ok(Some(file.into())),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Changes the flags of the mount at `path`. The path is looked up again: a descriptor from before the mount still
/// refers to what is underneath.
fn restrict(root: &Root, path: &Path, flags: MountFlags) -> Result<(), StartError> {
    let on_top = root.mount_point(path, MountPoint::Directory)?;
    mounts::restrict(descriptor_path(&on_top), flags)?;
    Ok(())
}

/// Keeps later mounts of the node there out of the container. Mounts derived from the node's receive them by default.
fn keep_apart(root: &Root, path: &Path) -> Result<(), StartError> {
    let on_top = root.mount_point(path, MountPoint::Directory)?;
    mounts::make_private_recursive(descriptor_path(&on_top))?;
    Ok(())
}

fn names_in_etc(root: &Root, launch: &Launch<'_>) -> Result<(), StartError> {
    root.mount_point("/etc", MountPoint::Directory)?;
    let etc = root.open_dir("etc")?;
    let read = |name: &str| -> String {
        let mut text = String::new();
        let file = etc.open_file(name, OFlags::RDONLY).ok();
        file.and_then(|f| f.take(1 << 20).read_to_string(&mut text).ok());
        text
    };
    let users = [("passwd", users::passwd(&read("passwd"))), ("group", users::group(&read("group")))];
    let names = launch.pod.etc.iter().map(|(name, text)| (name.as_str(), text.clone()));
    for (name, text) in users.into_iter().chain(names) {
        // Replaces whatever the image has there, including symlinks.
        etc.remove(name)?;
        let mut file = etc.open_file(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        let path = Path::new("/etc").join(name);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))
            .map_err(|e| StartError::io("open up", &path)(e.into()))?;
        file.write_all(text.as_bytes()).map_err(StartError::io("write", &path))?;
    }
    Ok(())
}

/// A non-root user needs its own home and runtime directories.
fn homes(root: &Root, launch: &Launch<'_>) -> Result<(), StartError> {
    let credentials = &launch.container.credentials;
    if credentials.uid == 0 {
        return Ok(());
    }
    let runtime = format!("/run/user/{}", credentials.uid);
    for path in [runtime.as_str(), home(credentials.uid)].into_iter().filter(|p| *p != "/") {
        let dir = root.mount_point(path, MountPoint::Directory)?;
        // Through the path: an O_PATH descriptor cannot be changed directly.
        let place = descriptor_path(dir.as_fd());
        rustix::fs::chown(&place, Some(Uid::from_raw(credentials.uid)), Some(Gid::from_raw(credentials.gid)))
            .map_err(|e| StartError::io("hand over", path)(e.into()))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).map_err(StartError::io("close", path))?;
    }
    Ok(())
}

/// The same file under all names: its behaviour depends on its name.
fn programs(root: &Root, exe: &Path) -> Result<(), StartError> {
    for name in ["ferrovirt", "virt-launcher", "container-disk"] {
        let path = Path::new(PROGRAM_DIR).join(name);
        let place = root.mount_point(&path, MountPoint::File)?;
        mounts::bind(exe, descriptor_path(&place))?;
        restrict(root, &path, MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID)?;
        keep_apart(root, &path)?;
    }
    Ok(())
}

fn mount_volume(root: &Root, launch: &Launch<'_>, mount: &MountSpec) -> Result<(), StartError> {
    let image; // stays open until it is mounted
    let source = match &mount.source {
        MountSource::Path(path) => path.clone(),
        MountSource::Image(dir) => {
            image = launch.image(dir)?;
            image.rootfs()
        }
    };
    let opened = match &mount.sub_path {
        Some(sub_path) => sub_path_of(&source, sub_path)?,
        None => rustix::fs::open(&source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| StartError::io("open volume", &source)(e.into()))?,
    };
    let source = descriptor_path(&opened);
    let is_dir = fs::metadata(&source).map_err(StartError::io("open volume", &mount.target))?.is_dir();
    let kind = if is_dir { MountPoint::Directory } else { MountPoint::File };
    let place = root.mount_point(&mount.target, kind)?;
    mounts::bind(&source, descriptor_path(&place))?;
    let mut flags = MountFlags::NOSUID;
    flags.set(MountFlags::RDONLY, mount.read_only);
    // Where the node's mounts appear, devices may that it adds; containers cannot make any.
    flags.set(MountFlags::NODEV, !mount.follows_node);
    restrict(root, Path::new(&mount.target), flags)?;
    if mount.follows_node { Ok(()) } else { keep_apart(root, Path::new(&mount.target)) }
}

/// Another container of the volume may have put a symlink there: it is not followed.
fn sub_path_of(volume: &Path, sub_path: &str) -> Result<OwnedFd, StartError> {
    let volume = Root::open(volume)?;
    match volume.open_file(sub_path, OFlags::PATH) {
        Ok(file) => Ok(file.into()),
        Err(e) if e.is_not_found() => {
            // As the volume itself, so that whoever may write to it may write here, too.
            let stat = rustix::fs::fstat(&volume).map_err(|e| StartError::io("look up volume", sub_path)(e.into()))?;
            volume.mkdir_all(sub_path, stat.st_mode & 0o7777, 0, stat.st_gid)?;
            Ok(volume.open_file(sub_path, OFlags::PATH)?.into())
        }
        Err(e) => Err(e.into()),
    }
}

fn termination_message(root: &Root, launch: &Launch<'_>) -> Result<(), StartError> {
    let file = launch.paths.termination(&launch.container.name);
    let place = root.mount_point(&launch.container.termination.path, MountPoint::File)?;
    mounts::bind(file, descriptor_path(&place))?;
    keep_apart(root, Path::new(&launch.container.termination.path))
}

//! The files of a claim belong to the Pod's `fsGroup`, as the kubelet does it for drivers with `fsGroupPolicy: File`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use hostfs::beneath::descriptor_path;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, fchmod, fstat, openat};
use rustix::io::Errno;

use crate::error::Error;

/// What the group may do.
const FILES: u32 = 0o660;
const DIRECTORIES: u32 = 0o2770;
/// How deep directories are nested that are still followed.
const DEPTH_MAX: usize = 128;

/// The group of a Pod's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: u32,
    /// Whether a root directory that fits means that everything below it does.
    pub(crate) on_root_mismatch: bool,
}

/// Gives a volume to a group. Tenants may write to it meanwhile: links are not followed, and nothing is looked up twice.
pub(crate) fn hand_over(volume: &Path, group: Group) -> Result<(), Error> {
    let root = open(rustix::fs::CWD, volume).map_err(|e| Error::io("open", volume)(e.into()))?;
    if group.on_root_mismatch && fits(&root, group.gid).map_err(|e| Error::io("look up", volume)(e.into()))? {
        return Ok(());
    }
    // The root last: it says that the rest is done.
    below(&root, volume, group.gid, DEPTH_MAX)?;
    change(&root, group.gid, DIRECTORIES).map_err(|e| Error::io("hand over", volume)(e.into()))
}

fn open(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn fits(root: &OwnedFd, gid: u32) -> Result<bool, Errno> {
    let stat = fstat(root)?;
    Ok(stat.st_gid == gid && stat.st_mode & DIRECTORIES == DIRECTORIES)
}

fn change(file: impl AsFd, gid: u32, more: u32) -> Result<(), Errno> {
    let stat = fstat(&file)?;
    let mode = stat.st_mode & 0o7777;
    if stat.st_gid == gid && mode & more == more {
        return Ok(());
    }
    rustix::fs::fchown(&file, None, Some(Gid::from_raw(gid)))?;
    // After the group: changing it clears the set-id bits.
    fchmod(&file, Mode::from_raw_mode(mode | more))
}

fn below(dir: &OwnedFd, path: &Path, gid: u32, depth: usize) -> Result<(), Error> {
    let failed = |doing, path: PathBuf| move |e: Errno| Error::io(doing, path)(e.into());
    if depth == 0 {
        let err = std::io::Error::other("its directories are nested too deeply");
        return Err(Error::io("hand over", path)(err));
    }
    for entry in Dir::read_from(dir).map_err(failed("list", path.to_owned()))? {
        let entry = entry.map_err(failed("list", path.to_owned()))?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let inner = path.join(name.to_string_lossy().as_ref());
        let result = match entry.file_type() {
            FileType::Directory => match open(dir, name) {
                Ok(child) => {
                    below(&child, &inner, gid, depth - 1)?;
                    change(&child, gid, DIRECTORIES)
                }
                Err(error) => Err(error),
            },
            _ => file(dir, name, gid),
        };
        match result {
            // Removed or replaced meanwhile, by who uses it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(failed("hand over", inner)(error)),
        }
    }
    Ok(())
}

/// A regular file gets the group and its permissions; of links, sockets and the like the group is changed.
fn file(dir: &OwnedFd, name: &std::ffi::CStr, gid: u32) -> Result<(), Errno> {
    let file = openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    let mode = stat.st_mode & 0o7777;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if stat.st_gid == gid && (!is_regular || mode & FILES == FILES) {
        return Ok(());
    }
    rustix::fs::chownat(&file, c"", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    if is_regular {
        rustix::fs::chmod(descriptor_path(&file), Mode::from_raw_mode(mode | FILES))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn of(path: &Path) -> (u32, u32) {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.gid(), meta.mode() & 0o7777)
    }

    #[test]
    fn files_get_the_group_and_links_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return test_support::skip("handing files over needs root");
        }
        let home = tempfile::tempdir().unwrap();
        let (volume, outside) = (home.path().join("volume"), home.path().join("outside"));
        fs::create_dir_all(volume.join("inner")).unwrap();
        fs::create_dir(&outside).unwrap();
        for (file, mode) in [("disk.img", 0o600), ("inner/tool", 0o711), ("../outside/secret", 0o600)] {
            fs::write(volume.join(file), "").unwrap();
            fs::set_permissions(volume.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink(outside.join("secret"), volume.join("link")).unwrap();
        symlink(&outside, volume.join("directory")).unwrap();
        let before = (of(&outside), of(&outside.join("secret")));
        let group = Group { gid: 107, on_root_mismatch: false };
        for _ in 0..2 {
            hand_over(&volume, group).unwrap();
            assert_eq!(of(&volume), (107, 0o2775));
            assert_eq!(of(&volume.join("disk.img")), (107, 0o660));
            assert_eq!(of(&volume.join("inner")), (107, 0o2775));
            assert_eq!(of(&volume.join("inner/tool")), (107, 0o771));
            assert_eq!(of(&volume.join("link")).0, 107);
            assert_eq!((of(&outside), of(&outside.join("secret"))), before);
        }

        fs::set_permissions(volume.join("disk.img"), fs::Permissions::from_mode(0o600)).unwrap();
        hand_over(&volume, Group { on_root_mismatch: true, ..group }).unwrap();
        assert_eq!(of(&volume.join("disk.img")), (107, 0o600), "the root fits, so the rest is not looked at");
    }
}

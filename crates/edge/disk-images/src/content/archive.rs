//! Unpacking a tar archive into the directory of a volume.
//!
//! Every name is opened beneath the directory, without following links. Links that lead out, devices, absolute names and `..` are refused,
//! and so is more than fits.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tar::EntryType;

use crate::job::Failure;

const ENTRIES_MAX: u64 = 1_000_000;
const DEPTH_MAX: usize = 128;
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What file systems make on their own and an import leaves.
const KEPT: &str = "lost+found";

/// Unpacks all of it; returns the sum of the files' sizes.
pub(crate) fn unpack(stream: impl Read, into: BorrowedFd<'_>, limit: u64) -> Result<u64, Failure> {
    let mut archive = tar::Archive::new(stream);
    let mut total = 0u64;
    let mut modes = BTreeMap::new();
    for (index, entry) in archive.entries().map_err(broken)?.enumerate() {
        if index as u64 >= ENTRIES_MAX {
            return Err(refused("the archive", "it has more than a million entries"));
        }
        let mut entry = entry.map_err(broken)?;
        let path = plain(&entry.path().map_err(broken)?)?;
        let mode = Mode::from_raw_mode(entry.header().mode().unwrap_or(0o644) & 0o777);
        let kind = entry.header().entry_type();
        match kind {
            EntryType::Directory => {
                directory(into, &path)?;
                // In the end: one that cannot be written to may have content.
                modes.insert(path, mode);
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                total =
                    total.checked_add(entry.size()).filter(|total| *total <= limit).ok_or_else(|| too_large(limit))?;
                let (parent, name) = parent(into, &path)?;
                let file = create(&parent, name, mode).map_err(|err| failed("make", &path, err))?;
                io::copy(&mut entry, &mut std::fs::File::from(file)).map_err(|err| copied(&path, err))?;
            }
            EntryType::Symlink => {
                let target = entry.link_name().map_err(broken)?.unwrap_or_default().into_owned();
                if !stays_inside(&path, &target) {
                    return Err(refused(&path.display().to_string(), "it is a link that leads out of the volume"));
                }
                let (parent, name) = parent(into, &path)?;
                remove_file(&parent, name).map_err(|err| failed("replace", &path, err))?;
                rustix::fs::symlinkat(&target, &parent, name).map_err(|err| failed("make", &path, err))?;
            }
            EntryType::Link => {
                let target = plain(&entry.link_name().map_err(broken)?.unwrap_or_default())?;
                link(into, &target, &path)?;
            }
            // Names of directories for incremental backups, comments and the like.
            EntryType::XGlobalHeader => {}
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                return Err(refused(&path.display().to_string(), "it is a device or a pipe"));
            }
            _ => return Err(refused(&path.display().to_string(), "its kind is unknown")),
        }
    }
    // Those that are inside of others first.
    for (path, mode) in modes.iter().rev().filter(|(path, _)| !path.as_os_str().is_empty()) {
        let dir = open_dir(into, path).map_err(|err| failed("open", path, err))?;
        rustix::fs::fchmod(&dir, *mode).map_err(|err| failed("change the mode of", path, err))?;
    }
    Ok(total)
}

/// Removes what an earlier attempt has left.
pub(crate) fn clear(dir: BorrowedFd<'_>) -> io::Result<()> {
    let here = hostfs::beneath::descriptor_path(dir);
    for entry in std::fs::read_dir(&here)? {
        let entry = entry?;
        if entry.file_name() == KEPT {
            continue;
        }
        // The library removes trees without following links.
        let removed = match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(here.join(entry.file_name())),
            false => std::fs::remove_file(here.join(entry.file_name())),
        };
        removed?;
    }
    Ok(())
}

/// The path without `.`; empty for the directory itself.
fn plain(path: &Path) -> Result<PathBuf, Failure> {
    let refuse = |why| refused(&path.display().to_string(), why);
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Err(refuse("it has an absolute path")),
            Component::ParentDir => return Err(refuse("it leads out of the volume")),
        }
    }
    match plain.components().count() {
        0..=DEPTH_MAX => Ok(plain),
        _ => Err(refuse("it is nested too deeply")),
    }
}

fn stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    !target.as_os_str().is_empty()
        && target.components().all(|component| match component {
            Component::Normal(_) => {
                depth += 1;
                true
            }
            Component::CurDir => true,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(up) => {
                    depth = up;
                    true
                }
                None => false,
            },
            Component::RootDir | Component::Prefix(_) => false,
        })
}

/// Opens a directory inside, and makes what is missing of it.
fn directory(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Failure> {
    let mut here = open_dir(root, Path::new(".")).map_err(|err| failed("open", path, err))?;
    for component in path.components() {
        let name = Path::new(component.as_os_str());
        match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(err) => return Err(failed("make", path, err)),
        }
        here = open_dir(here.as_fd(), name).map_err(|err| failed("open", path, err))?;
    }
    Ok(here)
}

fn open_dir(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(root, path, DIRECTORY, Mode::empty(), INSIDE)
}

fn parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> Result<(OwnedFd, &'a Path), Failure> {
    let name = path.file_name().ok_or_else(|| refused("the archive", "an entry has no name"))?;
    let above = path.parent().unwrap_or(Path::new(""));
    Ok((directory(root, above)?, Path::new(name)))
}

/// Makes a new file in place of what has this name.
fn create(parent: &OwnedFd, name: &Path, mode: Mode) -> rustix::io::Result<OwnedFd> {
    remove_file(parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(parent, name, flags, Mode::from_raw_mode(0o600), INSIDE)?;
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}

fn remove_file(parent: &OwnedFd, name: &Path) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(err) => Err(err),
    }
}

/// Another name of a regular file of the archive.
fn link(root: BorrowedFd<'_>, target: &Path, path: &Path) -> Result<(), Failure> {
    let (from, old) = parent(root, target)?;
    let (to, new) = parent(root, path)?;
    let stat =
        rustix::fs::statat(&from, old, AtFlags::SYMLINK_NOFOLLOW).map_err(|err| failed("link to", target, err))?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(refused(&path.display().to_string(), "it is a link to something that is no file"));
    }
    remove_file(&to, new).map_err(|err| failed("replace", path, err))?;
    rustix::fs::linkat(&from, old, &to, new, AtFlags::empty()).map_err(|err| failed("make", path, err))
}

const UNTAR: &str = "unable to untar files from endpoint";

fn refused(what: &str, why: &str) -> Failure {
    Failure::data(format!("{UNTAR}: {what} is refused: {why}"))
}

fn too_large(limit: u64) -> Failure {
    Failure::too_large(format!(
        "{UNTAR}: the files take more than the volume's {limit} bytes. A larger PVC is required"
    ))
}

fn failed(doing: &str, path: &Path, err: Errno) -> Failure {
    let text = format!("{UNTAR}: cannot {doing} {}: {err}", path.display());
    match err {
        Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS => Failure::machine(text),
        // A name that is a link already, or a directory, or too long: the archive's doing.
        _ => Failure::data(text),
    }
}

/// Reading the archive failed, or writing the file.
fn copied(path: &Path, err: io::Error) -> Failure {
    match err.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => failed("write", path, errno),
        None => broken(err),
    }
}

fn broken(err: io::Error) -> Failure {
    Failure::of_stream(UNTAR, err)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tar::Header;
    use tempfile::TempDir;

    use super::*;

    fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        // As an attacker would write it: the library's own checks are for those who mean well.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o640);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn unpacked(parts: &[Vec<u8>]) -> (TempDir, Result<u64, Failure>) {
        let outer = TempDir::new().unwrap();
        fs::create_dir(outer.path().join("volume")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        let volume = fs::File::open(outer.path().join("volume")).unwrap();
        let stream = [parts.concat(), vec![0; 1024]].concat();
        let result = unpack(&stream[..], volume.as_fd(), 1 << 20);
        assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 2, "nothing outside");
        (outer, result)
    }

    #[test]
    fn files_directories_and_links_inside_are_unpacked() {
        let (dir, result) = unpacked(&[
            entry(EntryType::Directory, "./", "", b""),
            entry(EntryType::Directory, "a/", "", b""),
            entry(EntryType::Regular, "./a/b", "", b"hello"),
            entry(EntryType::Regular, "deep/er/c", "", b"c"),
            entry(EntryType::Symlink, "a/up", "../deep/er/c", b""),
            entry(EntryType::Link, "hard", "a/b", b""),
            entry(EntryType::Regular, "a/b", "", b"newer"),
        ]);
        assert_eq!(result.unwrap(), 11);
        let root = dir.path().join("volume");
        assert_eq!(fs::read_to_string(root.join("a/b")).unwrap(), "newer");
        assert_eq!(fs::read_to_string(root.join("hard")).unwrap(), "hello");
        assert_eq!(fs::read_to_string(root.join("a/up")).unwrap(), "c");
        assert_eq!(fs::metadata(root.join("a/b")).unwrap().permissions().mode() & 0o7777, 0o640);
        let volume = fs::File::open(&root).unwrap();
        fs::create_dir(root.join(KEPT)).unwrap();
        clear(volume.as_fd()).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn what_leads_out_and_what_is_no_file_is_refused() {
        let file = |name: &str| entry(EntryType::Regular, name, "", b"x");
        let link = |name: &str, to: &str| entry(EntryType::Symlink, name, to, b"");
        let bad: Vec<(&str, Vec<Vec<u8>>)> = vec![
            ("..", vec![file("../secret")]),
            (".. inside", vec![file("a/../../secret")]),
            ("absolute", vec![file("/etc/evil")]),
            ("absolute link", vec![link("l", "/etc/shadow")]),
            ("link out", vec![link("l", "../secret")]),
            ("link out of a directory", vec![link("a/l", "../../secret")]),
            ("through a link", vec![link("l", "a"), file("l/x")]),
            ("hard link out", vec![entry(EntryType::Link, "h", "../secret", b"")]),
            ("hard link to a link", vec![link("l", "a"), entry(EntryType::Link, "h", "l", b"")]),
            ("device", vec![entry(EntryType::Char, "null", "", b"")]),
            ("block device", vec![entry(EntryType::Block, "sda", "", b"")]),
            ("pipe", vec![entry(EntryType::Fifo, "pipe", "", b"")]),
            ("no name", vec![file("./")]),
        ];
        for (name, parts) in bad {
            let (_dir, result) = unpacked(&parts);
            assert!(result.is_err(), "{name}");
        }
    }

    #[test]
    fn a_sum_of_sizes_beyond_the_volume_and_a_cut_off_archive_are_refused() {
        let big = vec![1; 600_000];
        let part = entry(EntryType::Regular, "a", "", &big);
        let (_dir, result) = unpacked(&[part.clone(), part.clone()]);
        assert_eq!(result.unwrap_err().reason, crate::reasons::TOO_LARGE);
        let (_dir, result) = unpacked(&[part[..5000].to_vec()]);
        assert!(result.is_err());
        let (_dir, result) = unpacked(&[b"this is no archive".repeat(100)]);
        assert!(result.is_err());
    }
}

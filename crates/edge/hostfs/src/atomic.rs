//! Atomic file writes: write to a temporary file, sync, rename, and sync the directory, so that a crash or power loss
//! at any point leaves either the old content or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Result, absent_is_fine};

/// Replaces `path` with `bytes`, readable by the owner only.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_mode(path, bytes, 0o600)
}

/// Replaces `path` with `bytes` and the permissions `mode`.
pub fn write_mode(path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
    let path = path.as_ref();
    let temporary = temporary_beside(path);
    let result = write_new(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result.and_then(|()| sync_parent(path)).doing("write", path)
}

/// Replaces `path` with `value` as JSON.
pub fn write_json<T: Serialize>(path: impl AsRef<Path>, value: &T) -> Result<()> {
    let path = path.as_ref();
    let bytes = serde_json::to_vec_pretty(value).doing("encode", path)?;
    write(path, &bytes)
}

/// Reads JSON written by [`write_json`]; `None` if the file does not exist.
pub fn read_json<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<Option<T>> {
    let path = path.as_ref();
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).doing("decode", path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).doing("read", path),
    }
}

/// Removes a file durably; succeeds if it is absent.
pub fn remove(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    absent_is_fine(fs::remove_file(path).and_then(|()| sync_parent(path)).doing("remove", path))
}

/// Removes what writers that were killed have left in a directory. For the directory's only writer, before it writes.
pub fn sweep(directory: impl AsRef<Path>) -> Result<()> {
    let directory = directory.as_ref();
    for entry in fs::read_dir(directory).doing("list", directory)? {
        let entry = entry.doing("list", directory)?;
        if is_temporary(&entry.file_name().to_string_lossy()) {
            absent_is_fine(fs::remove_file(entry.path()).doing("remove", entry.path()))?;
        }
    }
    Ok(())
}

/// Whether [`temporary_beside`] has made the name.
fn is_temporary(name: &str) -> bool {
    let middle = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp"));
    let numbers = middle.and_then(|middle| middle.rsplit_once('.')).and_then(|(_, numbers)| numbers.split_once('-'));
    numbers.is_some_and(|(pid, n)| pid.parse::<u32>().is_ok() && n.parse::<u64>().is_ok())
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The umask restricted the mode of the open above.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A unique name, made of the PID and a counter. The leading dot makes directory scans skip what a killed writer left
/// behind.
fn temporary_beside(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_write_replaces_the_content_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write(&path, b"one").unwrap();
        write_mode(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_the_directory_clean() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        let error = write(&path, b"x").unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", path.display()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let left = temporary_beside(&dir.path().join("a.b"));
        let kept = [".hidden", ".hidden.tmp", ".a.7.tmp", "a.7-1.tmp", ".a.7-x.tmp"];
        for name in kept.iter().map(|name| dir.path().join(name)).chain([left.clone()]) {
            fs::write(name, "").unwrap();
        }
        sweep(dir.path()).unwrap();
        assert!(!left.exists());
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
    }

    #[test]
    fn json_that_is_absent_is_none_and_json_that_is_broken_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.json");
        assert_eq!(read_json::<Vec<u8>>(&path).unwrap(), None);
        write_json(&path, &vec![1u8, 2]).unwrap();
        assert_eq!(read_json::<Vec<u8>>(&path).unwrap(), Some(vec![1, 2]));
        fs::write(&path, "[1,").unwrap();
        assert!(read_json::<Vec<u8>>(&path).is_err());
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}

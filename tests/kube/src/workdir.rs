//! The directory of one control plane.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "ferrovirt-kube-";

/// Present in directories whose owner has locked them. One without it is only just being made.
const LOCKED: &str = "locked";

/// A directory that goes when this value does. Its lock lasts as long as its owner, so that what a killed test left can be
/// told from what another test uses.
pub(crate) struct Workdir {
    directory: TempDir,
    _lock: File,
}

impl Workdir {
    /// Makes a directory, and removes those whose owners are gone.
    pub(crate) fn new() -> Result<Workdir> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let doing = || format!("cannot make a directory in {}", parent.display());
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).with_context(doing)?;
        let lock = File::open(directory.path()).with_context(doing)?;
        lock.lock().with_context(doing)?;
        fs::write(directory.path().join(LOCKED), "").with_context(doing)?;
        Ok(Workdir { directory, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what killed tests left. That somebody else's cannot be removed is no harm to this test.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && path.join(LOCKED).exists()
            && let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lives_as_long_as_its_owner_and_one_without_owner_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, locked: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            if locked {
                fs::write(path.join(LOCKED), "").unwrap();
            }
            path
        };
        let [owned, left, new, other] =
            [("ferrovirt-kube-1", true), ("ferrovirt-kube-2", true), ("ferrovirt-kube-3", false), ("else", true)]
                .map(|(name, locked)| make(name, locked));
        let owner = File::open(&owned).unwrap();
        owner.lock().unwrap();
        sweep(parent.path());
        assert_eq!([&owned, &left, &new, &other].map(|path| path.exists()), [true, false, true, true]);
        drop(owner);
        sweep(parent.path());
        assert!(!owned.exists());
    }

    #[test]
    fn a_directory_goes_with_its_value() {
        let workdir = Workdir::new().unwrap();
        let path = workdir.path().to_owned();
        assert!(path.join(LOCKED).exists());
        drop(workdir);
        assert!(!path.exists());
    }
}

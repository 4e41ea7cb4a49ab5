//! The directory of one cluster, and what is removed when its owner is gone.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

const PREFIX: &str = "ferrovirt-cluster-";

/// Present in directories whose owner has locked them. One without it is only just being made.
const LOCKED: &str = "locked";

const SWEEP: &str = include_str!("../scripts/sweep.sh");

/// A directory whose name is the cluster's: its control groups are called so, too. It goes with this value, or with the
/// process that holds it.
pub(crate) struct Home {
    path: PathBuf,
    name: String,
    sweeper: Child,
    _lock: File,
}

impl Home {
    /// Makes a directory, and removes what owners left who were killed together with their sweepers.
    pub(crate) fn new(parent: &Path) -> Result<Home> {
        let doing = || format!("cannot make a directory for the cluster in {}", parent.display());
        sweep_left(parent).with_context(doing)?;
        // Others may pass through: images have files for users other than root.
        let access = fs::Permissions::from_mode(0o755);
        let path = tempfile::Builder::new().prefix(PREFIX).permissions(access).tempdir_in(parent);
        let path = path.with_context(doing)?.keep();
        let lock = File::open(&path).with_context(doing)?;
        lock.lock().with_context(doing)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // From here on the directory has somebody to remove it.
        let sweeper = sweep(&path, Stdio::piped()).with_context(doing)?;
        let home = Home { path, name, sweeper, _lock: lock };
        fs::write(home.path.join(LOCKED), "").with_context(doing)?;
        for folder in ["log", "pki", "nodes"] {
            fs::create_dir(home.path.join(folder)).with_context(doing)?;
        }
        Ok(home)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The output of the control plane's programs, and of each node's first program.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    /// The root directory of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.path.join("nodes").join(name)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait(); // whatever it could not remove, the next cluster removes
    }
}

/// Starts the sweeper of a directory. It begins as soon as its input ends, and is not bound to this process.
fn sweep(directory: &Path, input: Stdio) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", SWEEP, "sweep"]).arg(directory.file_name().unwrap_or_default()).arg(directory);
    command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).current_dir("/");
    command.spawn().context("cannot start a shell")
}

fn sweep_left(parent: &Path) -> Result<()> {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && path.join(LOCKED).exists()
            && let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            sweep(&path, Stdio::null())?.wait().context("cannot wait for a shell")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_owner_and_one_without_owner_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let new = parent.path().join(format!("{PREFIX}new"));
        fs::create_dir_all(left.join("nodes/n1")).unwrap();
        fs::write(left.join(LOCKED), "").unwrap();
        fs::create_dir(&new).unwrap();
        let home = Home::new(parent.path()).unwrap();
        let second = Home::new(parent.path()).unwrap();
        assert_eq!([home.path(), second.path(), &left, &new].map(Path::exists), [true, true, false, true]);
        assert_ne!(home.name(), second.name());
        let path = home.path().to_owned();
        drop(home);
        assert_eq!([&path, second.path()].map(Path::exists), [false, true]);
    }
}

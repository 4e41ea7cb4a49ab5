//! Other projects' programs for tests that compare with them or run against them. `cargo xtask peers` builds them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why there are no such programs.
#[derive(Debug)]
pub enum Absence {
    /// This machine cannot build them: no Go, or no way to the modules.
    Unavailable(String),
    /// Building them fails.
    Broken(String),
}

/// Builds the named peers, unless they are there, and tells which folder holds them. What the build has to say goes to the
/// error stream.
pub fn build(name: &str) -> Result<PathBuf, Absence> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace)
        .args(["run", "-q", "-p", "xtask", "--", "peers", name])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|err| Absence::Broken(format!("cannot run cargo: {err}")))?;
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(3) => Err(Absence::Unavailable(format!("the programs of {name} cannot be built here (see above)"))),
        _ => Err(Absence::Broken(format!("building the programs of {name} failed (see above)"))),
    }
}

/// As [`build`], for a test: nothing where this machine cannot build them, which is told loudly. In CI, and when the build
/// itself fails, that is an error.
pub fn build_or_skip(name: &str, what: &str) -> Result<Option<PathBuf>, String> {
    match build(name) {
        Ok(folder) => Ok(Some(folder)),
        Err(Absence::Unavailable(reason)) if std::env::var("CI").is_ok_and(|ci| ci == "true") => Err(reason),
        Err(Absence::Unavailable(reason)) => {
            eprintln!("SKIPPED: {what}: {reason}");
            Ok(None)
        }
        Err(Absence::Broken(reason)) => Err(reason),
    }
}

//! Which test binaries the workspace has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::run::Job;

/// A test binary that cargo has built.
#[derive(Debug, PartialEq)]
pub(super) struct Binary {
    pub(super) package: String,
    /// The name of an integration test; `lib` or `bin` for unit tests.
    pub(super) target: String,
    pub(super) executable: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    pub(super) folder: PathBuf,
}

impl Binary {
    /// `package::target`, which no other has.
    pub(super) fn name(&self) -> String {
        format!("{}::{}", self.package, self.target)
    }

    /// A run of all its tests, as cargo would run them.
    pub(super) fn job(&self, root: &Path) -> Job {
        let job = Job::new(self.name(), self.executable.clone(), self.folder.clone());
        job.with_env("CARGO_MANIFEST_DIR", &self.folder)
            .with_env("FERROVIRT_GUEST_DIR", root.join("build/guest"))
            .with_env("FERROVIRT_BIN", root.join("target/debug/ferrovirt"))
    }
}

/// Builds all tests of the workspace, and with them the program.
///
/// The whole workspace at once: another selection of packages would give their dependencies other features, and most of
/// them would be built once more.
pub(super) fn build(root: &Path) -> Result<Vec<Binary>> {
    let binaries = build_some(root, &["--workspace"])?;
    let program = root.join("target/debug/ferrovirt");
    if !program.exists() {
        bail!("{} was not built; is another target directory set for cargo?", program.display());
    }
    Ok(binaries)
}

/// Builds the tests of a package, optimised: worth the minutes for what computes longer than that.
pub(super) fn build_optimised(root: &Path, package: &str) -> Result<Vec<Binary>> {
    build_some(root, &["--profile", "bench-fast", "--package", package])
}

fn build_some(root: &Path, selection: &[&str]) -> Result<Vec<Binary>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["test", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(selection)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo test")?;
    if !output.status.success() {
        bail!("the tests do not build ({})", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages are no text")?;
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("cargo printed: {line}"))?;
        binaries.extend(binary(&message));
    }
    Ok(binaries)
}

/// The test binary that a message of cargo's tells of, if any.
fn binary(message: &Value) -> Option<Binary> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    Some(Binary {
        package: package(message["package_id"].as_str()?)?.to_owned(),
        target: target(&message["target"])?.to_owned(),
        executable: message["executable"].as_str().filter(|_| is_test)?.into(),
        folder,
    })
}

fn target(target: &Value) -> Option<&str> {
    match target["kind"][0].as_str()? {
        "test" => target["name"].as_str(),
        kind => Some(kind),
    }
}

/// The name in a package's id: `path+file:///src/crates/plan#0.1.0`, or `…/src/tests/controller#controller-tests@0.1.0`
/// where the folder has another name.
fn package(id: &str) -> Option<&str> {
    let (path, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_known_by_their_ids() {
        assert_eq!(package("path+file:///src/crates/decide/plan#0.1.0"), Some("plan"));
        assert_eq!(package("path+file:///src/tests/controller#controller-tests@0.1.0"), Some("controller-tests"));
    }

    #[test]
    fn only_artifacts_with_tests_are_run() {
        let message = |test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": "path+file:///src/crates/decide/plan#0.1.0",
                "manifest_path": "/src/crates/decide/plan/Cargo.toml", "target": {"kind": ["lib"], "name": "plan"},
                "profile": {"test": test}, "executable": executable,
            })
        };
        let found = binary(&message(true, "/src/target/debug/deps/plan-1".into()));
        assert_eq!(found.as_ref().map(Binary::name).as_deref(), Some("plan::lib"));
        assert_eq!(found.map(|found| found.folder), Some(PathBuf::from("/src/crates/decide/plan")));
        assert_eq!(binary(&message(false, "/src/target/debug/ferrovirt".into())), None);
        assert_eq!(binary(&message(true, Value::Null)), None);
    }
}

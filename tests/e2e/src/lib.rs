//! Parts of the end-to-end tests: manifests, the cluster they share, and looks at the machine's processes.
//!
//! A test reads like `Guest::spawn → wait_to_boot → run_shell_command`; what drives the cluster is `drive`.

pub mod cluster;
pub mod kubernetes;
pub mod launchers;
pub mod manifest;
pub mod outages;
pub mod processes;
pub mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The program under test: `FERROVIRT_BIN`, or the debug build of this workspace.
pub fn program() -> Result<PathBuf> {
    let path = match std::env::var_os("FERROVIRT_BIN") {
        Some(path) => PathBuf::from(path),
        None => workspace().join("target/debug/ferrovirt"),
    };
    path.canonicalize().with_context(|| format!("{} is not there; build it with `make build`", path.display()))
}

/// The test guest: `FERROVIRT_GUEST_DIR`, or where `make guest` puts it.
pub fn guest_dir() -> Result<PathBuf> {
    let path = std::env::var_os("FERROVIRT_GUEST_DIR").map_or_else(|| workspace().join("build/guest"), PathBuf::from);
    if !path.join("kernel").is_dir() {
        bail!("there is no test guest in {}; build it with `make guest`", path.display());
    }
    Ok(path)
}

/// KubeVirt's own virtctl with these arguments, or none where it cannot be built.
pub fn upstream_virtctl(kubeconfig: &Path, args: &[&str]) -> Result<Option<Command>> {
    let folder = peers::build_or_skip("kubevirt/virtctl", "KubeVirt's virtctl").map_err(anyhow::Error::msg)?;
    Ok(folder.map(|folder| {
        let mut command = Command::new(folder.join("virtctl"));
        command.args(args).env("KUBECONFIG", kubeconfig);
        command
    }))
}

pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

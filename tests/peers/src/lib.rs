//! Other projects' programs for tests that compare with them or run against them. `cargo xtask peers` builds them.

pub mod virt_controller;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the named peers, or one program as in `kubevirt/judge`, unless they are there, and tells which folder holds them. What the build has to say goes to the
/// error stream.
///
/// Where this machine cannot build them, for want of Go or of a way to the modules, that is told loudly and there is no
/// folder: `what` says what is not tested then. In CI that is an error, and so is a build that fails.
pub fn build_or_skip(name: &str, what: &str) -> Result<Option<PathBuf>, String> {
    Ok(folders_or_skip(name, what)?.map(|text| PathBuf::from(text.trim())))
}

/// The folders of programs that a cluster with nodes needs.
#[derive(Clone, Debug)]
pub struct NodePrograms {
    /// etcd and all of Kubernetes.
    pub kube: PathBuf,
    pub containerd: PathBuf,
    pub cni: PathBuf,
    pub multus: PathBuf,
    pub coredns: PathBuf,
}

impl NodePrograms {
    /// Builds them all, or says why not, as [`build_or_skip`] does.
    pub fn build_or_skip(what: &str) -> Result<Option<NodePrograms>, String> {
        let Some(text) = folders_or_skip("nodes", what)? else { return Ok(None) };
        let folders: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
        let [kube, containerd, cni, multus, coredns]: [PathBuf; 5] =
            folders.try_into().map_err(|found| format!("five folders were expected, not {found:?}"))?;
        Ok(Some(NodePrograms { kube, containerd, cni, multus, coredns }))
    }
}

/// What `xtask peers` prints: a folder on each line.
fn folders_or_skip(name: &str, what: &str) -> Result<Option<String>, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace)
        .args(["run", "-q", "-p", "xtask", "--", "peers", name])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|err| format!("cannot run cargo: {err}"))?;
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        Some(3) => {
            test_support::try_skip(&format!("{what}: the programs of {name} cannot be built here (see above)"))?;
            Ok(None)
        }
        _ => Err(format!("building the programs of {name} failed (see above)")),
    }
}

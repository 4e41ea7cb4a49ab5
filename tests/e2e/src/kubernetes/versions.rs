//! Versions of the system on one cluster: from which, and to which it is updated.
//!
//! What tells versions apart is the tag of their images. By default all are what was built last, under several tags. With
//! `FERROVIRT_E2E_PREVIOUS` the first one comes from archives of an earlier commit, as `make images` writes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{Kubernetes, NODES, images};

/// A folder with the archives of the version before.
const PREVIOUS: &str = "FERROVIRT_E2E_PREVIOUS";
/// The images that an installation runs.
const PROGRAMS: [&str; 2] = ["ferrovirt", "virt-launcher"];
/// Where the program is in its image.
const PROGRAM: &str = "usr/bin/ferrovirt";

/// A version whose images all nodes have.
pub struct Version {
    pub tag: &'static str,
    program: PathBuf,
    /// Where the program was unpacked.
    _folder: Option<TempDir>,
}

impl Version {
    /// What an administrator of this version has, to install it with.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The image of launchers of this version.
    pub fn launcher(&self) -> String {
        format!("{}/virt-launcher:{}", images::PREFIX, self.tag)
    }
}

/// The version that is there first.
pub fn before(kubernetes: &Kubernetes) -> Result<Version> {
    const TAG: &str = "v0.0.1";
    let Some(archives) = std::env::var_os(PREVIOUS).map(PathBuf::from) else { return built(kubernetes, TAG) };
    let folder = tempfile::tempdir().context("cannot make a directory")?;
    let archive = |name: &str| archives.join(format!("{name}.tar"));
    let unpacked = oci_image::unpack(&archive("ferrovirt"), folder.path())
        .with_context(|| format!("{PREVIOUS} is {}", archives.display()))?;
    let name = unpacked.name.context("the image in ferrovirt.tar has no name")?;
    let (prefix, tag) = name.rsplit_once("/ferrovirt:").with_context(|| format!("{name} is not our image"))?;
    for name in PROGRAMS {
        kubernetes.cluster.import(&archive(name))?;
        rename(kubernetes, &format!("{prefix}/{name}:{tag}"), &format!("{}/{name}:{TAG}", images::PREFIX))?;
    }
    Ok(Version { tag: TAG, program: folder.path().join(PROGRAM), _folder: Some(folder) })
}

/// The version that comes after it.
pub fn after(kubernetes: &Kubernetes) -> Result<Version> {
    built(kubernetes, "v0.0.2")
}

/// The one that comes after both: the same programs, under another tag.
pub fn last(kubernetes: &Kubernetes) -> Result<Version> {
    built(kubernetes, "v0.0.3")
}

/// What was built last, as a version.
fn built(kubernetes: &Kubernetes, tag: &'static str) -> Result<Version> {
    for name in PROGRAMS {
        let image = |tag: &str| format!("{}/{name}:{tag}", images::PREFIX);
        rename(kubernetes, &image(images::TAG), &image(tag))?;
    }
    Ok(Version { tag, program: kubernetes.exe().to_owned(), _folder: None })
}

/// Gives an image a second name on all nodes.
fn rename(kubernetes: &Kubernetes, from: &str, to: &str) -> Result<()> {
    for node in 1..=NODES {
        let mut ctr = kubernetes.cluster.in_node(node, "ctr")?;
        ctr.args(["-n", "k8s.io", "images", "tag", "--force", from, to]);
        let output = ctr.output().context("cannot run ctr")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot name {from} {to} on node {node}: {}", complaint.trim());
    }
    Ok(())
}

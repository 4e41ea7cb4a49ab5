//! `docs/quickstart-kubernetes.md`, run as it stands.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use test_cluster::document::{Runner, blocks};

use super::Kubernetes;

const DOCUMENT: &str = "docs/quickstart-kubernetes.md";

/// Runs the document's commands on a cluster that has our images only. KubeVirt's own virtctl is used. None where it cannot be had.
pub fn run(kubernetes: &Kubernetes, show: bool) -> Result<Option<()>> {
    let virtctl = peers::build_or_skip("kubevirt/virtctl", "the quickstart with KubeVirt's virtctl");
    let Some(virtctl) = virtctl.map_err(anyhow::Error::msg)? else { return Ok(None) };
    let folder = tempfile::tempdir().context("cannot make a directory")?;
    let programs = [
        ("virtctl", virtctl.join("virtctl")),
        ("kubectl", kubernetes.kubectl().to_owned()),
        ("ferrovirt", kubernetes.exe().to_owned()),
    ];
    for (name, program) in programs {
        link(&program, &folder.path().join(name))?;
    }
    let workspace = crate::workspace();
    let document = workspace.join(DOCUMENT);
    let text = std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
    let runner = Runner { folder: &workspace, programs: folder.path(), kubeconfig: kubernetes.kubeconfig(), show };
    let mut under = String::new();
    for block in blocks(&text)? {
        if block.under != under {
            under.clone_from(&block.under);
            println!("\n## {under}");
        }
        let took = runner.run(&block).with_context(|| format!("in {DOCUMENT}"))?;
        println!("{DOCUMENT}:{} took {:.1} s", block.line, took.as_secs_f64());
    }
    Ok(Some(()))
}

fn link(program: &Path, name: &PathBuf) -> Result<()> {
    symlink(program, name).with_context(|| format!("cannot link {}", program.display()))
}

//! `docs/quickstart-kubernetes.md`, run as it stands.

use anyhow::Result;

use super::Kubernetes;
use super::documents::Document;

/// Runs the document's commands on a cluster that has our images only. KubeVirt's own virtctl is used. None where it cannot be had.
pub fn run(kubernetes: &Kubernetes, show: bool) -> Result<Option<()>> {
    let virtctl = peers::build_or_skip("kubevirt/virtctl", "the quickstart with KubeVirt's virtctl");
    let Some(virtctl) = virtctl.map_err(anyhow::Error::msg)? else { return Ok(None) };
    let document = Document::open("docs/quickstart-kubernetes.md", kubernetes)?;
    document.with_program("virtctl", &virtctl.join("virtctl"))?.run(kubernetes, show).map(Some)
}

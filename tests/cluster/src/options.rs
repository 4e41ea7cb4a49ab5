//! What a cluster is started with, and what the machine has to have.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use peers::NodePrograms;

use crate::address::MOST_NODES;

/// Programs of the machine that a cluster calls. `tools/setup.sh kube` installs them.
const TOOLS: [&str; 8] = ["ip", "nft", "nsenter", "sysctl", "cc", "cp", "runc", "bash"];

/// What a cluster is started with: `Options { nodes: 2, ..Options::new(programs) }`.
#[derive(Clone, Debug)]
pub struct Options {
    pub programs: NodePrograms,
    /// From 1 to 9.
    pub nodes: u8,
    /// OCI archives that every node has from the start. Their names need a tag other than `latest`.
    pub images: Vec<PathBuf>,
    /// What a node says it has: each sees the memory of the whole machine.
    pub node_memory_mib: u64,
    /// How long a node may be silent before it is NotReady. The kubelet renews its lease every three seconds.
    pub grace: Duration,
    /// Further flags of kube-apiserver.
    pub apiserver_flags: Vec<String>,
    /// Where the cluster's directory is made: gigabytes, on a file system that overlayfs can write to.
    pub parent: PathBuf,
    /// Is told what has been reached.
    pub progress: fn(&str),
}

impl Options {
    /// Three nodes without images.
    pub fn new(programs: NodePrograms) -> Options {
        Options {
            programs,
            nodes: 3,
            images: Vec::new(),
            node_memory_mib: 6144,
            grace: Duration::from_secs(20),
            apiserver_flags: Vec::new(),
            parent: PathBuf::from("/var/tmp"),
            progress: |_| (),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let possible = 1..=MOST_NODES;
        ensure!(possible.contains(&self.nodes), "a cluster has 1 to {MOST_NODES} nodes, not {}", self.nodes);
        if let Some(missing) = missing() {
            anyhow::bail!("a cluster cannot run here: {missing}; run `tools/setup.sh kube` as root");
        }
        Ok(())
    }
}

/// Why a cluster cannot run on this machine, if so.
fn missing() -> Option<String> {
    test_support::namespaces::missing(&TOOLS)
}

/// The programs of nodes, if this machine can have them and run them. Where it cannot, that is told loudly; in CI it is an error.
pub fn programs_or_skip(what: &str) -> Result<Option<NodePrograms>, String> {
    match missing() {
        None => NodePrograms::build_or_skip(what),
        Some(missing) => {
            test_support::try_skip(&format!("{what}: {missing}; run `tools/setup.sh kube` as root"))?;
            Ok(None)
        }
    }
}

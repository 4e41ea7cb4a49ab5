//! Where an embedded cluster keeps its things below its data directory.

use std::path::{Path, PathBuf};

/// The data directory when none is given.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/ferrovirt";

/// Names below one data directory. It opens nothing; whoever writes a file says so.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub fn store(&self) -> PathBuf {
        self.root.join("store.redb")
    }

    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Held with flock by the one supervisor of this directory.
    pub fn lock(&self) -> PathBuf {
        self.run().join("lock")
    }

    /// What was made on this machine: enough for `down` after any crash.
    pub fn record(&self) -> PathBuf {
        self.run().join("cluster.json")
    }

    /// Whether KVM works on this machine, found out once per boot.
    pub fn kvm_finding(&self) -> PathBuf {
        self.run().join("kvm.json")
    }

    pub fn netns(&self, name: &str) -> PathBuf {
        self.run().join("netns").join(name)
    }

    pub fn node(&self, node: &str) -> PathBuf {
        self.root.join("nodes").join(node)
    }

    pub fn pods(&self, node: &str) -> PathBuf {
        self.node(node).join("pods")
    }

    pub fn handler_private(&self, node: &str) -> PathBuf {
        self.node(node).join("handler")
    }
}

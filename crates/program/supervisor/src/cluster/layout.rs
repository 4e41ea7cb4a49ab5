//! File layout of an embedded cluster below its data directory.

use std::path::{Path, PathBuf};

/// The data directory when none is given.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/ferrovirt";

/// Paths below a data directory. Nothing is opened or created here.
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

    /// The volumes and snapshots of the cluster.
    pub fn pool(&self) -> PathBuf {
        self.root.join("pool")
    }

    /// Where images are kept while they are converted, on the file system of the pool.
    pub fn imports(&self) -> PathBuf {
        self.root.join("imports")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The lock file: the supervisor of this directory holds it with flock.
    pub fn lock(&self) -> PathBuf {
        self.run().join("lock")
    }

    /// The record of everything created on this machine, so that `down` works after any crash.
    pub fn record(&self) -> PathBuf {
        self.run().join("cluster.json")
    }

    /// Where nodes ask for images.
    pub fn pull_socket(&self) -> PathBuf {
        self.run().join("pull.sock")
    }

    /// How registries are reached; a user's file.
    pub fn registries(&self) -> PathBuf {
        self.root.join("registries.json")
    }

    /// Caches whether KVM works on this machine, once per boot.
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

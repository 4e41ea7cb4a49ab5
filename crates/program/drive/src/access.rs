//! How a cluster of either shape is reached from outside: by its API, by our command line, and in its Pods.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use supervisor::cluster::kubeconfig;

/// What differs between the shapes below the API.
pub trait Nodes: Debug + Send + Sync {
    /// The directory of a node's Pods on this machine, laid out as the kubelet does.
    fn pods(&self, node: &str) -> PathBuf;

    /// The spec of a Pod whose container `client` sleeps and has `sh`, `ping` and `curl`.
    fn client_spec(&self) -> Value;

    /// Runs a command in the container `client` of a Pod.
    fn run_in_pod(&self, pod: &PodPlace, argv: &[String]) -> Result<Output>;
}

/// Where a Pod is.
#[derive(Clone, Debug)]
pub struct PodPlace {
    pub node: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A cluster as its administrator reaches it.
#[derive(Clone, Debug)]
pub struct Access {
    exe: PathBuf,
    kubeconfig: PathBuf,
    nodes: Arc<dyn Nodes>,
}

impl Access {
    pub fn new(exe: PathBuf, kubeconfig: PathBuf, nodes: Arc<dyn Nodes>) -> Self {
        Self { exe, kubeconfig, nodes }
    }

    pub fn exe(&self) -> &Path {
        &self.exe
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client with admin rights.
    pub async fn client(&self) -> Result<kube::Client> {
        kubeconfig::client_from_file(&self.kubeconfig).await
    }

    /// A command of the program, with this cluster's kubeconfig.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// The directory of a node's Pods.
    pub fn pods(&self, node: &str) -> PathBuf {
        self.nodes.pods(node)
    }

    pub(crate) fn client_spec(&self) -> Value {
        self.nodes.client_spec()
    }

    pub(crate) async fn run_in_pod(&self, pod: &PodPlace, argv: &[&str]) -> Result<Output> {
        let (nodes, pod) = (self.nodes.clone(), pod.clone());
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        tokio::task::spawn_blocking(move || nodes.run_in_pod(&pod, &argv))
            .await
            .context("the thread that runs the command panicked")?
            .context("cannot run a command in the client Pod")
    }
}

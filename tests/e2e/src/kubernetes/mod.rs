//! A real Kubernetes cluster with an installation of ours on it.
//!
//! n1 and n2 run guests, as in the embedded cluster; n3 is the node of the control plane, as `kubeadm` would mark it, and has
//! virt-api, virt-controller and virt-operator.

pub mod documents;
pub mod images;
mod installation;
pub mod quickstart;
pub mod versions;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use drive::{Access, Nodes, PodPlace};
use hostfs::process::ProcessId;
use serde_json::{Value, json};
use test_cluster::{Cluster, Options};

use crate::{processes, traces};

/// The node of the control plane.
pub const CONTROL_PLANE: &str = "n3";
const NODES: u8 = 3;

/// The cluster and everything on it go with this value.
pub struct Kubernetes {
    access: Access,
    kubectl: PathBuf,
    cluster: Cluster,
}

/// What is installed, and on what.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub build: images::Build,
    /// Of each Deployment.
    pub replicas: u8,
    /// What a node says it has; the cluster's own choice if there is none.
    pub node_memory_mib: Option<u64>,
    /// Further flags of kube-apiserver.
    pub apiserver_flags: Vec<String>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { build: images::Build::Dev, replicas: 1, node_memory_mib: None, apiserver_flags: Vec::new() }
    }
}

/// The same machine is below all nodes.
#[derive(Debug)]
struct RealNodes {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    /// The directory of the nodes' disks.
    disks: PathBuf,
}

impl Kubernetes {
    /// Starts a cluster and installs the program on it. None where the machine cannot run one, which is told loudly and is an error in CI.
    pub fn start(program: &Path) -> Result<Option<Self>> {
        Self::start_with(program, &Wanted::default())
    }

    pub fn start_with(program: &Path, wanted: &Wanted) -> Result<Option<Self>> {
        let Some(kubernetes) = Self::bare_with(program, wanted)? else { return Ok(None) };
        installation::install(&kubernetes, wanted.replicas).with_context(|| kubernetes.report())?;
        Ok(Some(kubernetes))
    }

    /// A cluster that has our images, and nothing of ours installed.
    pub fn bare(program: &Path) -> Result<Option<Self>> {
        Self::bare_with(program, &Wanted::default())
    }

    fn bare_with(program: &Path, wanted: &Wanted) -> Result<Option<Self>> {
        let programs = test_cluster::programs_or_skip("guests on a real cluster").map_err(anyhow::Error::msg)?;
        let Some(programs) = programs else { return Ok(None) };
        let folder = tempfile::tempdir().context("cannot make a directory")?;
        let images = images::all(folder.path(), wanted.build)?;
        let kubectl = programs.kube.join("kubectl");
        let progress = |what: &str| eprintln!("{what}");
        let mut options = Options { nodes: NODES, images, progress, ..Options::new(programs) };
        options.node_memory_mib = wanted.node_memory_mib.unwrap_or(options.node_memory_mib);
        options.apiserver_flags.extend(wanted.apiserver_flags.iter().cloned());
        let cluster = Cluster::start(options)?;
        let kubeconfig = cluster.kubeconfig().to_owned();
        let nodes = RealNodes {
            kubectl: kubectl.clone(),
            kubeconfig: kubeconfig.clone(),
            disks: cluster.folder().join("nodes"),
        };
        let access = Access::new(program.to_owned(), kubeconfig, Arc::new(nodes));
        installation::mark_control_plane(&cluster)?;
        Ok(Some(Self { access, kubectl, cluster }))
    }

    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Processes of this cluster as [`processes::find`] finds them: others may run beside it.
    pub fn processes(&self, comm: &str, word: &str) -> Vec<ProcessId> {
        (1..=NODES).flat_map(|node| self.processes_on(self.cluster.node_name(node), comm, word)).collect()
    }

    /// The same on one node.
    pub fn processes_on(&self, node: &str, comm: &str, word: &str) -> Vec<ProcessId> {
        let mut found = processes::find(comm, word);
        // Everything on a node is in control groups of its own.
        found.retain(|process| processes::in_group(process, &[self.cluster.name(), node]));
        found
    }

    /// What is left on a node of Pods: see [`Cluster::traces`](crate::cluster::Cluster::traces).
    pub(crate) fn traces(&self, node: &str) -> Result<Vec<(&'static str, String)>> {
        let number = node.strip_prefix('n').and_then(|number| number.parse().ok());
        let number = number.with_context(|| format!("{node} is not the name of a node"))?;
        let print = |program: &str, args: &[&str]| -> Result<String> {
            let output = self.cluster.in_node(number, program)?.args(args).output();
            let output = output.with_context(|| format!("cannot run {program} on {node}"))?;
            let complaint = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{program} {args:?} on {node}: {}", complaint.trim());
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let mut traces: Vec<_> = traces::below(traces::POD, &self.pods(node));
        let private = "/var/run/kubevirt-private";
        for folder in ["ghost-records", "network-info-cache"] {
            let names = print("ls", &["-1", &format!("{private}/{folder}")])?;
            traces.extend(names.lines().map(|name| (traces::RECORD, name.to_owned())));
        }
        for mount in print("cat", &["/proc/self/mounts"])?.lines() {
            let below = mount.split_once("/var/lib/kubelet/pods/").map(|(_, below)| below);
            let uid = below.and_then(|below| below.split(['/', ' ']).next());
            traces.extend(uid.map(|uid| (traces::MOUNT, uid.to_owned())));
        }
        Ok(traces)
    }

    /// What the cluster looks like, for an error: Pods, events, and the ends of all logs.
    pub fn report(&self) -> String {
        let looks = [
            &["get", "pods", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
            &["-n", "kubevirt", "logs", "-l", "kubevirt.io", "--prefix", "--tail=40"],
            &["get", "vm,vmi,vmim", "-A"],
        ];
        let look = |args: &&[&str]| {
            let seen = self.cluster.kubectl(args).unwrap_or_else(|err| format!("{err:#}"));
            format!("$ kubectl {}\n{seen}\n", args.join(" "))
        };
        looks.iter().map(look).collect::<String>() + &self.cluster.logs()
    }

    /// Makes the guest's kernel available under another name.
    pub fn import_kernel(&self, reference: &str) -> Result<()> {
        let folder = tempfile::tempdir().context("cannot make a directory")?;
        self.cluster.import(&images::kernel(folder.path(), reference)?)
    }
}

impl Deref for Kubernetes {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl Nodes for RealNodes {
    fn pods(&self, node: &str) -> PathBuf {
        self.disks.join(node).join("var/lib/kubelet/pods")
    }

    /// Programs and libraries are the node's own: those of this machine.
    fn client_spec(&self) -> Value {
        json!({
            "containers": [{
                "name": "client", "image": images::HOST, "command": ["sleep", "infinity"],
                "volumeMounts": [{"name": "usr", "mountPath": "/usr", "readOnly": true}],
            }],
            "volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}],
        })
    }

    fn run_in_pod(&self, pod: &PodPlace, argv: &[String]) -> Result<Output> {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.env("KUBECONFIG", &self.kubeconfig).args(["exec", "-n", &pod.namespace, &pod.name, "--"]).args(argv);
        kubectl.output().context("cannot run kubectl exec")
    }
}

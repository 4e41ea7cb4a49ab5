//! A cluster from its start to its end, and what can be done to it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::address;
use crate::control_plane::ControlPlane;
use crate::forward::Forward;
use crate::home::Home;
use crate::images;
use crate::network::{Cables, Hub};
use crate::node::{self, Node};
use crate::options::Options;
use crate::pki::{self, Pki};
use crate::run;
use crate::store;

/// How long a busy machine may take for each step.
const PATIENCE: Duration = Duration::from_secs(180);
/// How much of a log is shown.
const TAIL: usize = 15;

/// What every cluster gets, in this order: no Pod starts without the first.
const MANIFESTS: [&str; 2] = [include_str!("../manifests/multus.yaml"), include_str!("../manifests/dns.yaml")];

/// A running cluster. Everything of it goes with this value, or with the process that holds it.
pub struct Cluster {
    // In this order they go: the directory last, when no process uses it.
    nodes: Vec<Option<Node>>,
    control_plane: ControlPlane,
    hub: Hub,
    forward: Forward,
    kubeconfig: PathBuf,
    options: Options,
    home: Home,
}

impl Cluster {
    /// Starts a cluster, and waits until its nodes are Ready and DNS answers.
    pub fn start(options: Options) -> Result<Cluster> {
        options.check()?;
        let home = Home::new(&options.parent)?;
        let hub = Hub::new(options.nodes)?;
        let forward = Forward::reserve()?;
        let port = forward.port();
        let pki = Pki::new(&home.pki(), port)?;
        let server = format!("https://{}:{port}", Ipv4Addr::LOCALHOST);
        let kubeconfig = pki::write(home.path(), "kubeconfig", &pki.admin(&server))?;
        let control_plane = ControlPlane::start(&options, &home, &hub, &pki, port)?;
        forward.start(hub.netns.share()?)?;
        let nodes = Vec::new();
        let mut cluster = Cluster { nodes, control_plane, hub, forward, kubeconfig, options, home };
        let started = cluster.boot(&pki).and_then(|()| cluster.furnish());
        started.map_err(|err| err.context(cluster.logs()))?;
        Ok(cluster)
    }

    /// Images and nodes, while the API server starts.
    fn boot(&mut self, pki: &Pki) -> Result<()> {
        let images = self.home.path().join("images");
        fs::create_dir(&images).with_context(|| format!("cannot make {}", images.display()))?;
        let mut archives = images::of_every_cluster(&images, &self.options.programs.coredns)?;
        archives.extend(self.options.images.iter().cloned());
        let store = self.home.path().join("store");
        store::make(&store, &self.options.programs.containerd, &archives, &self.home.log())?;
        self.say("images are unpacked");
        let boot = |node| {
            node::make_disk(node, &self.options, &self.home, pki, &store)?;
            Node::boot(node, &self.options, &self.home, &self.hub)
        };
        let booted: Vec<Result<Node>> = thread::scope(|scope| {
            let boots: Vec<_> = (1..=self.options.nodes).map(|node| scope.spawn(move || boot(node))).collect();
            boots.into_iter().map(|boot| boot.join().unwrap_or_else(|_| bail!("a boot panicked"))).collect()
        });
        for node in booted {
            self.nodes.push(Some(node?));
        }
        // The nodes' links keep what is in them.
        for folder in [&store, &images] {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        self.say("nodes are booting");
        self.wait("the API server is ready", || self.kubectl(&["get", "--raw", "/readyz"]))?;
        self.say("the API server is ready");
        self.control_plane.complete(&self.options, &self.home, &self.hub, pki)?;
        (1..=self.options.nodes).try_for_each(|node| node::api_is_ready(&self.home.node(address::name(node))))
    }

    /// What runs in every cluster.
    fn furnish(&self) -> Result<()> {
        for manifest in MANIFESTS {
            self.wait("the API server takes objects", || self.apply(manifest))?;
        }
        (1..=self.options.nodes).try_for_each(|node| self.wait_ready(node))?;
        self.say(&format!("{} nodes are Ready", self.options.nodes));
        let dns = ["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=5s"];
        self.wait("DNS answers", || self.kubectl(&dns))?;
        self.say("DNS answers");
        Ok(())
    }

    fn say(&self, what: &str) {
        (self.options.progress)(what);
    }

    /// Waits, unless a program of the cluster has ended.
    fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        run::wait(PATIENCE, what, || {
            match self.check() {
                Ok(()) => look().map(Ok),
                Err(ended) => Ok(Err(ended)), // no use waiting
            }
        })?
    }

    /// An error with the end of the log if a program of the control plane, or the first one of a node, has ended.
    pub fn check(&self) -> Result<()> {
        self.control_plane.check()?;
        self.nodes.iter().flatten().try_for_each(Node::check)
    }

    /// The cluster's name: that of its directory and of its control groups.
    pub fn name(&self) -> &str {
        self.home.name()
    }

    /// The cluster's directory, for what a test keeps.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// The name of a node, from 1.
    pub fn node_name(&self, node: u8) -> &'static str {
        address::name(node)
    }

    /// How the administrator reaches the API server: from the machine, and from programs [`beside`](Self::beside) it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of the administrator, for the calling runtime.
    pub async fn client(&self) -> Result<kube::Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).context("cannot read our own kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        kube::Client::try_from(config.context("cannot use our own kubeconfig")?).context("cannot make a client")
    }

    /// Makes a program start in the network of the control plane, where it reaches nodes and Pods, and the API server reaches it
    /// at 10.77.0.1.
    pub fn beside(&self, command: &mut Command) -> Result<()> {
        self.hub.netns.enter(command)
    }

    /// kubectl of the administrator.
    pub fn kubectl_command(&self) -> Command {
        let mut kubectl = Command::new(self.options.programs.kube.join("kubectl"));
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        kubectl
    }

    /// What kubectl prints.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        run::output(self.kubectl_command().args(args))
    }

    /// `kubectl apply` of YAML or JSON documents.
    pub fn apply(&self, documents: &str) -> Result<String> {
        run::output_with_input(self.kubectl_command().args(["apply", "-f", "-"]), documents)
    }

    /// Brings an OCI archive to all nodes that have power, as a pull from a registry would.
    pub fn import(&self, archive: &Path) -> Result<()> {
        thread::scope(|scope| {
            let import = |node: &'_ Node| store::import(archive, || node.command("ctr"));
            let nodes = self.nodes.iter().flatten();
            let imports: Vec<_> = nodes.map(|node| scope.spawn(move || import(node))).collect();
            imports.into_iter().try_for_each(|import| import.join().unwrap_or_else(|_| bail!("an import panicked")))
        })
    }

    /// The power of a node fails: all its processes die at once; its disk stays.
    pub fn node_down(&mut self, node: u8) -> Result<()> {
        let slot = self.slot(node)?;
        let running = slot.take().with_context(|| format!("node {node} has no power already"))?;
        running.power_off()?;
        self.hub.detach(node)
    }

    /// The power of a node comes back: it boots from its disk.
    pub fn node_up(&mut self, node: u8) -> Result<()> {
        ensure!(self.slot(node)?.is_none(), "node {node} has power already");
        let booted = Node::boot(node, &self.options, &self.home, &self.hub)?;
        *self.slot(node)? = Some(booted);
        Ok(())
    }

    /// Waits until a node is Ready.
    pub fn wait_ready(&self, node: u8) -> Result<()> {
        let name = address::name(node);
        let status = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        self.wait(&format!("node {name} is Ready"), || {
            let found = self.kubectl(&["get", "node", name, "-o", status])?;
            ensure!(found == "True", "its condition Ready is {found:?}");
            Ok(())
        })
    }

    /// Cuts a node off from both networks. It keeps running.
    pub fn cut(&self, node: u8) -> Result<()> {
        self.running(node)?;
        self.hub.plug(node, Cables::Out)
    }

    /// Ends what [`cut`](Self::cut) began.
    pub fn join(&self, node: u8) -> Result<()> {
        self.running(node)?;
        self.hub.plug(node, Cables::In)
    }

    /// Kills the kubelet of a node, which is started again after a second.
    pub fn restart_kubelet(&self, node: u8) -> Result<()> {
        run::output(self.in_node(node, "sh")?.args(["-c", "kill $(pidof kubelet)"])).map(drop)
    }

    /// A program of the machine's `/usr`, `ctr` or `kubectl`, inside a node.
    pub fn in_node(&self, node: u8, program: &str) -> Result<Command> {
        Ok(self.running(node)?.command(program))
    }

    /// The root directory of a node, whether or not it has power.
    pub fn disk(&self, node: u8) -> PathBuf {
        self.home.node(address::name(node))
    }

    /// The processes of the control plane and the first two of each node, for tests of how they end.
    pub fn pids(&self) -> Vec<i32> {
        let nodes = self.nodes.iter().flatten().flat_map(Node::pids);
        self.control_plane.pids().into_iter().chain(nodes).collect()
    }

    fn running(&self, node: u8) -> Result<&Node> {
        let slot = usize::from(node).checked_sub(1).and_then(|place| self.nodes.get(place));
        slot.with_context(|| format!("there is no node {node}"))?
            .as_ref()
            .with_context(|| format!("node {node} has no power"))
    }

    fn slot(&mut self, node: u8) -> Result<&mut Option<Node>> {
        let place = usize::from(node).checked_sub(1);
        place.and_then(|place| self.nodes.get_mut(place)).with_context(|| format!("there is no node {node}"))
    }

    /// The end of every log of the control plane and of all nodes, for a test that fails.
    pub fn logs(&self) -> String {
        let tail = |path: &PathBuf| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(TAIL)..].join("\n");
            let name = path.strip_prefix(self.home.path()).unwrap_or(path);
            format!("--- the end of {}:\n{last}\n", name.display())
        };
        self.log_files().iter().map(tail).collect()
    }

    /// Copies every log into a folder.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        let doing = || format!("cannot save logs in {}", folder.display());
        fs::create_dir_all(folder).with_context(doing)?;
        for path in self.log_files() {
            let name = path.strip_prefix(self.home.path()).unwrap_or(&path).display().to_string();
            let name = name.replace("log/", "").replace("var/node/", "").replace('/', "-");
            fs::copy(&path, folder.join(name)).with_context(doing)?;
        }
        Ok(())
    }

    fn log_files(&self) -> Vec<PathBuf> {
        let mut own: Vec<PathBuf> =
            fs::read_dir(self.home.log()).into_iter().flatten().flatten().map(|e| e.path()).collect();
        own.sort();
        let nodes = (1..=self.options.nodes).flat_map(|node| node::logs(&self.disk(node)));
        own.into_iter().chain(nodes).collect()
    }

    /// The port of the machine's loopback that leads to the API server.
    pub fn port(&self) -> u16 {
        self.forward.port()
    }
}

impl Drop for Cluster {
    /// All nodes at once: each takes a moment to bury its processes.
    fn drop(&mut self) {
        let nodes: Vec<Node> = self.nodes.drain(..).flatten().collect();
        thread::scope(|scope| {
            for node in nodes {
                // What does not end now ends with its parent; the sweeper waits for it.
                scope.spawn(|| _ = node.power_off());
            }
        });
    }
}

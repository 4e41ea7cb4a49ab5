//! A server with the controllers and with nodes that pretend.

mod embedded;
mod kubernetes;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use control_plane::{FakeNodes, Fate, NodeShape};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::{Body, ClientBuilder};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequestLayer;
use virt_controller::{Config, WriteCounter};

use crate::agent::Agent;

use embedded::Embedded;
use kubernetes::Kubernetes;

/// The image of all launchers.
pub(crate) const IMAGE: &str = "launcher:1";
/// A node that no fake kubelet looks after: what becomes of its Pods is up to a test.
pub(crate) const LONELY_NODE: &str = "lonely";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Kube,
}

impl Kind {
    pub(crate) const ALL: &'static [Kind] = &[Kind::Embedded, Kind::Kube];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Embedded => "embedded",
            Kind::Kube => "kube",
        }
    }

    fn slot(self) -> &'static Mutex<Slot> {
        static EMBEDDED: Mutex<Slot> = Mutex::new(Slot::Empty);
        static KUBE: Mutex<Slot> = Mutex::new(Slot::Empty);
        match self {
            Kind::Embedded => &EMBEDDED,
            Kind::Kube => &KUBE,
        }
    }
}

enum Slot {
    Empty,
    Started(Arc<Cluster>),
    Failed,
}

static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();

/// Says where Kubernetes' programs are.
pub(crate) fn use_programs(folder: PathBuf) {
    let _ = PROGRAMS.set(folder);
}

/// What becomes of Pods, by namespace; in all others they run.
type Fates = Arc<Mutex<HashMap<String, Fate>>>;

/// A server of which tests need not know which it is.
pub(crate) enum Server {
    Embedded(Embedded),
    Kube(Kubernetes),
}

impl Server {
    /// Somebody who may do everything.
    pub(crate) fn admin(&self) -> Client {
        match self {
            Server::Embedded(server) => server.admin.clone(),
            Server::Kube(server) => server.admin.clone(),
        }
    }

    /// The controllers' own identity, which may do what they declare.
    async fn controller(&self) -> kube::Config {
        match self {
            Server::Embedded(server) => server.controller().await,
            Server::Kube(server) => server.controller.clone(),
        }
    }

    /// The identity of the agent of virtual machines on a node, if the server has heard of it.
    async fn agent(&self, node: &str) -> Client {
        match self {
            Server::Embedded(server) => server.agent(node).await,
            Server::Kube(server) => server.admin.clone(),
        }
    }

    /// Whether objects are defaulted and judged on their way in.
    pub(crate) fn admits(&self) -> bool {
        matches!(self, Server::Embedded(_))
    }
}

/// A server with everything around it.
pub(crate) struct Cluster {
    // In this order they go.
    controller: Mutex<Option<Controller>>,
    _agents: Vec<Agent>,
    nodes: FakeNodes,
    fates: Fates,
    pub(crate) server: Server,
}

impl Cluster {
    /// The cluster of a kind; the first to ask waits for its start, and is told if it fails.
    pub(crate) fn shared(kind: Kind) -> Result<Arc<Cluster>> {
        let mut slot = kind.slot().lock();
        match &*slot {
            Slot::Started(cluster) => return Ok(cluster.clone()),
            Slot::Failed => bail!("the cluster did not start; another test says why"),
            Slot::Empty => *slot = Slot::Failed,
        }
        let cluster = Arc::new(crate::runtime().block_on(Self::start(kind))?);
        *slot = Slot::Started(cluster.clone());
        Ok(cluster)
    }

    /// The cluster of a kind, if some test has asked for it.
    pub(crate) fn started(kind: Kind) -> Option<Arc<Cluster>> {
        match &*kind.slot().lock() {
            Slot::Started(cluster) => Some(cluster.clone()),
            Slot::Empty | Slot::Failed => None,
        }
    }

    /// Ends the controllers, and leaves the rest as it is.
    pub(crate) fn stop_controllers(&self) {
        let controller = self.controller.lock().take();
        controller.into_iter().for_each(|controller| crate::runtime().block_on(controller.stop()));
    }

    /// Ends what was started.
    pub(crate) fn end_all() {
        for kind in Kind::ALL {
            let slot = std::mem::replace(&mut *kind.slot().lock(), Slot::Empty);
            if let Slot::Started(cluster) = slot {
                cluster.stop_controllers();
            }
        }
    }

    async fn start(kind: Kind) -> Result<Cluster> {
        let server = match kind {
            Kind::Embedded => Server::Embedded(Embedded::start().await),
            Kind::Kube => {
                let programs = PROGRAMS.get().context("nobody said where the programs are")?;
                Server::Kube(Kubernetes::start(programs).await?)
            }
        };
        Self::around(server, true).await
    }

    /// A server of one's own with nodes and no controllers.
    pub(crate) async fn uncontrolled() -> Result<Cluster> {
        Self::around(Server::Embedded(Embedded::start().await), false).await
    }

    async fn around(server: Server, controlled: bool) -> Result<Cluster> {
        let fates = Fates::default();
        let nodes = FakeNodes::start(server.admin(), 2, &shape()).await?;
        nodes.decide({
            let fates = fates.clone();
            move |pod| {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                fates.lock().get(namespace).copied().unwrap_or(Fate::Run)
            }
        });
        add_lonely_node(&server.admin()).await?;
        let mut agents = vec![];
        for name in nodes.names().iter().map(String::as_str).chain([LONELY_NODE]) {
            agents.push(Agent::start(server.agent(name).await, name));
        }
        let mut cluster = Cluster { controller: Mutex::new(None), _agents: agents, nodes, fates, server };
        if controlled {
            let config = cluster.config().await;
            let leader_election = Some(config.client.clone());
            cluster.controller = Mutex::new(Some(Controller::start(Config { leader_election, ..config })));
        }
        Ok(cluster)
    }

    /// What controllers of this cluster are started with.
    pub(crate) async fn config(&self) -> Config {
        Config::new(self.client().await, IMAGE)
    }

    /// A client that is the controllers to the server.
    pub(crate) async fn client(&self) -> Client {
        Client::try_from(self.server.controller().await).unwrap()
    }

    /// The same to a server that does not stream lists: each is asked for in a way that it must refuse.
    pub(crate) async fn client_without_streams(&self) -> Client {
        let spoil = MapRequestLayer::new(|mut request: http::Request<Body>| {
            let uri = request.uri().to_string().replace("&resourceVersionMatch=NotOlderThan", "");
            *request.uri_mut() = uri.parse().unwrap();
            request
        });
        ClientBuilder::try_from(self.server.controller().await).unwrap().with_layer(&spoil).build()
    }

    /// Ends a launcher whose guest has left.
    pub(crate) async fn end_pod(&self, namespace: &str, name: &str) -> Result<()> {
        self.nodes.end(namespace, name, 0).await
    }

    /// Decides about Pods of a namespace that do not run yet.
    pub(crate) fn decide(&self, namespace: &str, fate: Fate) {
        self.fates.lock().insert(namespace.to_owned(), fate);
    }
}

/// Nodes of one make, between which guests can move.
fn shape() -> NodeShape {
    let mut shape = NodeShape::default();
    for label in ["cpu-vendor.node", "host-model-cpu.node", "cpu-model-migration.node"] {
        let word = if label.starts_with("cpu-vendor") { "Intel" } else { "Skylake" };
        shape.labels.insert(format!("{label}.kubevirt.io/{word}"), "true".to_owned());
    }
    shape
}

/// Its label keeps away whoever does not ask for it: only Pods with a selector for it come.
async fn add_lonely_node(client: &Client) -> Result<()> {
    let resources = json!({"cpu": "100", "memory": "100Gi", "ephemeral-storage": "100Gi", "pods": "100",
                           "devices.kubevirt.io/kvm": "1k",
                           "devices.kubevirt.io/tun": "1k", "devices.kubevirt.io/vhost-net": "1k"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": LONELY_NODE, "labels": {
            "lonely": "true", "kubernetes.io/hostname": LONELY_NODE, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", api::labels::SCHEDULABLE: "true", "machine-type.node.kubevirt.io/q35": "true",
        }},
        "spec": {"taints": [{"key": "lonely", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources,
                   "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}]},
    }))?;
    let nodes: Api<Node> = Api::all(client.clone());
    let made = nodes.create(&PostParams::default(), &node).await.context("cannot make the lonely node")?;
    let params = kube::api::PatchParams::default();
    let status = kube::api::Patch::Merge(json!({ "status": node.status }));
    nodes.patch_status(LONELY_NODE, &params, &status).await.context("cannot give the lonely node its resources")?;
    // Kubernetes adds a taint of its own, which a controller that is not here would take away.
    if made.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some_and(|taints| taints.len() > 1) {
        let taints = kube::api::Patch::Merge(json!({"spec": {"taints": node.spec.and_then(|spec| spec.taints)}}));
        nodes.patch(LONELY_NODE, &params, &taints).await.context("cannot take a taint off the lonely node")?;
    }
    Ok(())
}

/// The controllers, running.
pub(crate) struct Controller {
    stop: CancellationToken,
    task: JoinHandle<Result<(), virt_controller::Error>>,
    pub(crate) writes: Arc<WriteCounter>,
}

impl Controller {
    pub(crate) fn start(config: Config) -> Self {
        let stop = CancellationToken::new();
        let writes = config.writes.clone();
        let task = tokio::spawn(virt_controller::run(config, stop.clone()));
        Self { stop, task, writes }
    }

    /// Ends in good order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends in the middle of whatever it does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

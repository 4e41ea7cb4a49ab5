//! virt-controller: the controllers of VirtualMachines and VirtualMachineInstances.
//!
//! ```text
//! one watch per kind ──► stores ──► queues ──► observe ──► plan::{vm,vmi}::decide ──► execute ──► API
//! ```
//!
//! Nothing in here judges: `observe` gathers a `World` from the stores, `execute` carries `Action`s out. What is right
//! for a VM is written in `plan`.
//!
//! [`run`] is the program. [`Controllers`] are its working parts, which can also be driven by hand over caches and an API
//! of one's own.

pub mod api;
mod config;
mod context;
mod controllers;
mod error;
mod node;
mod owned;
mod reconcile;
pub mod stores;
mod topology;
mod vm;
mod vmi;
mod writer;

use std::sync::Arc;

use ::api::config::{ClusterConfig, DEFAULT_INSTALL_NAMESPACE};
use informer::leader::{self, LeaderConfig};
use informer::{Clock, Key, Recorder, run_workers};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use crate::api::{Api, KubeApi, Notes};
pub use crate::config::LiveConfig;
pub use crate::controllers::{Controllers, Reconciler, Settings};
pub use crate::error::Error;
pub use crate::stores::{Feeds, Stores};
pub use crate::writer::WriteCounter;

/// The component that users see in events, unless a controller says otherwise.
const COMPONENT: &str = "virt-controller";
/// The lock that candidates for leadership wait for.
const LEASE: &str = "virt-controller";

/// What the controllers need.
#[derive(Clone)]
pub struct Config {
    pub client: Client,
    /// What this installation starts from, the launcher's image included; the KubeVirt object is laid over it.
    pub base: ClusterConfig,
    /// The namespace the system is installed in; leader election takes place there.
    pub install_namespace: String,
    /// This process among its like, usually the Pod's or host's name.
    pub identity: String,
    /// Wait for the lease before doing anything. A client of its own keeps renewal apart from other traffic.
    pub leader_election: Option<Client>,
    pub vm_workers: usize,
    pub vmi_workers: usize,
    pub node_workers: usize,
    /// Start nothing: the cluster is being emptied.
    pub hold_starts: bool,
    /// Counts writes to the API by virtual machine.
    pub writes: Arc<WriteCounter>,
}

impl Config {
    /// The defaults: no leader election, three workers for virtual machines and for nodes, and ten for instances.
    pub fn new(client: Client, launcher_image: impl Into<String>) -> Self {
        Self {
            client,
            base: ClusterConfig { launcher_image: launcher_image.into(), ..ClusterConfig::default() },
            install_namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
            identity: "virt-controller".to_owned(),
            leader_election: None,
            vm_workers: 3,
            vmi_workers: 10,
            node_workers: 3,
            hold_starts: false,
            writes: Arc::default(),
        }
    }
}

/// Runs the controllers until `shutdown`. Whoever was elected and loses the lease stops at once with an error; the
/// process must end then.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    // Dropping the guard ends every watch and the recorder, however this function is left.
    let stop = shutdown.child_token();
    let _guard = stop.clone().drop_guard();
    let Some(client) = config.leader_election.clone() else {
        control(&config, stop).await;
        return Ok(());
    };
    let election = LeaderConfig::new(client, &config.install_namespace, LEASE, &config.identity);
    let Some(leadership) = leader::lead(election, stop.clone()).await else { return Ok(()) };
    tokio::select! {
        biased;
        () = leadership.lost.cancelled() => Err(Error::LeaseLost),
        () = control(&config, stop) => Ok(()),
    }
}

async fn control(config: &Config, shutdown: CancellationToken) {
    let stores = Stores::start(&config.client, &shutdown);
    let recorder = Recorder::start(config.client.clone(), COMPONENT, &config.identity, shutdown.clone());
    let settings =
        Settings { base: config.base.clone(), hold_starts: config.hold_starts, writes: config.writes.clone() };
    let api = KubeApi::new(config.client.clone());
    let controllers = Controllers::new(stores.clone(), api, Arc::new(recorder), Clock::system(), settings);
    if shutdown.run_until_cancelled(stores.synced()).await != Some(true) {
        return;
    }
    tracing::info!("controllers start");
    work(Arc::new(controllers), config, &shutdown).await;
}

/// Runs every controller's workers until `shutdown`.
async fn work(controllers: Arc<Controllers<KubeApi>>, config: &Config, shutdown: &CancellationToken) {
    let mut pools = JoinSet::new();
    for &reconciler in Reconciler::ALL {
        let workers = match reconciler {
            Reconciler::Vm => config.vm_workers,
            Reconciler::Vmi => config.vmi_workers,
            Reconciler::Node => config.node_workers,
        };
        let (queue, controllers) = (controllers.queue(reconciler).clone(), controllers.clone());
        pools.spawn(run_workers(queue, workers, shutdown.clone(), move |key: Key| {
            let controllers = controllers.clone();
            async move { controllers.reconcile(reconciler, &key).await }
        }));
    }
    pools.spawn(update_topology(controllers, config.identity.clone(), shutdown.clone()));
    while pools.join_next().await.is_some() {}
}

/// Looks after the nodes' labels until `shutdown`.
async fn update_topology(controllers: Arc<Controllers<KubeApi>>, identity: String, shutdown: CancellationToken) {
    for pass in 0.. {
        let look = async {
            controllers.update_topology().await;
            tokio::time::sleep(topology::pause(&identity, pass)).await;
        };
        if shutdown.run_until_cancelled(look).await.is_none() {
            return;
        }
    }
}

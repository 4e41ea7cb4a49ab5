//! virt-controller: the controllers of VirtualMachines and VirtualMachineInstances.
//!
//! ```text
//! one watch per kind ──► stores ──► queues ──► observe ──► plan::{vm,vmi}::decide ──► execute ──► API
//! ```
//!
//! Nothing in here judges: `observe` gathers a `World` from the stores, `execute` carries `Action`s out. What is right
//! for a VM is written in `plan`.

mod api_writer;
mod config;
mod error;
mod owned;
mod reconcile;
mod stores;
mod vm;
mod vmi;

use std::sync::Arc;

use informer::leader::{self, LeaderConfig};
use informer::{Key, Recorder, WorkQueue, run_workers};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use api_writer::WriteCounter;
pub use error::Error;

use api_writer::ApiWriter;
use config::LiveConfig;
use stores::Stores;

/// The component that users see in events.
const COMPONENT: &str = "virtualmachine-controller";
/// The lock that candidates for leadership wait for.
const LEASE: &str = "virt-controller";

/// What the controllers need.
#[derive(Clone)]
pub struct Config {
    pub client: Client,
    /// The image launcher Pods run.
    pub launcher_image: String,
    /// The namespace the system is installed in; leader election takes place there.
    pub install_namespace: String,
    /// This process among its like, usually the Pod's or host's name.
    pub identity: String,
    /// Wait for the lease before doing anything. A client of its own keeps renewal apart from other traffic.
    pub leader_election: Option<Client>,
    pub vm_workers: usize,
    pub vmi_workers: usize,
    /// Start nothing: the cluster is being emptied.
    pub hold_starts: bool,
    /// Counts writes to the API by virtual machine.
    pub writes: Arc<WriteCounter>,
}

impl Config {
    /// The defaults: no leader election, three workers for virtual machines and ten for instances.
    pub fn new(client: Client, launcher_image: impl Into<String>) -> Self {
        Self {
            client,
            launcher_image: launcher_image.into(),
            install_namespace: api::config::DEFAULT_INSTALL_NAMESPACE.to_owned(),
            identity: "virt-controller".to_owned(),
            leader_election: None,
            vm_workers: 3,
            vmi_workers: 10,
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
    let writer = ApiWriter::new(config.client.clone(), config.writes.clone());
    let live = LiveConfig::new(config.launcher_image.clone());
    let (vm_queue, vmi_queue) = (WorkQueue::new("virt-controller-vm"), WorkQueue::new("virt-controller-vmi"));

    let vm = Arc::new(vm::Controller::new(stores.clone(), writer.clone(), recorder.clone(), config.hold_starts));
    vm.register(&vm_queue);
    let vmi = Arc::new(vmi::Controller::new(stores.clone(), writer, recorder, live.clone()));
    vmi.register(&vmi_queue);
    live.follow(&stores, &vmi_queue);

    if shutdown.run_until_cancelled(stores.synced()).await != Some(true) {
        return;
    }
    tracing::info!("controllers start");
    let (for_vm, for_vmi) = (shutdown.clone(), shutdown);
    tokio::join!(
        run_workers(vm_queue, config.vm_workers, for_vm, move |key: Key| {
            let vm = vm.clone();
            async move { reconcile::reconcile(vm.as_ref(), &key).await }
        }),
        run_workers(vmi_queue, config.vmi_workers, for_vmi, move |key: Key| {
            let vmi = vmi.clone();
            async move { reconcile::reconcile(vmi.as_ref(), &key).await }
        }),
    );
}

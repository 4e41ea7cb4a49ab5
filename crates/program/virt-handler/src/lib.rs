//! virt-handler: manages the VMIs of its node from phase `Scheduled` on.
//!
//! ```text
//!   API server                             node
//!   ──────────                             ────
//!   VMIs of this node ─informer─► Agents ─► one Agent per launcher Pod
//!                                             observe: VMI, launcher's state, records on disk
//!                                             decide:  vmstate::decide
//!                                             act:     network, launcher RPC, status, events
//!   other nodes ◄─mutual TLS─► proxy ──────► migrations between launchers
//!   virt-api ──mutual TLS──► rest ─────────► serial console, VNC, pause, reset …
//!   Node object ◄─heartbeat── node
//!                               ▲ whether the kubelet knows its devices
//!   kubelet ◄────────────────── plugins
//! ```
//!
//! Agents are keyed by the UID of the launcher Pod. The state that must survive a restart is in a *ghost record* per
//! launcher, which is written before the launcher is first contacted and removed last. A restarted virt-handler takes
//! over the recorded launchers, including those whose VMI is gone. Stopping virt-handler does not affect guests.

mod abilities;
mod agent;
mod agents;
mod certificate;
mod config;
mod devices;
mod disks;
mod error;
mod launcher;
mod migration;
mod network;
mod node;
mod plugins;
mod proxy;
mod records;
mod rest;
mod rights;
mod seccomp;
mod selinux;
mod status;
mod uid;
mod volumes;

use std::path::PathBuf;
use std::sync::Arc;

use api::labels;
use api::v1::{KubeVirt, VirtualMachineInstance};
use futures::FutureExt as _;
use informer::{Informer, Recorder, Store};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use certificate::Requested;
pub use config::{Config, Kubelet, Observer};
pub use error::Error;
pub use migration::MIGRATION_LINK;
#[doc(hidden)]
pub use proxy::loopback;
pub use rights::{program, program_on_kubernetes};
pub use status::{Status, status_endpoints};

use crate::agents::{Agents, Node};
use crate::config::CurrentConfig;
use crate::node::Presence;
use crate::proxy::Proxies;
use crate::records::Records;

/// Runs until `shutdown` is canceled and migrations in progress have ended. Guests keep running.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let Config { node_name, pods_dir, private_dir, kvm_finding, client, listen, identity, .. } = config;
    let address = listen.local_addr().map_err(Error::Listen)?;
    listen.set_nonblocking(true).map_err(Error::Listen)?;
    let listen = tokio::net::TcpListener::from_std(listen).map_err(Error::Listen)?;
    std::fs::create_dir_all(&pods_dir).map_err(|err| Error::Directory { path: pods_dir.clone(), err })?;
    let pods = Arc::new(hostfs::beneath::Root::open(&pods_dir)?);
    let records = Records::open(&private_dir)?;

    let published = config.annotate_address.then_some(address);
    let mut presence =
        Presence { client: client.clone(), node_name: node_name.clone(), address: published, abilities: vec![] };
    if config.kubelet.is_none() {
        presence.withdraw().await; // until everything below is ready; an earlier process may have left the label on
    }

    // Cancelled last, or when this function returns: migrations in progress need all of what follows.
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let caches = Caches::start(&client, &node_name, &end);
    let (kvm, abilities) = look_at_the_node(&node_name, kvm_finding.clone()).await?;
    presence.abilities = abilities;
    if shutdown.run_until_cancelled(caches.synced()).await != Some(true) {
        return Ok(()); // shut down before startup finished
    }

    let current = CurrentConfig::follow(&caches.kubevirts, config.install_namespace, config.on_configuration);
    let proxies = Arc::new(Proxies::new(pods.clone(), proxy::Peers::new(identity.clone(), config.node_check)));
    let node = Node {
        recorder: Recorder::start(client.clone(), "virt-handler", &node_name, end.clone()),
        name: node_name,
        client,
        proxies: proxies.clone(),
        address: address.ip(),
        incoming: caches.incoming,
        pods,
        records,
        vmis: caches.vmis,
        config: current.clone(),
        kvm,
        owns_devices: config.kubelet.is_some(),
        tasks: TaskTracker::new(),
    };
    let agents = Agents::start(node, end.clone());
    config.status.set_ready();
    let served = rest::serve(listen, rest::tls(identity), agents.clone(), end.clone());
    let (ready, is_ready) = watch::channel(config.kubelet.is_none());
    let plugins = async {
        match config.kubelet {
            Some(kubelet) => {
                let profile = seccomp::keep(kubelet.seccomp.clone(), current.subscribe());
                tokio::select! {
                    served = plugins::serve(kubelet, kvm_finding, current, ready, end.clone()) => served,
                    () = profile => Ok(()),
                }
            }
            None => Ok(()),
        }
    };
    let stop = async {
        presence.keep(is_ready, shutdown).await;
        proxies.drain(config.drain).await;
        end.cancel();
    };
    tokio::try_join!(served.map(Ok), plugins, stop.map(Ok))?;
    agents.stopped().await;
    Ok(())
}

/// What virt-handler watches.
struct Caches {
    /// VMIs labelled with this node.
    vmis: Store<VirtualMachineInstance>,
    /// VMIs being migrated to this node.
    incoming: Store<VirtualMachineInstance>,
    kubevirts: Store<KubeVirt>,
}

impl Caches {
    fn start(client: &Client, node: &str, end: &CancellationToken) -> Caches {
        let vmis = |label: &str| {
            let selector = format!("{label}={node}");
            let informer = Informer::<VirtualMachineInstance>::new().labels(&selector);
            informer.start(Api::all(client.clone()), end.clone())
        };
        Caches {
            vmis: vmis(labels::NODE_NAME),
            incoming: vmis(labels::MIGRATION_TARGET_NODE_NAME),
            kubevirts: Informer::<KubeVirt>::new().start(Api::all(client.clone()), end.clone()),
        }
    }

    async fn synced(&self) -> bool {
        self.vmis.synced().await && self.incoming.synced().await && self.kubevirts.synced().await
    }
}

/// Why KVM does not work here, if so, and labels for what the node offers to guests.
async fn look_at_the_node(node: &str, kvm_finding: PathBuf) -> Result<(Result<(), String>, Vec<String>), Error> {
    let look = move || {
        let kvm = hostfs::kvm::usable_since_boot(&kvm_finding);
        let abilities = abilities::labels(kvm.is_ok());
        (kvm, abilities)
    };
    let (kvm, abilities) = tokio::task::spawn_blocking(look).await.map_err(Error::Probe)?;
    match &kvm {
        Ok(()) => tracing::info!(node, "guests run on KVM"),
        Err(why) => tracing::info!(node, why, "guests are emulated in software"),
    }
    Ok((kvm, abilities))
}

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
//! ```
//!
//! Agents are keyed by the UID of the launcher Pod. The state that must survive a restart is in a *ghost record* per
//! launcher, which is written before the launcher is first contacted and removed last. A restarted virt-handler takes
//! over the recorded launchers, including those whose VMI is gone. Stopping virt-handler does not affect guests.

mod agent;
mod agents;
mod config;
mod cpu;
mod error;
mod launcher;
mod machines;
mod migration;
mod network;
mod node;
mod proxy;
mod records;
mod rest;
mod rights;
mod uid;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use api::labels;
use api::v1::{KubeVirt, VirtualMachineInstance};
use informer::{Informer, Recorder};
use kube::{Api, Client};
use role_tls::Identity;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::Error;
pub use migration::MIGRATION_LINK;
#[doc(hidden)]
pub use proxy::loopback;
pub use rights::program;

use crate::agents::{Agents, Node};
use crate::config::CurrentConfig;
use crate::proxy::Proxies;
use crate::records::Records;

/// Configuration of virt-handler.
pub struct Config {
    pub node_name: String,
    /// The kubelet's Pod directory, or one with the same layout.
    pub pods_dir: PathBuf,
    /// Directory of virt-handler's own records.
    pub private_dir: PathBuf,
    /// File that caches whether KVM works, once per boot of the host.
    pub kvm_finding: PathBuf,
    pub client: Client,
    /// Listens for virt-api; bound by the caller, which knows the right network namespace.
    pub listen: TcpListener,
    /// Identity towards virt-api and other virt-handlers.
    pub identity: Identity,
}

/// Runs until `shutdown` is cancelled. Guests keep running.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let Config { node_name, pods_dir, private_dir, kvm_finding, client, listen, identity } = config;
    let acceptor = rest::acceptor(&identity).map_err(Error::Tls)?;
    let peers = proxy::Peers::new(&identity).map_err(Error::Tls)?;
    let address = listen.local_addr().map_err(Error::Listen)?;
    listen.set_nonblocking(true).map_err(Error::Listen)?;
    let listen = tokio::net::TcpListener::from_std(listen).map_err(Error::Listen)?;
    std::fs::create_dir_all(&pods_dir).map_err(|err| Error::Directory { path: pods_dir.clone(), err })?;
    let pods = hostfs::beneath::Root::open(&pods_dir)?;
    let records = Records::open(&private_dir)?;

    let machines = tokio::task::spawn_blocking(machines::labels).await.map_err(Error::Probe)?;
    let mut presence =
        node::Presence { client: client.clone(), node_name: node_name.clone(), address, abilities: machines };
    presence.withdraw().await; // until everything below is ready; an earlier process may have left the label on

    let selector = format!("{}={node_name}", labels::NODE_NAME);
    let vmis =
        Informer::<VirtualMachineInstance>::new().labels(&selector).start(Api::all(client.clone()), shutdown.clone());
    let selector = format!("{}={node_name}", labels::MIGRATION_TARGET_NODE_NAME);
    let incoming =
        Informer::<VirtualMachineInstance>::new().labels(&selector).start(Api::all(client.clone()), shutdown.clone());
    let kubevirts = Informer::<KubeVirt>::new().start(Api::all(client.clone()), shutdown.clone());
    let kvm = tokio::task::spawn_blocking(move || hostfs::kvm::usable_since_boot(&kvm_finding))
        .await
        .map_err(Error::Probe)?;
    let usable = kvm.is_ok();
    let cpu = tokio::task::spawn_blocking(move || cpu::labels(usable)).await.map_err(Error::Probe)?;
    presence.abilities.extend(cpu);
    match &kvm {
        Ok(()) => tracing::info!(node = node_name, "guests run on KVM"),
        Err(why) => tracing::info!(node = node_name, why, "guests are emulated in software"),
    }
    if !(vmis.synced().await && incoming.synced().await && kubevirts.synced().await) {
        return Ok(()); // shut down before startup finished
    }

    let recorder = Recorder::start(client.clone(), "virt-handler", &node_name, shutdown.clone());
    let pods = Arc::new(pods);
    let node = Node {
        name: node_name,
        client,
        proxies: Proxies::new(pods.clone(), peers),
        address: address.ip(),
        incoming,
        pods,
        records,
        vmis: vmis.clone(),
        config: CurrentConfig::follow(&kubevirts),
        recorder,
        kvm,
        tasks: TaskTracker::new(),
    };
    let agents = Agents::start(node, shutdown.clone());
    let served = rest::serve(listen, acceptor, agents.clone(), shutdown.clone());
    let present = presence.keep(shutdown.clone());
    tokio::join!(served, present);
    agents.stopped().await;
    Ok(())
}

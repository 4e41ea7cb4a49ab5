//! `ferrovirt node`: one embedded node. The supervisor starts it inside the node's netns.
//!
//! It runs the Pod runner and virt-handler, talks to the API server over TLS like any other client, and exits when the
//! supervisor's pipe on its standard input closes. Its Pods keep running.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::config::DEFAULT_INSTALL_NAMESPACE;
use ipnet::Ipv4Net;
use launcher_contract::HANDLER_PORT;
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

use crate::cluster::fabric::POD_BRIDGE;
use crate::cluster::kubeconfig;
use crate::cluster::layout::Layout;
use crate::cluster::nodes::files;
use crate::cluster::record::{NodeRecord, PREFIX};
use crate::cluster::storage::engine_config;

/// As on most overlay networks, so that a guest that assumes more fails here too.
const POD_MTU: u32 = 1450;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node
    #[arg(long)]
    name: String,
    /// Number of the node, which determines its addresses
    #[arg(long)]
    index: u8,
    /// Data directory of the cluster
    #[arg(long)]
    data_dir: PathBuf,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let layout = Layout::new(args.data_dir);
    let node = NodeRecord { name: args.name, index: args.index, process: None };
    let dir = layout.node(&node.name);
    let shutdown = CancellationToken::new();
    let runner = kubeconfig::client_from_file(&dir.join(files::RUNNER_KUBECONFIG)).await?;
    let handler = kubeconfig::client_from_file(&dir.join(files::HANDLER_KUBECONFIG)).await?;
    let address = SocketAddr::from((node.address(), HANDLER_PORT));
    let listen = TcpListener::bind(address).with_context(|| format!("virt-handler cannot listen on {address}"))?;

    let finding = layout.kvm_finding();
    let kvm = tokio::task::spawn_blocking(move || hostfs::kvm::usable_since_boot(&finding))
        .await
        .context("the KVM probe panicked")?
        .is_ok();
    let pods = pod_runner::run(
        pod_runner::RunnerConfig {
            client: runner,
            node_name: node.name.clone(),
            node_address: node.address(),
            pods_dir: layout.pods(&node.name),
            images_dir: layout.images(),
            network: pod_runner::PodNetwork {
                bridge: POD_BRIDGE.to_owned(),
                cidr: Ipv4Net::new(node.pod_network(), PREFIX).context("the node's Pod network")?,
                mtu: POD_MTU,
            },
            dns: pod_runner::Dns::default(),
            capacity: pod_runner::Capacity::of_machine(layout.root(), kvm),
            exe: std::env::current_exe().context("cannot find this program's own file")?,
            volumes: Some(engine_config(&layout, &node.name, &layout.pods(&node.name))?),
            puller: Some(layout.pull_socket()),
        },
        shutdown.clone(),
    );
    let read = |file: &str| {
        let path = dir.join(file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let identity =
        role_tls::Identity::from_pem(&read(files::CA)?, &read(files::HANDLER_CERT)?, &read(files::HANDLER_KEY)?)
            .context("cannot use virt-handler's certificate")?;
    let vms = virt_handler::run(
        virt_handler::Config {
            node_name: node.name.clone(),
            install_namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
            pods_dir: layout.pods(&node.name),
            private_dir: layout.handler_private(&node.name),
            kvm_finding: layout.kvm_finding(),
            client: handler,
            listen,
            identity: identity.into(),
            node_check: role_tls::NodeCheck::Required,
            annotate_address: true,
            kubelet: None,
            // Whoever stops a node stops its supervisor too, and does not wait.
            drain: Duration::ZERO,
            status: Arc::default(),
            on_configuration: None,
        },
        shutdown.clone(),
    );
    tracing::info!(node = node.name, %address, "node started");
    tokio::select! {
        result = async { tokio::try_join!(async { pods.await.context("the Pod runner failed") }, async { vms.await.context("virt-handler failed") }) } => result.map(|_| ()),
        () = supervisor_gone() => {
            shutdown.cancel();
            tracing::info!(node = node.name, "the supervisor exited: stopping the node, leaving its Pods running");
            Ok(())
        }
    }
}

/// Returns at EOF of standard input or on a signal.
async fn supervisor_gone() {
    let pipe = async {
        let mut byte = [0u8; 1];
        // Nothing is ever written to the pipe: any return, including an error, means that the supervisor is gone.
        let _ = tokio::io::stdin().read(&mut byte).await;
    };
    tokio::select! {
        () = pipe => {}
        () = terminal::signals::terminated() => {}
    }
}

//! `ferrovirt status`: the cluster at a glance.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};

use crate::cluster::kubeconfig;
use crate::cluster::layout::{DEFAULT_DATA_DIR, Layout};
use crate::cluster::lock::Lock;
use crate::cluster::record::Record;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data directory of the cluster
    #[arg(long, env = "FERROVIRT_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

/// Exit code if no cluster is running, as for `systemctl status`.
const NOT_RUNNING: u8 = 3;
/// Timeout for the API server: `status` must not hang with it.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let layout = Layout::new(std::path::absolute(&args.data_dir).context("cannot resolve --data-dir")?);
    let Some(record) = Record::load(&layout)? else {
        println!("no cluster on {}; start one with `ferrovirt up`", layout.root().display());
        return Ok(ExitCode::from(NOT_RUNNING));
    };
    if !Lock::is_held(&layout) {
        println!("cluster on {}: stopped ({} nodes recorded)", layout.root().display(), record.nodes.len());
        println!("guests keep running; `ferrovirt up` takes them over, `ferrovirt down` shuts them down");
        return Ok(ExitCode::from(NOT_RUNNING));
    }
    let pid = record.supervisor.as_ref().map_or_else(|| "?".to_owned(), |process| process.pid.to_string());
    println!("cluster on {}: running, supervisor is process {pid}", layout.root().display());
    println!("API server https://127.0.0.1:{}, kubeconfig {}", record.api_port, layout.kubeconfig().display());
    let client = kubeconfig::client_from_file(&layout.kubeconfig()).await?;
    tokio::time::timeout(TIMEOUT, show(client))
        .await
        .context("the API server does not answer; see the log directory")??;
    Ok(ExitCode::SUCCESS)
}

async fn show(client: kube::Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.context("cannot list the nodes")? {
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True");
        let word = if ready { "ready" } else { "not ready" };
        println!("node {:8} {word}", node.metadata.name.unwrap_or_default());
    }
    let vmis: Api<VirtualMachineInstance> = Api::all(client);
    for vmi in vmis.list(&ListParams::default()).await.context("cannot list the guests")? {
        let status = vmi.status.clone().unwrap_or_default();
        let address = status.interfaces.first().and_then(|interface| interface.ip_address.clone()).unwrap_or_default();
        println!(
            "guest {}/{} {} {} {address}",
            vmi.metadata.namespace.unwrap_or_default(),
            vmi.metadata.name.unwrap_or_default(),
            status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
            status.node_name.unwrap_or_default(),
        );
    }
    Ok(())
}

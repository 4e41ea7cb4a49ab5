//! `ferrovirt api`: virt-api on a Kubernetes cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::config::ClusterConfig;
use informer::Clock;
use informer::client::{Rate, RateLimit, RequestCounter, client};
use role_tls::{IdentityFiles, NodeCheck};
use terminal::signals;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use virt_api::server::{self, Config};

use crate::pod::{self, certificate, forget_start, one_heap};

/// Where an operator puts the certificates.
const CERT: &str = "/etc/virt-api/certificates/tls.crt";
const KEY: &str = "/etc/virt-api/certificates/tls.key";
const HANDLER_CERT: &str = "/etc/virt-handler/clientcertificates/tls.crt";
const HANDLER_KEY: &str = "/etc/virt-handler/clientcertificates/tls.key";
const CA: &str = "/etc/kubevirt/ca/ca-bundle";

/// Default verbosity, in klog's levels.
const VERBOSITY: u64 = 2;

/// Run virt-api: the webhooks and the aggregated API subresources.kubevirt.io on a Kubernetes cluster
///
/// kube-apiserver sends admission reviews, and forwards requests such as start, stop, pause, console and VNC. Several
/// replicas can run.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: pod::Cluster,
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: IpAddr,
    /// Port to listen on; 0 for any
    #[arg(long, default_value_t = 8443)]
    port: u16,
    /// TLS certificate, reloaded when it changes; self-signed if the default file does not exist
    #[arg(long, default_value = CERT, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// Its private key
    #[arg(long, default_value = KEY, value_name = "FILE")]
    tls_key_file: PathBuf,
    /// Client certificate presented to virt-handlers; reloaded when it changes
    #[arg(long, default_value = HANDLER_CERT, value_name = "FILE")]
    handler_cert_file: PathBuf,
    /// Its private key
    #[arg(long, default_value = HANDLER_KEY, value_name = "FILE")]
    handler_key_file: PathBuf,
    /// CA certificates that sign virt-handlers' certificates; reloaded when they change
    #[arg(long, default_value = CA, value_name = "FILE")]
    ca_file: PathBuf,
    /// Refuse virt-handlers whose certificate names no node; without virt-operator they share one
    #[arg(long)]
    require_node_certificates: bool,
    /// Log verbosity, until the KubeVirt object sets it: 0 to 2 logs state changes, 3 to 5 each
    /// decision, 6 and above everything
    #[arg(long = "v", default_value_t = VERBOSITY, value_name = "NUMBER")]
    verbosity: u64,
}

/// One thread: requests mostly wait, and each thread would have its own heap.
pub fn run(args: Args) -> Result<ExitCode> {
    one_heap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(serve(args));
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: Args) -> Result<()> {
    terminal::log::at_verbosity(args.verbosity);
    let namespace = args.cluster.install_namespace();
    let cluster = args.cluster.config().await?;
    let limited = |cluster: kube::Config| {
        let limit = RateLimit::new(Rate::CONTROLLER, Clock::system());
        client(cluster, limit, RequestCounter::default()).context("cannot make an API client")
    };
    let address = SocketAddr::new(args.listen, args.port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another with --listen and --port"))?;
    let address = listener.local_addr().context("cannot read the port")?;
    let verbosity = args.verbosity;
    let config = Config {
        client: limited(cluster.clone())?,
        reviews: limited(cluster)?,
        namespace,
        certificate: certificate((&args.tls_cert_file, CERT), (&args.tls_key_file, KEY), "virt-api")?,
        handler: IdentityFiles { ca: args.ca_file, cert: args.handler_cert_file, key: args.handler_key_file },
        node_check: if args.require_node_certificates { NodeCheck::Required } else { NodeCheck::IfNamed },
        version: virt_api::Version::of_this_build(),
        on_configuration: Some(Arc::new(move |config: &ClusterConfig| {
            let developer = config.configuration.developer_configuration.as_ref();
            let told = developer.and_then(|developer| developer.log_verbosity.as_ref()?.virt_api);
            terminal::log::at_verbosity(told.filter(|told| *told > 0).unwrap_or(verbosity));
        })),
    };
    tokio::spawn(forget_start());
    let shutdown = CancellationToken::new();
    let serving = server::run(config, listener, shutdown.clone());
    tokio::pin!(serving);
    tracing::info!(%address, "serving webhooks and subresources");
    tokio::select! {
        result = &mut serving => return result.context("virt-api ended"),
        () = signals::terminated() => shutdown.cancel(),
    }
    serving.await.context("virt-api did not stop cleanly")
}

#[cfg(test)]
mod tests {
    use install::names::{config_map, mount, tls};

    use super::*;

    #[test]
    fn the_files_are_where_an_installation_mounts_them() {
        for (path, folder, file) in [
            (CERT, mount::API, tls::CERTIFICATE),
            (KEY, mount::API, tls::KEY),
            (HANDLER_CERT, mount::HANDLER_CLIENT, tls::CERTIFICATE),
            (HANDLER_KEY, mount::HANDLER_CLIENT, tls::KEY),
            (CA, mount::CA, config_map::CA_BUNDLE),
        ] {
            assert_eq!(path, format!("{folder}/{file}"));
        }
    }
}

//! `ferrovirt handler`: virt-handler on a node of a Kubernetes cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::config::ClusterConfig;
use informer::Clock;
use informer::client::{Rate, RateLimit, RequestCounter, client};
use install::names::{host, port};
use role_tls::{IdentityFiles, NodeCheck};
use terminal::signals;
use tokio_util::sync::CancellationToken;
use virt_handler::{Config, Kubelet, Requested, Status};

use crate::pod::{self, certificate, forget_start};

/// Where an operator puts the certificates.
const CERT: &str = "/etc/virt-handler/servercertificates/tls.crt";
const KEY: &str = "/etc/virt-handler/servercertificates/tls.key";
const CA: &str = "/etc/kubevirt/ca/ca-bundle";

/// Default verbosity, in klog's levels.
const VERBOSITY: u64 = 2;
/// The node's root directory, seen from a Pod with the node's processes. What is in the Pod's own `/dev` was made when the
/// Pod started.
const NODE_ROOT: &str = "/proc/1/root";
/// Below the private directory: whether KVM works.
const KVM_FINDING: &str = "kvm.json";
/// Below the private directory: this node's certificate.
const CERTIFICATE: &str = "certificate";

/// Run virt-handler, the node agent for VMs on a Kubernetes node
///
/// It needs root, access to the node's processes, devices and kubelet directories, and the programs of virt-launcher's
/// image. When it exits, VMs keep running, and the next virt-handler takes them over.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: pod::Cluster,
    /// Name of the node [default: the hostname]
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Address of the Pod, for virt-api, other nodes and probes
    #[arg(long, value_name = "ADDRESS")]
    pod_ip_address: IpAddr,
    /// Port for /healthz and /metrics
    #[arg(long, default_value_t = number(port::HTTPS))]
    port: u16,
    /// Port for requests from virt-api, such as console, VNC and pause
    #[arg(long, default_value_t = number(port::HANDLER), value_name = "PORT")]
    console_server_port: u16,
    /// Seconds to wait for migrations in progress after SIGTERM
    #[arg(long, default_value_t = 315, value_name = "SECONDS")]
    graceful_shutdown_seconds: u64,
    /// Number of devices of each kind that the node offers to Pods
    #[arg(long, default_value_t = devices::MAX_DEVICES, value_name = "NUMBER")]
    max_devices: u32,
    /// Log verbosity, until the KubeVirt object sets it: 0 to 2 logs state changes, 3 to 5 each
    /// decision, 6 and above everything
    #[arg(long = "v", default_value_t = VERBOSITY, value_name = "NUMBER")]
    verbosity: u64,

    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    directories: Directories,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Certificates")]
struct Files {
    /// Certificate presented to virt-api and other nodes; reloaded when it changes
    #[arg(long, default_value = CERT, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// Its private key
    #[arg(long, default_value = KEY, value_name = "FILE")]
    tls_key_file: PathBuf,
    /// CA certificates that sign the certificates of virt-api and other nodes; reloaded when they change
    #[arg(long, default_value = CA, value_name = "FILE")]
    ca_file: PathBuf,
    /// Request a certificate for this node from this signer, instead of using the one above
    #[arg(long, value_name = "NAME")]
    certificate_signer: Option<String>,
    /// Refuse other virt-handlers whose certificate names no node; without virt-operator they share one
    #[arg(long)]
    require_node_certificates: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Directories")]
struct Directories {
    /// The kubelet's Pod directory; must be a short path, since the length of socket paths is limited
    #[arg(long, default_value = host::PODS, value_name = "DIR")]
    pods_dir: PathBuf,
    /// The kubelet's device plugin directory
    #[arg(long, default_value = host::DEVICE_PLUGINS, value_name = "DIR")]
    device_plugin_dir: PathBuf,
    /// The kubelet's seccomp profile directory
    #[arg(long, default_value = host::SECCOMP, value_name = "DIR")]
    seccomp_dir: PathBuf,
    /// The kubelet's root directory, as the kubelet sees it
    #[arg(long, default_value = host::KUBELET_ROOT, value_name = "DIR")]
    kubelet_root: PathBuf,
    /// Directory for records that survive a restart of virt-handler
    #[arg(long, default_value = host::PRIVATE, value_name = "DIR")]
    kubevirt_private_dir: PathBuf,
}

fn number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}

pub async fn run(args: Args) -> Result<ExitCode> {
    terminal::log::at_verbosity(args.verbosity);
    let cluster = args.cluster.config().await?;
    let status = Arc::new(Status::default());
    let limited = |counter: RequestCounter| {
        let limit = RateLimit::new(Rate::HANDLER, Clock::system());
        client(cluster.clone(), limit, counter).context("cannot make an API client")
    };
    // Probes must not wait for other requests.
    let (requests, probes) = (limited(status.requests.clone())?, limited(RequestCounter::default())?);

    let shutdown = CancellationToken::new();
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let address = SocketAddr::new(args.pod_ip_address, args.port);
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for health and metrics; choose another with --pod-ip-address and --port")
    })?;
    let files = &args.files;
    let shown = certificate((&files.tls_cert_file, CERT), (&files.tls_key_file, KEY), "virt-handler")?;
    let endpoints = virt_handler::status_endpoints(shown, status.clone(), probes)?;
    tokio::spawn(endpoints.serve(listener, end.clone()));

    tokio::spawn(forget_start());
    let (config, requested) = config(args, requests, status)?;
    if let Some(requested) = requested {
        tokio::spawn(requested.keep(end));
    }
    let handler = virt_handler::run(config, shutdown.clone());
    tokio::pin!(handler);
    tokio::select! {
        result = &mut handler => return result.context("virt-handler ended").map(|()| ExitCode::SUCCESS),
        () = signals::terminated() => {}
    }
    tracing::info!("shutting down: no more VMs for this node; a second signal does not wait for migrations");
    shutdown.cancel();
    tokio::select! {
        result = &mut handler => result.context("virt-handler did not stop cleanly")?,
        () = signals::terminated() => tracing::warn!("migrations in progress are interrupted"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration, and the certificate to request.
fn config(args: Args, client: kube::Client, status: Arc<Status>) -> Result<(Config, Option<Requested>)> {
    let Directories { pods_dir, device_plugin_dir, seccomp_dir, kubelet_root, kubevirt_private_dir } = args.directories;
    let address = SocketAddr::new(args.pod_ip_address, args.console_server_port);
    let listen = std::net::TcpListener::bind(address).with_context(|| {
        format!(
            "cannot listen on {address} for virt-api; choose another with --pod-ip-address and --console-server-port"
        )
    })?;
    let verbosity = args.verbosity;
    let node_name = args.hostname_override.filter(|name| !name.is_empty()).unwrap_or_else(hostname);
    let Files { tls_cert_file: cert, tls_key_file: key, ca_file: ca, certificate_signer, .. } = args.files;
    let requested = certificate_signer.map(|signer| Requested {
        client: client.clone(),
        node: node_name.clone(),
        signer,
        dir: kubevirt_private_dir.join(CERTIFICATE),
        ca: ca.clone(),
    });
    let identity = match &requested {
        Some(requested) => requested.files(),
        None => IdentityFiles { ca, cert, key },
    };
    let config = Config {
        node_name,
        install_namespace: args.cluster.install_namespace(),
        pods_dir,
        kvm_finding: kubevirt_private_dir.join(KVM_FINDING),
        private_dir: kubevirt_private_dir,
        client,
        listen,
        identity: identity.into(),
        node_check: if args.files.require_node_certificates { NodeCheck::Required } else { NodeCheck::IfNamed },
        annotate_address: false,
        kubelet: Some(Kubelet {
            device_plugins: device_plugin_dir,
            device_plugins_on_node: kubelet_root.join(host::KUBELET_DEVICE_PLUGINS),
            node_root: node_root(),
            max_devices: args.max_devices,
            seccomp: seccomp_dir,
        }),
        drain: Duration::from_secs(args.graceful_shutdown_seconds),
        status,
        on_configuration: Some(Arc::new(move |config: &ClusterConfig| {
            let developer = config.configuration.developer_configuration.as_ref();
            let told = developer.and_then(|developer| developer.log_verbosity.as_ref()?.virt_handler);
            terminal::log::at_verbosity(told.filter(|told| *told > 0).unwrap_or(verbosity));
        })),
    };
    Ok((config, requested))
}

/// Our own root directory, if that of the first process is hidden from us.
fn node_root() -> PathBuf {
    let root = PathBuf::from(NODE_ROOT);
    if root.join("dev").is_dir() { root } else { "/".into() }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use install::names::{common_name, config_map, mount, tls};

    use super::*;

    /// `install` decides and may not depend on TLS, so both spell what a certificate says.
    #[test]
    fn what_virt_operator_signs_is_what_peers_look_for() {
        assert_eq!(common_name::HANDLER, role_tls::NODE_AGENT);
        assert_eq!(common_name::HANDLER_CLIENT, role_tls::NODE_AGENT_CLIENT);
    }

    #[test]
    fn the_files_are_where_an_installation_mounts_them() {
        for (path, folder, file) in [
            (CERT, mount::HANDLER_SERVER, tls::CERTIFICATE),
            (KEY, mount::HANDLER_SERVER, tls::KEY),
            (CA, mount::CA, config_map::CA_BUNDLE),
        ] {
            assert_eq!(path, format!("{folder}/{file}"));
        }
    }
}

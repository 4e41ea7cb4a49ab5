//! `ferrovirt operator`: virt-operator on a Kubernetes cluster.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use informer::Clock;
use informer::client::{Rate, RateLimit, RequestCounter, client};
use informer::leader::LeaseTimes;
use install::Settings;
use terminal::signals;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use virt_operator::Config;

use crate::installation::programs;
use crate::pod::{self, forget_start, give_memory_back, one_heap};

/// Default verbosity, in klog's levels.
const VERBOSITY: u64 = 2;

/// Run virt-operator, which installs, updates and removes Ferrovirt as the KubeVirt object says
///
/// `ferrovirt install` prints its manifests. Of several replicas, the leader does the work and the others wait for its
/// lease; all of them serve the webhooks of the KubeVirt object.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: pod::Cluster,
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: IpAddr,
    /// Port for /healthz and /metrics; 0 for any
    #[arg(long, default_value_t = 8443)]
    port: u16,
    /// Port for webhooks; 0 for any
    #[arg(long, default_value_t = 8444)]
    webhook_port: u16,
    /// Prefix of the image names, unless the KubeVirt object sets it
    #[arg(long, env = "FERROVIRT_IMAGE_PREFIX", default_value_t = Settings::default().image_prefix, value_name = "PREFIX")]
    image_prefix: String,
    /// Image tag, unless the KubeVirt object sets it
    #[arg(long, env = "FERROVIRT_IMAGE_TAG", default_value_t = Settings::default().image_tag, value_name = "TAG")]
    image_tag: String,
    /// Root directory of the kubelets
    #[arg(long, env = "FERROVIRT_KUBELET_ROOT", default_value_t = Settings::default().kubelet_root, value_name = "DIR")]
    kubelet_root: String,
    /// Identity in the leader election [default: host name and process ID]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Acquire the lease before working; false only where no other virt-operator runs
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Log verbosity: 0 to 2 logs changes, 3 to 5 each decision, 6 and above everything
    #[arg(long = "v", default_value_t = VERBOSITY, value_name = "NUMBER")]
    verbosity: u64,
}

/// One thread: it mostly waits, and each thread would have its own heap.
pub fn run(args: Args) -> Result<ExitCode> {
    one_heap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(operate(args));
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

async fn operate(args: Args) -> Result<()> {
    terminal::log::at_verbosity(args.verbosity);
    let cluster = args.cluster.config().await?;
    let requests = RequestCounter::default();
    let limited = |rate: Rate, counter: &RequestCounter| {
        let limit = RateLimit::new(rate, Clock::system());
        client(cluster.clone(), limit, counter.clone()).context("cannot make an API client")
    };
    let election = args.leader_elect.then(|| limited(Rate::CONTROLLER, &RequestCounter::default())).transpose()?;
    let config = Config {
        client: limited(Rate::CONTROLLER, &requests)?,
        events: limited(Rate::EVENTS, &requests)?,
        election,
        lease_times: LeaseTimes::default(),
        identity: args.identity.clone().unwrap_or_else(hostname),
        operator: operator(&args),
        health: listen(args.listen, args.port, "--port").await?,
        webhooks: listen(args.listen, args.webhook_port, "--webhook-port").await?,
        requests,
    };
    tokio::spawn(give_memory_back(config.requests.clone()));
    tokio::spawn(forget_start());
    let shutdown = CancellationToken::new();
    let operating = virt_operator::run(config, shutdown.clone());
    tokio::pin!(operating);
    tokio::select! {
        result = &mut operating => return result.context("virt-operator ended"),
        () = signals::terminated() => shutdown.cancel(),
    }
    tracing::info!("shutting down: finishing the pass in progress, then releasing the lease");
    operating.await.context("virt-operator did not stop cleanly")
}

async fn listen(address: IpAddr, port: u16, flag: &str) -> Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}; choose another with --listen and {flag}"))
}

fn operator(args: &Args) -> operate::Operator {
    let base = Settings {
        namespace: args.cluster.install_namespace(),
        image_prefix: args.image_prefix.clone(),
        image_tag: args.image_tag.clone(),
        kubelet_root: args.kubelet_root.clone(),
        ..Settings::default()
    };
    operate::Operator::new(Settings::default().image_tag, base, architecture().to_owned(), programs())
}

/// As Kubernetes names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name}_{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use install::names::environment;

    use super::*;

    #[test]
    fn the_environment_is_what_an_installation_sets() {
        use clap::Args as _;
        let command = Args::augment_args(clap::Command::new("operator"));
        let read: Vec<String> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let set = [environment::IMAGE_PREFIX, environment::IMAGE_TAG, environment::KUBELET_ROOT, environment::POD_NAME];
        assert_eq!(read, set);
    }
}

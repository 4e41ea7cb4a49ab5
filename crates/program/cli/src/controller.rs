//! `ferrovirt controller`: virt-controller on a Kubernetes cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::config::ClusterConfig;
use clap::{Args as _, FromArgMatches as _};
use informer::Clock;
use informer::client::{Rate, RateLimit, RequestCounter, client};
use informer::leader::LeaseTimes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use virt_controller::controller::Flag;
use virt_controller::{Config, Controller, Endpoints, InstanceSettings, Status};

use terminal::signals;

use crate::pod::{self, certificate, forget_start, give_memory_back, one_heap};

/// Where an operator puts the certificate of the endpoints.
const CERT: &str = "/etc/virt-controller/certificates/tls.crt";
const KEY: &str = "/etc/virt-controller/certificates/tls.key";

/// Default verbosity, in klog's levels.
const VERBOSITY: u64 = 2;

const COMPATIBILITY: &str = "Accepted for compatibility; no effect in this build";

/// Run the controllers of VirtualMachines, VirtualMachineInstances, migrations and nodes against a Kubernetes cluster
///
/// Of several replicas, the leader does the work and the others wait for its lease. A leader that loses its lease exits.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: pod::Cluster,
    /// Address to listen on for /healthz, /leader and /metrics, all over TLS
    #[arg(long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 8182)]
    port: u16,
    /// TLS certificate of the endpoints; self-signed if the default file does not exist
    #[arg(long, default_value = CERT, value_name = "FILE")]
    prom_cert_file: PathBuf,
    /// TLS private key of the endpoints
    #[arg(long, default_value = KEY, value_name = "FILE")]
    prom_key_file: PathBuf,
    /// Log verbosity, until the KubeVirt object sets it: 0 to 2 logs state changes, 3 to 5 each
    /// decision, 6 and above everything
    #[arg(long = "v", default_value_t = VERBOSITY, value_name = "NUMBER")]
    verbosity: u64,

    #[command(flatten)]
    election: Election,
    #[command(flatten)]
    launchers: Launchers,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    compatibility: Compatibility,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
struct Election {
    /// Acquire the lease before working; false only where no other virt-controller runs
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// How long other candidates wait after the leader's last renewal
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "TIME")]
    leader_elect_lease_duration: Duration,
    /// How long the leader keeps leading after renewal fails
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    leader_elect_renew_deadline: Duration,
    /// Pause between attempts to acquire or renew the lease
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "TIME")]
    leader_elect_retry_period: Duration,
    /// Kind of lock; leases is the only one
    #[arg(long, default_value = "leases", value_parser = ["leases"], value_name = "KIND")]
    leader_elect_resource_lock: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Launchers")]
struct Launchers {
    /// Image for launcher Pods
    #[arg(long, default_value_t = ClusterConfig::default().launcher_image, value_name = "IMAGE")]
    launcher_image: String,
    /// Image pull secret for launcher Pods
    #[arg(long, default_value = "", value_name = "NAME")]
    image_pull_secret: String,
    /// Seconds virt-launcher waits for QEMU to start
    #[arg(long, default_value_t = 240, value_name = "SECONDS")]
    launcher_qemu_timeout: u64,
    /// VMI annotations to keep in sync on launcher Pods; a trailing * matches any suffix
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    additional_launcher_annotations_sync: Vec<String>,
    /// VMI labels to keep in sync on launcher Pods; a trailing * matches any suffix
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    additional_launcher_labels_sync: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Work")]
struct Work {
    #[command(flatten)]
    threads: Threads,
    /// Minimum pause between updates of the nodes' time stamp counter labels
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME")]
    node_topology_update_period: Duration,
}

/// Number of workers by flag name. The controllers declare the flags.
#[derive(Debug, PartialEq)]
struct Threads(BTreeMap<&'static str, usize>);

impl Threads {
    /// Adds the flags of these controllers.
    fn flags(command: clap::Command, controllers: &[&'static Controller]) -> clap::Command {
        let flags = controllers.iter().filter_map(|controller| controller.flag());
        flags.fold(command, |command, flag| {
            let help = format!("{} [default: {}]", flag.help, flag.default);
            let number = clap::value_parser!(usize);
            command.arg(clap::Arg::new(flag.name).long(flag.name).help(help).value_name("NUMBER").value_parser(number))
        })
    }

    /// The values of these controllers' flags, with defaults for those not given.
    fn read(matches: &clap::ArgMatches, controllers: &[&'static Controller]) -> Self {
        let flags = controllers.iter().filter_map(|controller| controller.flag());
        let number = |flag: Flag| matches.get_one(flag.name).copied().unwrap_or(flag.default);
        Self(flags.map(|flag| (flag.name, number(flag))).collect())
    }
}

impl clap::Args for Threads {
    fn augment_args(command: clap::Command) -> clap::Command {
        Self::flags(command, virt_controller::ALL)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Threads {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches, virt_controller::ALL))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What deployments written for KubeVirt pass along and nothing here depends on.
#[derive(Debug, PartialEq, clap::Args)]
#[command(next_help_heading = COMPATIBILITY)]
struct Compatibility {
    #[arg(long, default_value = "", value_name = "IMAGE")]
    exporter_image: String,
    #[arg(long, default_value = "/var/run/kubevirt", value_name = "DIR")]
    kubevirt_share_dir: String,
    #[arg(long, default_value = "/var/run/kubevirt-ephemeral-disks", value_name = "DIR")]
    ephemeral_disk_dir: String,
    #[arg(long, default_value = "/var/run/kubevirt/container-disks", value_name = "DIR")]
    container_disk_dir: String,
    #[arg(long, default_value = "/var/run/kubevirt/hotplug-disks", value_name = "DIR")]
    hotplug_disk_dir: String,
    #[arg(long, default_value_t = 107, value_name = "NUMBER")]
    launcher_subgid: i64,
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    rs_controller_threads: usize,
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    pool_controller_threads: usize,
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    snapshot_controller_threads: usize,
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    restore_controller_threads: usize,
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    export_controller_threads: usize,
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    clone_controller_threads: usize,
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    backup_controller_threads: usize,
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "TIME")]
    snapshot_controller_resync_period: Duration,
}

impl Compatibility {
    /// Whether any of these flags is set.
    fn is_used(&self) -> bool {
        let flags = Self::augment_args(clap::Command::new("usual").no_binary_name(true));
        let usual = flags.try_get_matches_from(std::iter::empty::<&str>()).ok();
        usual.and_then(|matches| Self::from_arg_matches(&matches).ok()).as_ref() != Some(self)
    }
}

/// A duration in Go's syntax: `15s`, `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let time: machinery::duration::Duration = text.parse().map_err(|error| format!("{error}"))?;
    time.to_std().ok_or_else(|| "must not be negative".to_owned())
}

/// One thread: the controllers mostly wait, and each thread would have its own heap.
pub fn run(args: Args) -> Result<ExitCode> {
    one_heap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(control(args));
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

async fn control(args: Args) -> Result<()> {
    let namespace = args.cluster.install_namespace();
    let times = LeaseTimes {
        lease_duration: args.election.leader_elect_lease_duration,
        renew_deadline: args.election.leader_elect_renew_deadline,
        retry_period: args.election.leader_elect_retry_period,
    };
    if let Err(wrong) = times.check() {
        bail!(
            "leader election: {wrong}; see --leader-elect-lease-duration, --leader-elect-renew-deadline and --leader-elect-retry-period"
        );
    }
    terminal::log::at_verbosity(args.verbosity);
    if args.compatibility.is_used() {
        tracing::warn!("some flags have no effect in this build; see --help");
    }

    let cluster = args.cluster.config().await?;
    let status = Arc::new(Status::default());
    let limit = RateLimit::new(Rate::CONTROLLER, Clock::system());
    let requests =
        client(cluster.clone(), limit.clone(), status.requests.clone()).context("cannot make an API client")?;
    // Separate rate limits: events must not delay work, and nothing may delay the renewal of the lease.
    let apart = RateLimit::new(Rate::EVENTS, Clock::system());
    let events = client(cluster.clone(), apart, status.requests.clone()).context("cannot make an API client")?;
    let apart = RateLimit::new(Rate::CONTROLLER, Clock::system());
    let election = client(cluster, apart, RequestCounter::default()).context("cannot make an API client")?;

    let address = SocketAddr::new(args.listen, args.port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for health and metrics; choose another with --listen and --port")
    })?;
    let endpoints = Endpoints::new(
        certificate((&args.prom_cert_file, CERT), (&args.prom_key_file, KEY), "virt-controller")?,
        status.clone(),
        election.clone(),
    )?;
    let shutdown = CancellationToken::new();
    tokio::spawn(endpoints.serve(listener, shutdown.clone()));

    let leader_election = args.election.leader_elect.then_some(election);
    let config =
        Config { events: Some(events), ..config(args, requests, namespace, leader_election, times, status, limit) };
    tokio::spawn(give_memory_back(config.status.requests.clone()));
    tokio::spawn(forget_start());
    let controllers = virt_controller::run(config, shutdown.clone());
    tokio::pin!(controllers);
    tokio::select! {
        result = &mut controllers => return result.context("the controllers ended"),
        () = signals::terminated() => {}
    }
    tracing::info!("shutting down: finishing reconciles in progress, then releasing the lease");
    shutdown.cancel();
    controllers.await.context("the controllers did not stop cleanly")
}

fn config(
    args: Args,
    client: kube::Client,
    install_namespace: String,
    leader_election: Option<kube::Client>,
    lease_times: LeaseTimes,
    status: Arc<Status>,
    limit: RateLimit,
) -> Config {
    let verbosity = args.verbosity;
    let mut instances = InstanceSettings {
        follow_annotations: args.launchers.additional_launcher_annotations_sync,
        follow_labels: args.launchers.additional_launcher_labels_sync,
        ..InstanceSettings::default()
    };
    instances.launcher.qemu_timeout_seconds = args.launchers.launcher_qemu_timeout;
    instances.launcher.pull_secret = Some(args.launchers.image_pull_secret).filter(|name| !name.is_empty());
    Config {
        instances,
        install_namespace,
        identity: identity(),
        leader_election,
        lease_times,
        workers: args.work.threads.0,
        node_topology_update_period: args.work.node_topology_update_period,
        status,
        rate_limit: Some(limit),
        on_configuration: Some(Arc::new(move |config: &ClusterConfig| {
            let developer = config.configuration.developer_configuration.as_ref();
            let told = developer.and_then(|developer| developer.log_verbosity.as_ref()?.virt_controller);
            terminal::log::at_verbosity(told.filter(|told| *told > 0).unwrap_or(verbosity));
        })),
        ..Config::new(client, args.launchers.launcher_image)
    }
}

/// The hostname, which is the Pod's name in a Pod. Elsewhere several processes may share a host and must not mistake
/// each other's lease for their own.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() { host } else { format!("{host}_{}", std::process::id()) }
}

#[cfg(test)]
mod one_more;

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["controller"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn without_flags_the_usual_values_hold() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.listen.to_string().as_str(), args.port), ("0.0.0.0", 8182));
        assert_eq!(
            (args.work.threads.0["vmi-controller-threads"], args.work.threads.0["vm-controller-threads"]),
            (10, 3)
        );
        assert_eq!(args.work.node_topology_update_period, Duration::from_secs(30));
        assert_eq!(args.launchers.launcher_qemu_timeout, 240);
        assert_eq!(args.compatibility.launcher_subgid, 107);
        assert_eq!(args.compatibility.snapshot_controller_resync_period, Duration::from_secs(300));
        assert!(args.election.leader_elect);
        assert!(!args.compatibility.is_used());
        assert!(parse(&["--pool-controller-threads=7"]).unwrap().compatibility.is_used());
        let times = LeaseTimes {
            lease_duration: args.election.leader_elect_lease_duration,
            renew_deadline: args.election.leader_elect_renew_deadline,
            retry_period: args.election.leader_elect_retry_period,
        };
        assert_eq!(times, LeaseTimes::default());
    }

    #[test]
    fn each_controller_has_the_flag_that_it_declares() {
        let args = parse(&["--evacuation-controller-threads=7"]).unwrap();
        assert_eq!(args.work.threads.0["evacuation-controller-threads"], 7);
        let names: Vec<&str> = args.work.threads.0.keys().copied().collect();
        let kubevirts = [
            "disruption-budget-controller-threads",
            "evacuation-controller-threads",
            "migration-controller-threads",
            "node-controller-threads",
            "vm-controller-threads",
            "vmi-controller-threads",
        ];
        assert_eq!(names, kubevirts);
        assert!(parse(&["--vm-controller-threads=many"]).is_err());
    }

    #[test]
    fn lists_and_times_are_read_as_deployments_write_them() {
        let words = ["--additional-launcher-labels-sync=a,b/*", "--leader-elect-lease-duration", "1m30s"];
        let args = parse(&words).unwrap();
        assert_eq!(args.launchers.additional_launcher_labels_sync, ["a", "b/*"]);
        assert_eq!(args.election.leader_elect_lease_duration, Duration::from_secs(90));
        assert!(!parse(&["--leader-elect=false"]).unwrap().election.leader_elect);
        assert!(parse(&["--leader-elect-retry-period=soon"]).is_err());
        assert!(parse(&["--leader-elect-resource-lock=endpoints"]).is_err());
    }
}

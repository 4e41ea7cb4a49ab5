//! The program: leader election, caches, workers and graceful shutdown.
//!
//! ```text
//! wait for the lease ──► start the caches ──► complete: lead ──► workers ──► shutdown: workers end ──► lease given back
//!                                                                       └──► lease lost: everything stops at once
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::config::{ClusterConfig, DEFAULT_INSTALL_NAMESPACE};
use informer::client::{Rate, RateLimit};
use informer::leader::{self, LeaderConfig, LeaseTimes};
use informer::{Clock, Key, Recorder, run_workers};
use kube::Client;
use plan::topology::{self, Pace};
use plan::vmi::Settings as InstanceSettings;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::KubeApi;
use crate::controller::{Controller, Workers};
use crate::controllers::{ALL, Controllers, Settings};
use crate::error::Error;
use crate::status::Status;
use crate::stores::Stores;
use crate::writer::WriteCounter;

/// Default component of events, unless a controller declares its own.
const COMPONENT: &str = "virt-controller";
/// Name of the Lease for leader election.
pub const LEASE: &str = "virt-controller";
/// Shutdown timeout for running reconciles.
const LAST_PASSES: Duration = Duration::from_secs(20);

/// Called with each new configuration.
pub type OnConfiguration = Arc<dyn Fn(&ClusterConfig) + Send + Sync>;

/// Configuration of the controllers.
#[derive(Clone)]
pub struct Config {
    pub client: Client,
    /// A separate client for events, so that they do not compete for the rate limit of `client`.
    pub events: Option<Client>,
    /// Defaults of this installation, including the launcher image; the KubeVirt object overrides them.
    pub base: ClusterConfig,
    /// How launchers are started and their Pods configured, beyond what the KubeVirt object specifies.
    pub instances: InstanceSettings,
    /// The installation namespace: it holds the KubeVirt object and the Lease.
    pub install_namespace: String,
    /// Unique identity of this process, usually the Pod or host name.
    pub identity: String,
    /// Enables leader election. A separate client keeps lease renewal apart from other traffic.
    pub leader_election: Option<Client>,
    pub lease_times: LeaseTimes,
    /// The controllers to run.
    pub controllers: Vec<&'static Controller>,
    /// Number of workers by flag name, where it differs from the flag's default.
    pub workers: BTreeMap<&'static str, usize>,
    /// Minimum time between updates of the nodes' TSC frequency labels.
    pub node_topology_update_period: Duration,
    /// Start no VMs: the cluster is being drained.
    pub hold_starts: bool,
    /// Counts API writes per VM.
    pub writes: Arc<WriteCounter>,
    /// Health and metrics, updated while running.
    pub status: Arc<Status>,
    /// The rate limit of `client`, adjusted to the cluster configuration.
    pub rate_limit: Option<RateLimit>,
    /// Called with the cluster configuration at startup and on every change. It must not block.
    pub on_configuration: Option<OnConfiguration>,
}

impl Config {
    /// Defaults: no leader election, all controllers, each with its default number of workers.
    pub fn new(client: Client, launcher_image: impl Into<String>) -> Self {
        Self {
            client,
            events: None,
            base: ClusterConfig { launcher_image: launcher_image.into(), ..ClusterConfig::default() },
            instances: InstanceSettings::default(),
            install_namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
            identity: "virt-controller".to_owned(),
            leader_election: None,
            lease_times: LeaseTimes::default(),
            controllers: ALL.to_vec(),
            workers: BTreeMap::new(),
            node_topology_update_period: topology::PERIOD,
            hold_starts: false,
            writes: Arc::default(),
            status: Arc::default(),
            rate_limit: None,
            on_configuration: None,
        }
    }

    fn workers_of(&self, controller: &Controller) -> usize {
        match controller.workers {
            Workers::Flag(flag) | Workers::Like(flag) => self.workers.get(flag.name).copied().unwrap_or(flag.default),
            Workers::Fixed(workers) => workers,
        }
    }

    fn election(&self, client: Client) -> LeaderConfig {
        let election = LeaderConfig::new(client, &self.install_namespace, LEASE, &self.identity);
        LeaderConfig { times: self.lease_times, ..election }
    }

    fn settings(&self) -> Settings {
        Settings {
            base: ClusterConfig { install_namespace: self.install_namespace.clone(), ..self.base.clone() },
            instances: self.instances.clone(),
            hold_starts: self.hold_starts,
            node_topology: Pace { period: self.node_topology_update_period, identity: self.identity.clone() },
            writes: self.writes.clone(),
        }
    }
}

/// Runs the controllers until `shutdown`. A leader that loses the lease stops at once with an error; the process must
/// then exit.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    // Dropping the guard stops all watches and the event recorder, however this function returns.
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    config.status.set_ready();
    let Some(election) = config.leader_election.clone() else {
        control(&config, &shutdown, stop).await;
        return Ok(());
    };
    let Some(leadership) = leader::lead(config.election(election), shutdown.clone()).await else { return Ok(()) };
    let lost = leadership.lost.clone();
    tokio::select! {
        biased;
        () = lost.cancelled() => {
            config.status.set_leads(false);
            Err(Error::LeaseLost)
        }
        () = control(&config, &shutdown, stop) => {
            leadership.release().await;
            Ok(())
        }
    }
}

/// Runs until `shutdown`. Caches and the event recorder run until `stop`, since the last reconciles need them.
async fn control(config: &Config, shutdown: &CancellationToken, stop: CancellationToken) {
    let stores = Stores::start(&config.client, &stop);
    let events = config.events.as_ref().unwrap_or(&config.client).clone();
    let recorder = Recorder::start(events, COMPONENT, &config.identity, stop.clone());
    let api = Arc::new(KubeApi::new(config.client.clone()));
    let (notes, clock) = (Arc::new(recorder), Clock::system());
    let controllers = Controllers::new(&config.controllers, stores.clone(), api, notes, clock, config.settings());
    follow_configuration(config, &controllers);
    config.status.watch_queues(&controllers);
    config.status.watch_caches({
        let stores = stores.clone();
        move || stores.sizes()
    });
    if shutdown.run_until_cancelled(stores.synced()).await != Some(true) {
        return;
    }
    config.status.set_leads(true);
    tracing::info!("controllers start");
    work(&controllers, config, shutdown).await;
    config.status.set_leads(false);
}

fn follow_configuration(config: &Config, controllers: &Controllers) {
    if let Some(listener) = config.on_configuration.clone() {
        controllers.config().on_change(move |config| listener(config));
    }
    if let Some(limit) = config.rate_limit.clone() {
        controllers.config().on_change(move |config| limit.set(rate(config)));
    }
}

/// The API rate limit set by the cluster configuration.
fn rate(config: &ClusterConfig) -> Rate {
    let component = config.configuration.controller_configuration.as_ref();
    let limiter = component.and_then(|component| component.rest_client.as_ref()?.rate_limiter.as_ref());
    let bucket = limiter.and_then(|limiter| limiter.token_bucket_rate_limiter.as_ref());
    match bucket {
        Some(bucket) if bucket.qps > 0.0 && bucket.burst > 0 => {
            Rate { per_second: bucket.qps, burst: bucket.burst as f64 }
        }
        _ => Rate::CONTROLLER,
    }
}

/// Runs every controller's workers until `shutdown` and lets running reconciles finish.
async fn work(controllers: &Controllers, config: &Config, shutdown: &CancellationToken) {
    let mut pools = JoinSet::new();
    for running in controllers.running() {
        let (queue, running) = (running.queue.clone(), running.clone());
        let workers = config.workers_of(running.declared);
        pools.spawn(run_workers(queue, workers, shutdown.clone(), move |key: Key| {
            let running = running.clone();
            async move { running.reconcile(&key).await }
        }));
    }
    let all_ended = async { while pools.join_next().await.is_some() {} };
    tokio::pin!(all_ended);
    tokio::select! {
        () = &mut all_ended => return,
        () = shutdown.cancelled() => {}
    }
    if tokio::time::timeout(LAST_PASSES, all_ended).await.is_err() {
        tracing::warn!("canceled reconciles that did not finish in time");
    }
}

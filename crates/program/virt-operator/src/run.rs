//! The program: servers on every replica, passes on the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use informer::client::RequestCounter;
use informer::leader::{self, LeaderConfig, LeaseTimes};
use informer::{Classify as _, ErrorClass, Recorder};
use install::names;
use kube::Client;
use operate::{Decision, Operator, decide, failed};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use virt_api::Admission;

use crate::error::Error;
use crate::execute::Executor;
use crate::mirror::Mirror;
use crate::observe::observe;
use crate::serve::{self, Health, Shown};
use crate::signer;

/// Name of the Lease for leader election.
pub const LEASE: &str = names::app::OPERATOR;
/// Changes come in bursts, and one pass serves all of a burst.
const BURST: Duration = Duration::from_millis(200);
/// The pause after a pass that failed, doubled with each further one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// Failures before a warning: new RBAC rules and CRDs take a moment to become effective.
const PATIENCE: u32 = 3;

/// What virt-operator needs.
pub struct Config {
    pub client: Client,
    /// Separate clients for events and for the lease, so that they do not delay each other.
    pub events: Client,
    pub election: Option<Client>,
    pub lease_times: LeaseTimes,
    /// Unique among the replicas, usually the Pod's name.
    pub identity: String,
    pub operator: Operator,
    /// For `/healthz` and `/metrics`.
    pub health: TcpListener,
    pub webhooks: TcpListener,
    pub requests: RequestCounter,
}

/// Runs until `shutdown`. A leader that loses the lease stops at once with an error; the process must then exit.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    // Dropping the guard stops all tasks, however this function returns.
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let Config { client, events, election, lease_times, identity, operator, health, webhooks, requests } = config;
    let namespace = operator.base.namespace.clone();
    let mirror = Mirror::start(&client, &namespace, &stop);
    let shown = Shown::new()?;
    tokio::spawn(shown.clone().follow(mirror.clone(), namespace.clone(), stop.clone()));
    let (leads, synced) = (AtomicBool::new(false), AtomicBool::new(false));
    let told = Arc::new(Health { client: client.clone(), requests, leads, synced, checked: Mutex::new(None) });
    tokio::spawn(serve::serve(health, shown.acceptor()?, serve::health(told.clone()), stop.clone()));
    let reviews = virt_api::server::reviews(client.clone(), Arc::new(Admission::on_kubernetes()));
    tokio::spawn(serve::serve(webhooks, shown.acceptor()?, reviews, stop.clone()));

    let leadership = match election {
        None => None,
        Some(election) => {
            let election = LeaderConfig::new(election, &namespace, LEASE, &identity);
            match leader::lead(LeaderConfig { times: lease_times, ..election }, shutdown.clone()).await {
                Some(leadership) => Some(leadership),
                None => return Ok(()),
            }
        }
    };
    told.leads.store(true, Ordering::Relaxed);
    let recorder = Recorder::start(events, names::app::OPERATOR, &identity, stop.clone());
    let work = async {
        if shutdown.run_until_cancelled(mirror.synced()).await.is_none() {
            return;
        }
        told.synced.store(true, Ordering::Relaxed);
        tracing::info!(namespace, version = operator.version, "virt-operator started");
        let signing = signer::run(client.clone(), mirror.clone(), namespace.clone(), shutdown.clone());
        let passes = Passes { client: &client, mirror: &mirror, operator: &operator, recorder: &recorder };
        tokio::join!(signing, passes.run(&shutdown));
    };
    match leadership {
        None => {
            work.await;
            Ok(())
        }
        Some(leadership) => {
            let lost = leadership.lost.clone();
            tokio::select! {
                biased;
                () = lost.cancelled() => Err(Error::LeaseLost),
                () = work => {
                    leadership.release().await;
                    Ok(())
                }
            }
        }
    }
}

struct Passes<'a> {
    client: &'a Client,
    mirror: &'a Mirror,
    operator: &'a Operator,
    recorder: &'a Recorder,
}

impl Passes<'_> {
    async fn run(&self, shutdown: &CancellationToken) {
        let mut changes = self.mirror.changes();
        let mut failures = 0;
        while !shutdown.is_cancelled() {
            changes.mark_unchanged();
            let pause = match self.pass(failures).await {
                Ok(again) => {
                    failures = 0;
                    again
                }
                Err(error) => {
                    failures = if error.class() == ErrorClass::Conflict { failures } else { failures + 1 };
                    let pause = PAUSE.saturating_mul(1 << failures.min(7)).min(PAUSE_MAX);
                    tracing::warn!(error = error.whole(), seconds = pause.as_secs(), "reconcile failed; retrying");
                    if shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return;
                    }
                    continue;
                }
            };
            let change = async {
                tokio::select! {
                    _ = changes.changed() => tokio::time::sleep(BURST).await,
                    () = tokio::time::sleep(pause) => {}
                }
            };
            shutdown.run_until_cancelled(change).await;
        }
    }

    /// One pass; returns the time until the next one if nothing changes.
    async fn pass(&self, failures: u32) -> Result<Duration, Error> {
        let world = observe(self.client, self.mirror, self.operator).await?;
        let Decision { effects, again } = decide(&world);
        tracing::debug!(?effects);
        let executor = Executor { client: self.client, recorder: self.recorder, world: &world };
        if let Err(error) = executor.run(effects).await {
            if failures >= PATIENCE && error.class() != ErrorClass::Conflict {
                executor.run(failed(&world, &error.whole()).into_iter().collect()).await?;
            }
            return Err(error);
        }
        Ok(again.unwrap_or(PAUSE_MAX))
    }
}

//! One active process among several, by a Lease. Speaks client-go's protocol, so both can wait for the same lock.
//!
//! Clocks of different machines are never compared: another holder's lease is over when *we* have not seen it change
//! for the duration it promised. Every write carries the resource version, so of two takers one loses.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Give it a client of its own: controller traffic must not starve the renewal.
#[derive(Clone)]
pub struct LeaderConfig {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Unique among the candidates, usually the Pod's name.
    pub identity: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// The usual times: 15 s, 10 s, 2 s.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The lock is ours until `lost` is cancelled. Whoever leads must stop writing at once then.
#[derive(Debug)]
pub struct Leadership {
    pub lost: CancellationToken,
}

/// Waits until this process leads. `None` if `shutdown` came first. After that the lease is renewed in the background
/// until `shutdown`, which gives it back.
pub async fn lead(config: LeaderConfig, shutdown: CancellationToken) -> Option<Leadership> {
    let mut candidate =
        Candidate { api: Api::namespaced(config.client.clone(), &config.namespace), config, seen: None };
    loop {
        let patience = candidate.config.renew_deadline;
        match shutdown.run_until_cancelled(timeout(patience, candidate.attempt())).await? {
            Ok(Ok(true)) => break,
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => candidate.complain(&error),
        }
        shutdown.run_until_cancelled(sleep(candidate.config.retry_period)).await?;
    }
    tracing::info!(lease = candidate.config.name, identity = candidate.config.identity, "leading");
    let lost = CancellationToken::new();
    let leadership = Leadership { lost: lost.clone() };
    tokio::spawn(async move {
        if shutdown.run_until_cancelled(candidate.hold()).await.is_some() {
            tracing::error!(lease = candidate.config.name, "the lease could not be renewed in time");
            lost.cancel();
        } else {
            candidate.release().await;
        }
    });
    Some(leadership)
}

struct Candidate {
    api: Api<Lease>,
    config: LeaderConfig,
    /// The lease as last seen and when it last changed before our eyes.
    seen: Option<(Lease, Instant)>,
}

impl Candidate {
    fn complain(&self, error: &Error) {
        tracing::warn!(lease = self.config.name, error = error as &dyn std::error::Error, "no answer about the lease");
    }

    /// Renews until that fails for the renew deadline.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.config.retry_period).await;
            let Some(left) = self.config.renew_deadline.checked_sub(renewed.elapsed()) else { return };
            match timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => self.complain(&error),
                Err(_) => return,
            }
        }
    }

    /// Takes or renews the lease. False if somebody else holds it.
    async fn attempt(&mut self) -> Result<bool, Error> {
        let Some(lease) = self.api.get_opt(&self.config.name).await? else {
            let created = self.api.create(&PostParams::default(), &self.claim(None)).await;
            return self.outcome(created);
        };
        self.observe(&lease);
        if !self.may_take(&lease) {
            return Ok(false);
        }
        let replaced = self.api.replace(&self.config.name, &PostParams::default(), &self.claim(Some(&lease))).await;
        self.outcome(replaced)
    }

    fn outcome(&mut self, written: Result<Lease, Error>) -> Result<bool, Error> {
        match written {
            Ok(lease) => {
                self.observe(&lease);
                Ok(true)
            }
            // Another candidate was quicker (or our read was old); the next attempt looks again.
            Err(Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observe(&mut self, lease: &Lease) {
        if self.seen.as_ref().is_none_or(|(seen, _)| seen.spec != lease.spec) {
            self.seen = Some((lease.clone(), Instant::now()));
        }
    }

    fn may_take(&self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == self.config.identity {
            return true;
        }
        let promised = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
        let promised = promised.unwrap_or(self.config.lease_duration);
        self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() > promised)
    }

    /// The lease in our name. Acquisition time and transitions go on while the holder stays the same.
    fn claim(&self, current: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = old.holder_identity.as_deref() == Some(&self.config.identity);
        let transitions = old.lease_transitions.unwrap_or(0);
        let metadata = current.map_or_else(
            || ObjectMeta { name: Some(self.config.name.clone()), ..Default::default() },
            |lease| lease.metadata.clone(),
        );
        let spec = LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
            acquire_time: old.acquire_time.filter(|_| ours).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours || current.is_none() { transitions } else { transitions + 1 }),
            ..Default::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    /// Empties the lease so that the next candidate need not wait it out.
    async fn release(&mut self) {
        let Some((lease, _)) = self.seen.take() else { return };
        let mut free = self.claim(Some(&lease));
        if let Some(spec) = &mut free.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
        }
        let params = PostParams::default();
        let released = self.api.replace(&self.config.name, &params, &free);
        if let Ok(Err(error)) = timeout(self.config.retry_period, released).await {
            self.complain(&error);
        }
    }
}

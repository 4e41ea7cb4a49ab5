//! Leader election with a Lease. Compatible with client-go, so both can compete for the same lock.
//!
//! Clocks of different machines are never compared: another holder's lease has expired when *we* have not seen it
//! change for its duration. Every write carries the resource version, so of two candidates one loses.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use machinery::rights::{Right, Verb};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The rights a candidate's client needs.
pub const RIGHT: Right = Right::on::<Lease>(&[Verb::Get, Verb::Create, Verb::Update]).in_installation();

/// Random jitter of the retry interval, so that candidates do not retry in lockstep.
const JITTER: f64 = 1.2;

/// Use a separate client: controller traffic must not starve the renewal.
#[derive(Clone)]
pub struct LeaderConfig {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Unique among the candidates, usually the Pod's name.
    pub identity: String,
    pub times: LeaseTimes,
}

impl LeaderConfig {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            times: LeaseTimes::default(),
        }
    }
}

/// Timing of the election. All candidates should use the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long others wait after a holder's last renewal.
    pub lease_duration: Duration,
    /// How long a holder keeps leading while renewals fail.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Default for LeaseTimes {
    /// The usual values: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTimes {
    /// Validates the values: a holder must give up before others may take over.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.lease_duration <= self.renew_deadline {
            return Err("the lease duration must be longer than the renew deadline");
        }
        if self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * JITTER {
            return Err("the renew deadline must be longer than 1.2 times the retry period");
        }
        if self.lease_duration < Duration::from_secs(1) || self.retry_period.is_zero() {
            return Err("the lease duration must be at least a second and the retry period above zero");
        }
        Ok(())
    }
}

/// Held until `lost` is canceled. The leader must then stop writing at once.
///
/// If dropped without [`Leadership::release`], the lease is no longer renewed and others wait for it to expire.
#[derive(Debug)]
pub struct Leadership {
    pub lost: CancellationToken,
    /// Tells the renewal task to release the lease.
    release: Option<oneshot::Sender<()>>,
    released: oneshot::Receiver<()>,
}

impl Leadership {
    /// Releases the lease, so that the next candidate need not wait. All work must have stopped before.
    pub async fn release(mut self) {
        if let Some(release) = self.release.take() {
            // The renewal task may already have ended: then the lease is lost anyway.
            let _ = release.send(());
            let _ = self.released.await;
        }
    }
}

/// Waits until this process leads. `None` if `shutdown` came first. Afterwards the lease is renewed in the background.
pub async fn lead(config: LeaderConfig, shutdown: CancellationToken) -> Option<Leadership> {
    let mut candidate =
        Candidate { api: Api::namespaced(config.client.clone(), &config.namespace), config, seen: None };
    loop {
        let patience = candidate.config.times.renew_deadline;
        match shutdown.run_until_cancelled(timeout(patience, candidate.attempt())).await? {
            Ok(Ok(Attempt::Ours)) => break,
            Ok(Ok(Attempt::Theirs | Attempt::Conflict)) | Err(_) => {}
            Ok(Err(error)) => candidate.complain(&error),
        }
        let pause = candidate.config.times.retry_period.mul_f64(1.0 + rand::random::<f64>() * JITTER);
        shutdown.run_until_cancelled(sleep(pause)).await?;
    }
    tracing::info!(lease = candidate.config.name, identity = candidate.config.identity, "leading");
    let lost = CancellationToken::new();
    let (release, asked) = oneshot::channel();
    let (gave_back, released) = oneshot::channel();
    let leadership = Leadership { lost: lost.clone(), release: Some(release), released };
    tokio::spawn(async move {
        let asked = tokio::select! {
            () = candidate.hold() => {
                tracing::error!(lease = candidate.config.name, "lost the lease: not renewed in time, or taken over by another replica");
                return lost.cancel();
            }
            asked = asked => asked,
        };
        if asked.is_ok() {
            candidate.release().await;
            let _ = gave_back.send(());
        }
    });
    Some(leadership)
}

/// Outcome of an attempt to acquire or renew the lease.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Ours,
    /// Somebody else holds it.
    Theirs,
    /// The lease changed concurrently; the next attempt sees how.
    Conflict,
}

struct Candidate {
    api: Api<Lease>,
    config: LeaderConfig,
    /// The lease as last read, and when we last saw it change.
    seen: Option<(Lease, Instant)>,
}

impl Candidate {
    fn complain(&self, error: &Error) {
        tracing::warn!(
            lease = self.config.name,
            error = error as &dyn std::error::Error,
            "no reply to the lease request"
        );
    }

    /// Renews until that has failed for the renew deadline, or somebody else holds the lease.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.config.times.retry_period).await;
            let Some(left) = self.config.times.renew_deadline.checked_sub(renewed.elapsed()) else { return };
            match timeout(left, self.renew()).await {
                Ok(Ok(Attempt::Ours)) => renewed = Instant::now(),
                Ok(Ok(Attempt::Theirs)) | Err(_) => return,
                Ok(Ok(Attempt::Conflict)) => {}
                Ok(Err(error)) => self.complain(&error),
            }
        }
    }

    /// Renews the lease without reading it first; reads it if that fails.
    async fn renew(&mut self) -> Result<Attempt, Error> {
        if let Some(lease) = self.seen.as_ref().map(|(lease, _)| lease.clone()).filter(|lease| self.holds(lease)) {
            let replaced = self.api.replace(&self.config.name, &PostParams::default(), &self.claim(Some(&lease))).await;
            if let Ok(Attempt::Ours) = self.outcome(replaced) {
                return Ok(Attempt::Ours);
            }
        }
        self.attempt().await
    }

    /// Acquires or renews the lease.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let Some(lease) = self.api.get_opt(&self.config.name).await? else {
            let created = self.api.create(&PostParams::default(), &self.claim(None)).await;
            return self.outcome(created);
        };
        self.observe(&lease);
        if !self.may_take(&lease) {
            return Ok(Attempt::Theirs);
        }
        let replaced = self.api.replace(&self.config.name, &PostParams::default(), &self.claim(Some(&lease))).await;
        self.outcome(replaced)
    }

    fn outcome(&mut self, written: Result<Lease, Error>) -> Result<Attempt, Error> {
        match written {
            Ok(lease) => {
                self.observe(&lease);
                Ok(Attempt::Ours)
            }
            // Another candidate was faster, or our read was stale.
            Err(Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
            Err(error) => Err(error),
        }
    }

    fn observe(&mut self, lease: &Lease) {
        let since = match &self.seen {
            Some((seen, since)) if seen.spec == lease.spec => *since,
            _ => Instant::now(),
        };
        self.seen = Some((lease.clone(), since));
    }

    fn holds(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder == Some(&self.config.identity)
    }

    fn may_take(&self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        let free = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default().is_empty();
        if free || self.holds(lease) {
            return true;
        }
        let promised = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
        let promised = promised.map_or(self.config.times.lease_duration, Duration::from_secs);
        self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() > promised)
    }

    /// The lease in our name. Acquire time and transitions are kept while the holder stays the same.
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
            lease_duration_seconds: i32::try_from(self.config.times.lease_duration.as_secs()).ok(),
            acquire_time: old.acquire_time.filter(|_| ours).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours || current.is_none() { transitions } else { transitions + 1 }),
            ..Default::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    /// Clears the lease so that the next candidate need not wait for it to expire. A renewal may just have been in
    /// flight, so the lease is read first.
    async fn release(&mut self) {
        let give_back = async {
            let Some(lease) = self.api.get_opt(&self.config.name).await?.filter(|lease| self.holds(lease)) else {
                return Ok(());
            };
            let mut free = self.claim(Some(&lease));
            if let Some(spec) = &mut free.spec {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
            }
            self.api.replace(&self.config.name, &PostParams::default(), &free).await.map(drop)
        };
        if let Ok(Err(error)) = timeout(self.config.times.renew_deadline, give_back).await {
            self.complain(&error);
        }
    }
}

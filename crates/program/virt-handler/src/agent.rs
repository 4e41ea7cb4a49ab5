//! The actor of one launcher: observe, decide, act, wait.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};
use hostfs::process::ProcessId;
use informer::EventType;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Resource};
use launcher_contract::types::{Command, RefusalCode, SyncOptions};
use launcher_rpc::Error as RpcError;
use tokio::sync::Notify;
use tokio::time::timeout;
use vmstate::{
    Action, Endpoint, Failure, IoRetry, LauncherView, Network, PodAddresses, Proxy, Sent, Vmi, World, claim, decide,
};

use crate::agents::Node;
use crate::devices;
use crate::error::chain;
use crate::launcher::{Launcher, Report, has_directory, has_socket, last_state};
use crate::migration;
use crate::network::{self, NetworkError};
use crate::proxy::Side;
use crate::records::{GhostRecord, NetworkRecord};
use crate::selinux;

/// Maximum number of rounds without a pause; a state machine that needs more is broken.
const ROUNDS: usize = 20;
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// Back-off after a failed write of a record.
const DISK_RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Agent {
    node: Arc<Node>,
    record: GhostRecord,
    /// Whether the record is on disk.
    recorded: bool,
    published: Arc<OnceLock<Arc<Launcher>>>,
    network: Option<NetworkRecord>,
    first_seen: Timestamp,
    /// Our last write; the cache may be stale.
    written: Option<Arc<VirtualMachineInstance>>,
    /// The API server has confirmed that the VMI is gone.
    absent: bool,
    sent: Sent,
    failure: Option<Failure>,
    io_retry: Option<IoRetry>,
    /// The SELinux label of this process.
    selinux: Option<(ProcessId, String)>,
}

/// All observations, from which a [`World`] is built.
struct Seen {
    now: Timestamp,
    vmi: SeenVmi,
    report: Report,
    addresses: Vec<PodAddresses>,
    pod_dir: bool,
    process_gone: bool,
    left_behind: Option<vmstate::LauncherState>,
    rival: bool,
    listening: Option<Endpoint>,
    dialling: Option<Endpoint>,
}

enum SeenVmi {
    Present(Arc<VirtualMachineInstance>),
    Absent,
    Unconfirmed,
}

impl SeenVmi {
    fn view(&self) -> Vmi<'_> {
        match self {
            SeenVmi::Present(vmi) => Vmi::Present(vmi),
            SeenVmi::Absent => Vmi::Absent,
            SeenVmi::Unconfirmed => Vmi::Unconfirmed,
        }
    }
}

/// An action that failed.
pub(crate) struct Failed {
    pub(crate) message: String,
    pub(crate) critical: bool,
}

impl Agent {
    pub(crate) fn new(
        node: Arc<Node>,
        record: GhostRecord,
        recorded: bool,
        published: Arc<OnceLock<Arc<Launcher>>>,
    ) -> Self {
        Agent {
            node,
            record,
            recorded,
            published,
            network: None,
            first_seen: Timestamp::now(),
            written: None,
            absent: false,
            sent: Sent::default(),
            failure: None,
            io_retry: None,
            selinux: None,
        }
    }

    /// Runs until nothing of the launcher is left to manage.
    pub(crate) async fn run(mut self, wake: &Notify) {
        self.remember().await;
        let launcher = self.published.get_or_init(|| {
            let record = &self.record;
            Launcher::start(self.node.pods.clone(), record.pod_uid.clone(), record.vmi_uid.clone())
        });
        let launcher = launcher.clone();
        let mut reports = launcher.reports();
        loop {
            reports.mark_unchanged();
            let Some(pause) = self.work(&launcher).await else { return };
            tokio::select! {
                () = wake.notified() => {}
                _ = reports.changed() => {}
                () = tokio::time::sleep(pause.unwrap_or(Duration::MAX)) => {}
            }
        }
    }

    /// Loads the records from disk. The ghost record must be on disk before the launcher is first contacted.
    async fn remember(&mut self) {
        loop {
            let outcome = self.node.records.network(&self.record.pod_uid).and_then(|network| {
                self.network = network;
                if self.recorded { Ok(()) } else { self.node.records.write_ghost(&self.record) }
            });
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(pod = %self.record.pod_uid, error = chain(&error), "failed to read or write the launcher's record");
                    tokio::time::sleep(DISK_RETRY).await;
                }
            }
        }
        self.recorded = true;
    }

    /// Decides and acts until there is nothing to do but wait. Returns the longest time to wait, or `None` when done.
    async fn work(&mut self, launcher: &Arc<Launcher>) -> Option<Option<Duration>> {
        for _ in 0..ROUNDS {
            let seen = self.observe(launcher).await;
            let actions = decide(&self.world(&seen));
            if !actions.is_empty() {
                tracing::debug!(vmi = %self.record.vmi_key(), pod = %self.record.pod_uid, ?actions);
            }
            let mut pause: Option<Duration> = None;
            let mut worked = false;
            for action in actions {
                if let Action::RequeueAfter { delay, .. } = action {
                    pause = Some(pause.map_or(delay, |pause| pause.min(delay)));
                    continue;
                }
                worked |= action.kind().is_some();
                if !self.carry_out(action, &seen, launcher).await {
                    break; // later actions depend on this one; the next round sees the failure
                }
            }
            if !worked {
                let done = claim::is_done(seen.vmi.view(), &self.node.name, self.recorded);
                return if done { None } else { Some(pause) };
            }
        }
        tracing::error!(pod = %self.record.pod_uid, "launcher state machine does not settle");
        Some(Some(Duration::from_secs(1)))
    }

    async fn observe(&mut self, launcher: &Launcher) -> Seen {
        let report = launcher.report();
        let news = report.process.is_some() && report.process != self.record.launcher;
        if news || (report.pod_name.is_some() && report.pod_name != self.record.pod_name) {
            self.record.launcher = report.process.or(self.record.launcher);
            self.record.pod_name = report.pod_name.clone().or_else(|| self.record.pod_name.take());
            if let Err(error) = self.node.records.write_ghost(&self.record) {
                tracing::warn!(pod = %self.record.pod_uid, error = chain(&error), "ghost record is stale");
            }
        }
        if let Some(process) = report.process
            && self.selinux.as_ref().is_none_or(|(of, _)| *of != process)
        {
            self.selinux = selinux::context(process).map(|label| (process, label));
        }
        let vmi = self.observe_vmi().await;
        let pods = &self.node.pods;
        let rival = match &vmi {
            SeenVmi::Present(vmi) => {
                claim::rivals(vmi, &self.node.name, &self.record.pod_uid).any(|uid| has_socket(pods, &uid))
            }
            SeenVmi::Absent | SeenVmi::Unconfirmed => false,
        };
        let process_gone = self.record.launcher.is_some_and(|process| !process.alive());
        // Read after checking the process: what it wrote before it exited is there by now.
        let ended = process_gone || (!report.is_connected() && !has_socket(pods, &self.record.pod_uid));
        let left_behind = ended.then(|| last_state(pods, &self.record.pod_uid, &self.record.vmi_uid)).flatten();
        Seen {
            now: Timestamp::now(),
            vmi,
            addresses: addresses(self.network.as_ref()),
            pod_dir: has_directory(pods, &self.record.pod_uid),
            process_gone,
            left_behind,
            rival,
            listening: self.node.proxies.endpoint(&self.record.pod_uid, Side::Target),
            dialling: self.node.proxies.endpoint(&self.record.pod_uid, Side::Source),
            report,
        }
    }

    /// The VMI by UID: from the cache, or by a live read on a cache miss.
    async fn observe_vmi(&mut self) -> SeenVmi {
        let is_ours = |vmi: &VirtualMachineInstance| self.record.is_of(vmi);
        let key = self.record.vmi_key();
        let cached = [&self.node.vmis, &self.node.incoming].map(|vmis| vmis.get(&key).filter(|vmi| is_ours(vmi)));
        let [owned, incoming] = cached;
        let cached = match (owned, incoming) {
            (Some(owned), Some(incoming)) => Some(newer(owned, Some(&incoming))),
            (owned, incoming) => owned.or(incoming),
        };
        if let Some(cached) = cached {
            return SeenVmi::Present(newer(cached, self.written.as_ref()));
        }
        if self.absent {
            return SeenVmi::Absent;
        }
        match timeout(API_TIMEOUT, self.api().get_opt(&self.record.name)).await {
            Ok(Ok(Some(vmi))) if is_ours(&vmi) => SeenVmi::Present(Arc::new(vmi)),
            Ok(Ok(_)) => {
                self.absent = true; // a UID is never reused
                SeenVmi::Absent
            }
            Ok(Err(_)) | Err(_) => SeenVmi::Unconfirmed,
        }
    }

    fn world<'a>(&'a self, seen: &'a Seen) -> World<'a> {
        World {
            now: seen.now,
            node_name: &self.node.name,
            vmi: seen.vmi.view(),
            launcher: LauncherView {
                pod_dir: seen.pod_dir,
                first_seen: self.first_seen,
                connected_once: self.record.launcher.is_some(),
                process_gone: seen.process_gone,
                failing_since: seen.report.failing_since,
                state: seen.report.state.as_ref().map(|(state, at)| (state, *at)),
                left_behind: seen.left_behind.as_ref(),
            },
            pod_name: self.record.pod_name.as_deref(),
            proxy: Proxy { listening: seen.listening.as_ref(), dialling: seen.dialling.as_ref() },
            network: match &self.network {
                None => Network::Pending,
                Some(NetworkRecord::Started) => Network::Interrupted,
                Some(NetworkRecord::Finished { .. }) => Network::Finished(&seen.addresses),
            },
            kvm: match &self.node.kvm {
                Ok(()) => Ok(()),
                Err(why) => Err(why),
            },
            selinux: self.selinux.as_ref().map(|(_, label)| label.as_str()),
            has_record: self.recorded,
            rival: seen.rival,
            recorded_grace_seconds: self.record.grace_period_seconds,
            sent: self.sent,
            failure: self.failure.as_ref(),
            io_retry: self.io_retry,
        }
    }

    fn api(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.node.client.clone(), &self.record.namespace)
    }

    /// Executes one action and records the outcome. Returns whether it succeeded.
    async fn carry_out(&mut self, action: Action, seen: &Seen, launcher: &Launcher) -> bool {
        let kind = action.kind();
        let outcome = self.act(action, seen, launcher).await;
        let Some(kind) = kind else { return outcome.is_ok() };
        match outcome {
            Ok(()) => {
                self.failure.take_if(|failure| failure.action == kind);
                true
            }
            Err(Failed { message, critical }) => {
                let before = self.failure.as_ref().filter(|failure| failure.action == kind);
                let count = before.map_or(0, |failure| failure.count).saturating_add(1);
                tracing::warn!(vmi = %self.record.vmi_key(), action = ?kind, count, critical, error = message, "action failed");
                self.failure = Some(Failure { action: kind, message, critical, count, at: Timestamp::now() });
                false
            }
        }
    }

    async fn act(&mut self, action: Action, seen: &Seen, launcher: &Launcher) -> Result<(), Failed> {
        match action {
            Action::ConfigureNetwork => self.configure_network(seen, launcher).await,
            Action::SyncDomain { because } => {
                tracing::info!(vmi = %self.record.vmi_key(), because, "starting or resuming the guest");
                let vmi = present(seen)?;
                let synced = launcher.client.sync(vmi, &self.sync_options()).await;
                launcher.refresh().await;
                synced.map_err(refused)?;
                self.sent.sync = Some(Timestamp::now());
                Ok(())
            }
            Action::Shutdown => {
                end(launcher.command(Command::Shutdown).await)?;
                self.sent.shutdown = Some(Timestamp::now());
                Ok(())
            }
            Action::Kill { because } => {
                tracing::info!(vmi = %self.record.vmi_key(), because, "stopping the guest");
                end(launcher.command(Command::Kill).await)?;
                self.sent.kill = Some(Timestamp::now());
                Ok(())
            }
            Action::Delete { because } => {
                tracing::info!(vmi = %self.record.vmi_key(), because, "stopping the launcher");
                end(launcher.command(Command::Delete).await)?;
                self.sent.delete = Some(Timestamp::now());
                Ok(())
            }
            Action::UpdateVmi(vmi) => self.replace(present(seen)?, *vmi).await,
            Action::PrepareTarget { .. }
            | Action::OpenTargetProxy
            | Action::OpenSourceProxy(_)
            | Action::CloseProxies
            | Action::Migrate { .. }
            | Action::AbortMigration { .. }
            | Action::SettleMigration { .. }
            | Action::FinalizeTarget { .. } => {
                let vmi = match &seen.vmi {
                    SeenVmi::Present(vmi) => Some(&**vmi),
                    SeenVmi::Absent | SeenVmi::Unconfirmed => None,
                };
                let settles = matches!(action, Action::SettleMigration { .. });
                migration::act(&self.node, &self.record, vmi, launcher, &self.sync_options(), action).await?;
                self.sent.settle = if settles { Some(Timestamp::now()) } else { self.sent.settle };
                Ok(())
            }
            Action::CleanUp => {
                migration::close(&self.node, &self.record.pod_uid);
                self.node.records.remove(&self.record.pod_uid).map_err(|err| transient(&err))?;
                self.recorded = false;
                self.network = None;
                Ok(())
            }
            Action::UpdateStatus(status) => self.update_status(present(seen)?, *status).await,
            Action::EmitEvent { type_, reason, message } => {
                let type_ = match type_ {
                    vmstate::EventType::Normal => EventType::Normal,
                    vmstate::EventType::Warning => EventType::Warning,
                };
                self.node.recorder.publish(present(seen)?.object_ref(&()), type_, reason, message);
                Ok(())
            }
            Action::RememberIoRetry(retry) => {
                self.io_retry = Some(retry);
                Ok(())
            }
            Action::RequeueAfter { .. } => Ok(()), // handled by the caller
        }
    }

    /// What to tell the launcher beside the VMI.
    fn sync_options(&self) -> SyncOptions {
        let leases = self.network.as_ref().map(NetworkRecord::leases).unwrap_or_default();
        self.node.config.sync_options(self.node.kvm.is_ok(), leases)
    }

    async fn configure_network(&mut self, seen: &Seen, launcher: &Launcher) -> Result<(), Failed> {
        let vmi = Arc::clone(present(seen)?);
        let Some(process) = launcher.report().process else { return Err(gone()) };
        let (records, pod_uid) = (self.node.records.clone(), self.record.pod_uid.clone());
        if self.node.owns_devices {
            let given = self.node.tasks.spawn_blocking(move || devices::give(process)).await;
            given.map_err(|err| transient(&err))?.map_err(|err| transient(&err))?;
        }
        let configure = move || network::configure(&records, &pod_uid, &vmi, process);
        let outcome = self.node.tasks.spawn_blocking(configure).await.map_err(|err| transient(&err))?;
        match outcome {
            Ok(record) => {
                self.network = Some(record);
                Ok(())
            }
            Err(error) => {
                if matches!(error, NetworkError::Apply(_) | NetworkError::Record(_)) {
                    self.network = Some(NetworkRecord::Started);
                }
                Err(Failed { message: chain(&error), critical: error.is_critical() })
            }
        }
    }

    /// Replaces the whole object, as the kind has no status subresource. The resource version guards against a stale
    /// copy.
    async fn update_status(
        &mut self,
        vmi: &VirtualMachineInstance,
        status: VirtualMachineInstanceStatus,
    ) -> Result<(), Failed> {
        let new = VirtualMachineInstance { status: Some(status), ..vmi.clone() };
        self.replace(vmi, new).await
    }

    async fn replace(&mut self, old: &VirtualMachineInstance, vmi: VirtualMachineInstance) -> Result<(), Failed> {
        let before = old.phase().cloned();
        let (api, params) = (self.api(), PostParams::default());
        match timeout(API_TIMEOUT, api.replace(&self.record.name, &params, &vmi)).await {
            Ok(Ok(stored)) => {
                if stored.phase() != before.as_ref() {
                    let phase = stored.phase().map(ToString::to_string).unwrap_or_default();
                    tracing::info!(vmi = %self.record.vmi_key(), uid = %self.record.vmi_uid, phase, "VMI phase changed");
                }
                self.written = Some(Arc::new(stored));
                Ok(())
            }
            Ok(Err(error)) => Err(transient(&error)),
            Err(error) => Err(transient(&error)),
        }
    }
}

fn present(seen: &Seen) -> Result<&Arc<VirtualMachineInstance>, Failed> {
    match &seen.vmi {
        SeenVmi::Present(vmi) => Ok(vmi),
        SeenVmi::Absent | SeenVmi::Unconfirmed => {
            Err(Failed { message: "the VMI is gone".to_string(), critical: false })
        }
    }
}

pub(crate) fn transient(error: &dyn std::error::Error) -> Failed {
    Failed { message: chain(error), critical: false }
}

fn gone() -> Failed {
    Failed { message: "the launcher is gone".to_string(), critical: false }
}

pub(crate) fn refused(error: RpcError) -> Failed {
    let critical = matches!(error.refusal(), Some(RefusalCode::Impossible | RefusalCode::BadRequest));
    Failed { message: chain(&error), critical }
}

/// For commands that stop something: a launcher that is gone, or has no domain, has nothing left to stop.
fn end(outcome: Result<(), RpcError>) -> Result<(), Failed> {
    match outcome {
        Err(error) if error.is_disconnected() || error.refusal() == Some(RefusalCode::NoDomain) => Ok(()),
        other => other.map_err(refused),
    }
}

/// The newer of two copies. All known API servers use numeric resource versions; if one is not, the cached copy wins.
fn newer(
    cached: Arc<VirtualMachineInstance>,
    written: Option<&Arc<VirtualMachineInstance>>,
) -> Arc<VirtualMachineInstance> {
    let version = |vmi: &VirtualMachineInstance| vmi.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    match written {
        Some(written) if version(written) > version(&cached) && version(&cached).is_some() => written.clone(),
        _ => cached,
    }
}

fn addresses(network: Option<&NetworkRecord>) -> Vec<PodAddresses> {
    let Some(NetworkRecord::Finished { interfaces }) = network else { return Vec::new() };
    let addresses = interfaces
        .iter()
        .map(|interface| PodAddresses { network: interface.network.clone(), addresses: interface.pod_ips.clone() });
    addresses.collect()
}

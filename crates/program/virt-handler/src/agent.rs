//! The actor of one launcher: observe, decide, act, wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};
use hostfs::process::ProcessId;
use informer::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::{Api, Resource};
use launcher_contract::types::{Command, RefusalCode, SyncOptions};
use launcher_rpc::Error as RpcError;
use tokio::sync::Notify;
use tokio::time::timeout;
use vmstate::{
    Action, Endpoint, Failure, IoRetry, LauncherView, Mount, Mounted, Network, PodAddresses, Proxy, Sent, Told,
    Trouble, Vmi, Volumes, World, claim, decide,
};

use crate::agents::Node;
use crate::config::EXPAND_DISKS;
use crate::devices;
use crate::disks;
use crate::error::chain;
use crate::launcher::{Launcher, Report, has_directory, has_socket, last_state};
use crate::migration;
use crate::network::{self, NetworkError};
use crate::proxy::Side;
use crate::records::{GhostRecord, NetworkRecord};
use crate::selinux;
use crate::volumes::{self, Claim, Space, VolumeError, VolumeRecord, VolumeRecords};

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
    volumes: VolumeRecords,
    /// The same for decisions.
    mounted: BTreeMap<String, Mounted>,
    /// Volumes whose last mount or unmount failed.
    troubles: BTreeMap<String, Trouble>,
    told: Option<Told>,
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
            volumes: VolumeRecords::new(),
            mounted: BTreeMap::new(),
            troubles: BTreeMap::new(),
            told: None,
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
            let pod_uid = &self.record.pod_uid;
            let outcome = self.node.records.network(pod_uid).and_then(|network| {
                self.network = network;
                self.volumes = self.node.records.volumes(pod_uid)?;
                self.mounted = self.volumes.iter().map(|(name, known)| (name.clone(), known.view())).collect();
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
            expand_disks: self.node.config.gate(EXPAND_DISKS),
            volumes: Volumes { mounted: &self.mounted, troubles: &self.troubles, told: self.told.as_ref() },
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

    async fn sync(&mut self, seen: &Seen, launcher: &Launcher) -> Result<(), Failed> {
        let vmi = present(seen)?;
        let synced = launcher.client.sync(vmi, &self.sync_options(Some(vmi))).await;
        launcher.refresh().await;
        synced.map_err(refused)?;
        self.sent.sync = Some(Timestamp::now());
        Ok(())
    }

    async fn act(&mut self, action: Action, seen: &Seen, launcher: &Launcher) -> Result<(), Failed> {
        match action {
            Action::ConfigureNetwork => self.configure_network(seen, launcher).await,
            Action::SyncDomain { because } => {
                tracing::info!(vmi = %self.record.vmi_key(), because, "starting or resuming the guest");
                self.sync(seen, launcher).await
            }
            Action::GrowDisks { bytes } => {
                tracing::info!(vmi = %self.record.vmi_key(), bytes, "growing disks of the guest");
                // Noted even if it fails: the same attempt again is for later.
                self.sent.growth = Some((Timestamp::now(), bytes));
                self.sync(seen, launcher).await
            }
            Action::MountVolumes(mounts) => {
                for mount in mounts {
                    let outcome = self.mount_volume(&mount, launcher).await;
                    self.note_volume(mount.volume, "mount", outcome);
                }
                Ok(())
            }
            Action::UnmountVolumes(volumes) => {
                for volume in volumes {
                    let outcome = self.unmount_volume(&volume, launcher).await;
                    self.note_volume(volume, "unmount", outcome);
                }
                Ok(())
            }
            Action::SyncVolumes { volumes } => {
                tracing::info!(vmi = %self.record.vmi_key(), ?volumes, "plugging and unplugging disks");
                let vmi = present(seen)?;
                let synced = launcher.client.sync(vmi, &self.sync_options(Some(vmi))).await;
                launcher.refresh().await;
                self.note_told(volumes, synced);
                Ok(())
            }
            Action::DumpMemory { volume, file } => {
                tracing::info!(vmi = %self.record.vmi_key(), volume, file, "dumping the guest's memory");
                let dumped = launcher.client.dump_memory(&self.record.vmi_uid, &volume, &file).await;
                launcher.refresh().await;
                // A dump that was refused is no reason to end the guest.
                dumped.map_err(|error| Failed { critical: false, ..refused(error) })
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
                migration::act(&self.node, &self.record, vmi, launcher, &self.sync_options(vmi), action).await?;
                self.sent.settle = if settles { Some(Timestamp::now()) } else { self.sent.settle };
                Ok(())
            }
            Action::CleanUp => {
                migration::close(&self.node, &self.record.pod_uid);
                self.node.records.remove(&self.record.pod_uid).map_err(|err| transient(&err))?;
                self.recorded = false;
                self.network = None;
                // With the launcher's container, all that was mounted in it is gone.
                self.volumes.clear();
                self.mounted.clear();
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
    fn sync_options(&self, vmi: Option<&VirtualMachineInstance>) -> SyncOptions {
        let leases = self.network.as_ref().map(NetworkRecord::leases).unwrap_or_default();
        let plugged_volumes = vmi.map(|vmi| vmstate::plugged(vmi, &self.mounted)).unwrap_or_default();
        SyncOptions { plugged_volumes, ..self.node.config.sync_options(self.node.kvm.is_ok(), leases) }
    }

    /// Brings a volume into the launcher's container. It is recorded before it is there.
    async fn mount_volume(&mut self, mount: &Mount, launcher: &Launcher) -> Result<(), VolumeError> {
        let process = launcher.report().process.ok_or(VolumeError::LauncherGone)?;
        let claim = self.claim(&mount.claim).await?;
        let options = self.sync_options(None);
        let space = Space { reserved: options.reserved_bytes, tolerated_percent: options.tolerated_shortage_percent };
        let (pods, records, wanted) = (self.node.pods.clone(), self.node.records.clone(), mount.clone());
        let opened = blocking(move || volumes::open(&pods, &wanted, &claim, space, records.scratch())).await?;
        let mut record = opened.record.clone();
        self.record_volume(&mount.volume, Some(record.clone()))?;
        let (pods, pod_uid, volume) = (self.node.pods.clone(), self.record.pod_uid.clone(), mount.volume.clone());
        blocking(move || volumes::put(&pods, &pod_uid, process, &volume, opened)).await?;
        record.done = true;
        self.record_volume(&mount.volume, Some(record))
    }

    async fn unmount_volume(&mut self, volume: &str, launcher: &Launcher) -> Result<(), VolumeError> {
        let Some(record) = self.volumes.get(volume).cloned() else { return Ok(()) };
        let process = launcher.report().process.ok_or(VolumeError::LauncherGone)?;
        let (pods, pod_uid, name) = (self.node.pods.clone(), self.record.pod_uid.clone(), volume.to_owned());
        blocking(move || volumes::remove(&pods, &pod_uid, process, &name, &record)).await?;
        self.record_volume(volume, None)
    }

    fn record_volume(&mut self, volume: &str, record: Option<VolumeRecord>) -> Result<(), VolumeError> {
        let mut all = self.volumes.clone();
        match record {
            Some(record) => drop(all.insert(volume.to_owned(), record)),
            None => drop(all.remove(volume)),
        }
        self.node.records.write_volumes(&self.record.pod_uid, &all)?;
        self.mounted = all.iter().map(|(name, known)| (name.clone(), known.view())).collect();
        self.volumes = all;
        Ok(())
    }

    /// Which PersistentVolume a claim is bound to.
    async fn claim(&self, name: &str) -> Result<Claim, VolumeError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.node.client.clone(), &self.record.namespace);
        let unreadable = |source| VolumeError::Claim { claim: name.to_owned(), source: Box::new(source) };
        let found = timeout(API_TIMEOUT, claims.get_opt(name)).await;
        let found = found.unwrap_or_else(|error| Err(kube::Error::Service(error.into()))).map_err(unreadable)?;
        let claim = found.ok_or_else(|| VolumeError::NoClaim(name.to_owned()))?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|volume| !volume.is_empty());
        Ok(Claim {
            name: name.to_owned(),
            uid: claim.metadata.uid.unwrap_or_default(),
            volume: volume.ok_or_else(|| VolumeError::Unbound(name.to_owned()))?,
        })
    }

    fn note_volume(&mut self, volume: String, action: &'static str, outcome: Result<(), VolumeError>) {
        let Err(error) = outcome else {
            self.troubles.remove(&volume);
            return;
        };
        let count = self.troubles.get(&volume).map_or(0, |trouble| trouble.count).saturating_add(1);
        let message = format!("cannot {action} volume {volume}: {}", chain(&error));
        tracing::warn!(vmi = %self.record.vmi_key(), count, error = message, "action failed");
        self.troubles.insert(volume, Trouble { message, count, at: Timestamp::now() });
    }

    fn note_told(&mut self, volumes: BTreeSet<String>, synced: Result<(), RpcError>) {
        let now = Timestamp::now();
        let before = self.told.take().filter(|told| told.volumes == volumes).and_then(|told| told.refusal);
        let (refusal, passes) = match synced {
            Ok(()) => (None, false),
            Err(error) => {
                // Not a word about the volumes, if the launcher was not reached.
                let passes = !matches!(error.refusal(), Some(code) if !is_passing(code));
                let count = before.map_or(0, |before| before.count).saturating_add(1);
                let message = chain(&error);
                tracing::warn!(vmi = %self.record.vmi_key(), count, error = message, "the guest does not have its volumes");
                (Some(Trouble { message, count, at: now }), passes)
            }
        };
        self.told = Some(Told { volumes, at: now, refusal, passes });
    }

    async fn configure_network(&mut self, seen: &Seen, launcher: &Launcher) -> Result<(), Failed> {
        let vmi = Arc::clone(present(seen)?);
        let Some(process) = launcher.report().process else { return Err(gone()) };
        let (records, pod_uid) = (self.node.records.clone(), self.record.pod_uid.clone());
        if self.node.owns_devices {
            let given = self.node.tasks.spawn_blocking(move || devices::give(process)).await;
            given.map_err(|err| transient(&err))?.map_err(|err| transient(&err))?;
        }
        let disks = {
            let vmi = vmi.clone();
            move || disks::give(process, &vmi)
        };
        let given = self.node.tasks.spawn_blocking(disks).await;
        given.map_err(|err| transient(&err))?.map_err(|err| transient(&err))?;
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

/// Whether a refusal to change the guest's disks ends by itself.
fn is_passing(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::NotReady | RefusalCode::WrongState | RefusalCode::NoDomain)
}

/// Runs what blocks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
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

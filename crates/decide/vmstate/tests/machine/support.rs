//! Worlds that are easy to write down.

use std::collections::BTreeMap;

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use serde_json::{Value, json};
use vmstate::{
    Action, DomainReason, DomainState, DomainStatus, Endpoint, Failure, IoRetry, LauncherState, LauncherView, Mounted,
    Network, PodAddresses, Proxy, Sent, Told, Trouble, Vmi, Volumes, World, decide,
};

pub(crate) const NODE: &str = "node01";

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A VMI of this node that was handed over at second 0.
pub(crate) fn vmi(phase: Phase) -> VirtualMachineInstance {
    let vmi = json!({
        "metadata": {
            "namespace": "default", "name": "testvm", "uid": "vmi-uid", "creationTimestamp": at(0).to_string(),
            "labels": {"kubevirt.io/nodeName": NODE}, "annotations": {"kubevirt.io/pci-topology-version": "v3"},
        },
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {
            "phase": phase, "nodeName": NODE, "activePods": {"pod-uid": NODE},
            "phaseTransitionTimestamps": [{"phase": "Scheduled", "phaseTransitionTimestamp": at(0).to_string()}],
        },
    });
    serde_json::from_value(vmi).unwrap()
}

pub(crate) fn deleting(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
    vmi.metadata.deletion_timestamp = serde_json::from_value(json!(at(0).to_string())).unwrap();
    vmi
}

pub(crate) fn with(mut vmi: VirtualMachineInstance, status: Value) -> VirtualMachineInstance {
    let mut whole = serde_json::to_value(&vmi).unwrap();
    whole["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    vmi.status = serde_json::from_value(whole["status"].clone()).unwrap();
    vmi
}

pub(crate) fn domain(status: DomainStatus, reason: DomainReason) -> DomainState {
    DomainState { status, reason, acpi: true, ..DomainState::default() }
}

pub(crate) fn running() -> DomainState {
    domain(DomainStatus::Running, DomainReason::Booted)
}

/// How the launcher presents itself.
#[derive(Debug, Clone)]
pub(crate) enum Launcher {
    NotInitialised,
    Silent,
    Gone,
    Talking,
}

/// A world that owns its parts.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) now: Timestamp,
    pub(crate) vmi: Option<VirtualMachineInstance>,
    pub(crate) confirmed: bool,
    pub(crate) launcher: Launcher,
    pub(crate) state: Option<LauncherState>,
    pub(crate) state_at: Timestamp,
    pub(crate) left_behind: Option<LauncherState>,
    pub(crate) network: Option<Vec<PodAddresses>>,
    pub(crate) interrupted: bool,
    pub(crate) kvm: Result<(), String>,
    pub(crate) selinux: Option<String>,
    pub(crate) has_record: bool,
    pub(crate) rival: bool,
    pub(crate) recorded_grace: Option<i64>,
    pub(crate) sent: Sent,
    pub(crate) failure: Option<Failure>,
    pub(crate) io_retry: Option<IoRetry>,
    pub(crate) expand_disks: bool,
    pub(crate) mounted: BTreeMap<String, Mounted>,
    pub(crate) troubles: BTreeMap<String, Trouble>,
    pub(crate) told: Option<Told>,
    pub(crate) node: &'static str,
    pub(crate) pod_name: Option<String>,
    pub(crate) listening: Option<Endpoint>,
    pub(crate) dialling: Option<Endpoint>,
}

impl Scene {
    /// A connected launcher with this domain, network done, one minute after the hand-over.
    pub(crate) fn new(vmi: impl Into<Option<VirtualMachineInstance>>, domain: impl Into<Option<DomainState>>) -> Self {
        let state = LauncherState { domain: domain.into(), ..LauncherState::default() };
        let pod = PodAddresses { network: "default".to_string(), addresses: vec!["10.244.1.7".parse().unwrap()] };
        Scene {
            now: at(60),
            vmi: vmi.into(),
            confirmed: true,
            launcher: Launcher::Talking,
            state: Some(state),
            state_at: at(60),
            left_behind: None,
            network: Some(vec![pod]),
            interrupted: false,
            kvm: Ok(()),
            selinux: None,
            has_record: true,
            rival: false,
            recorded_grace: None,
            sent: Sent::default(),
            failure: None,
            io_retry: None,
            expand_disks: true,
            mounted: BTreeMap::new(),
            troubles: BTreeMap::new(),
            told: None,
            node: NODE,
            pod_name: Some("virt-launcher-testvm".to_string()),
            listening: None,
            dialling: None,
        }
    }

    pub(crate) fn but(mut self, change: impl FnOnce(&mut Scene)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = launcher;
        self
    }

    pub(crate) fn world(&self) -> World<'_> {
        let silent_since = match self.launcher {
            Launcher::Talking => None,
            Launcher::NotInitialised | Launcher::Silent => Some(self.now),
            Launcher::Gone => Some(at(-1000)),
        };
        World {
            now: self.now,
            node_name: self.node,
            vmi: match &self.vmi {
                Some(vmi) => Vmi::Present(vmi),
                None if self.confirmed => Vmi::Absent,
                None => Vmi::Unconfirmed,
            },
            launcher: LauncherView {
                pod_dir: true,
                first_seen: self.now,
                connected_once: !matches!(self.launcher, Launcher::NotInitialised),
                process_gone: matches!(self.launcher, Launcher::Gone),
                failing_since: silent_since,
                state: self.state.as_ref().map(|state| (state, self.state_at)),
                left_behind: self.left_behind.as_ref(),
            },
            pod_name: self.pod_name.as_deref(),
            proxy: Proxy { listening: self.listening.as_ref(), dialling: self.dialling.as_ref() },
            network: match &self.network {
                Some(networks) => Network::Finished(networks),
                None if self.interrupted => Network::Interrupted,
                None => Network::Pending,
            },
            kvm: match &self.kvm {
                Ok(()) => Ok(()),
                Err(why) => Err(why),
            },
            selinux: self.selinux.as_deref(),
            has_record: self.has_record,
            rival: self.rival,
            recorded_grace_seconds: self.recorded_grace,
            sent: self.sent,
            failure: self.failure.as_ref(),
            io_retry: self.io_retry,
            expand_disks: self.expand_disks,
            volumes: Volumes { mounted: &self.mounted, troubles: &self.troubles, told: self.told.as_ref() },
        }
    }

    pub(crate) fn decide(&self) -> Vec<Action> {
        decide(&self.world())
    }

    /// The decision in short words, one per action, without what is only said.
    pub(crate) fn does(&self) -> Vec<String> {
        self.decide().iter().filter_map(word).collect()
    }

    /// Reasons of the events.
    pub(crate) fn says(&self) -> Vec<String> {
        let event = |action: &Action| match action {
            Action::EmitEvent { type_, reason, .. } => Some(format!("{type_:?} {reason}")),
            _ => None,
        };
        self.decide().iter().filter_map(event).collect()
    }

    /// The VMI with the status that is to be stored.
    pub(crate) fn stored(&self) -> Option<VirtualMachineInstance> {
        let status = self.decide().into_iter().find_map(|action| match action {
            Action::UpdateStatus(status) => Some(*status),
            _ => None,
        })?;
        let mut vmi = self.vmi.clone()?;
        vmi.status = Some(status);
        Some(vmi)
    }
}

fn word(action: &Action) -> Option<String> {
    Some(match action {
        Action::ConfigureNetwork => "network".to_string(),
        Action::SyncDomain { .. } => "sync".to_string(),
        Action::GrowDisks { .. } => "grow".to_string(),
        Action::MountVolumes(mounts) => {
            let words =
                mounts.iter().map(|m| format!("{}={} from {} as {:?}", m.volume, m.claim, m.attachment, m.shape));
            format!("mount {}", words.collect::<Vec<_>>().join(", "))
        }
        Action::UnmountVolumes(volumes) => format!("unmount {}", volumes.join(", ")),
        Action::SyncVolumes { volumes } => {
            format!("plug {}", volumes.iter().cloned().collect::<Vec<_>>().join(", "))
        }
        Action::DumpMemory { volume, file } => format!("dump to {volume}/{file}"),
        Action::Shutdown => "shutdown".to_string(),
        Action::Kill { .. } => "kill".to_string(),
        Action::Delete { .. } => "delete".to_string(),
        Action::CleanUp => "clean up".to_string(),
        Action::UpdateStatus(status) => {
            let phase = status.phase.as_ref().map(Phase::as_str).unwrap_or_default();
            format!("status {phase}")
        }
        Action::UpdateVmi(vmi) => {
            let labels = vmi.metadata.labels.as_ref();
            let node = labels.and_then(|labels| labels.get("kubevirt.io/nodeName")).cloned().unwrap_or_default();
            format!("store, owner {node}")
        }
        Action::PrepareTarget { .. } => "prepare".to_string(),
        Action::OpenTargetProxy => "listen".to_string(),
        Action::OpenSourceProxy(endpoint) => format!("dial {}", endpoint.address),
        Action::CloseProxies => "close".to_string(),
        Action::Migrate { uid } => format!("migrate {uid}"),
        Action::AbortMigration { .. } => "abort".to_string(),
        Action::SettleMigration { target_runs, .. } => format!("settle, runs at the target: {target_runs}"),
        Action::FinalizeTarget { .. } => "finalise".to_string(),
        Action::RequeueAfter { delay, .. } => format!("again in {}", delay.as_secs_f32()),
        Action::EmitEvent { .. } | Action::RememberIoRetry(_) => return None,
    })
}

/// A status that has nothing left to report about a plain running domain.
pub(crate) fn settled(scene: Scene) -> Scene {
    match scene.stored() {
        Some(vmi) => scene.but(|s| s.vmi = Some(vmi)),
        None => scene,
    }
}

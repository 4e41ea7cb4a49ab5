//! The two virt-handlers, with their real decisions, and what they see and write.

use std::time::Duration;

use api::v1::{MigrationAbortStatus, MigrationMode as ApiMode, VirtualMachineInstance};
use jiff::Timestamp;
use launcher_contract::migration::{AbortState, MigrationMode, MigrationPhase};
use launcher_contract::types::DomainReason as Reason;
use serde_json::json;
use transfer::{Conclusion, Event, Outcome, Seen};
use vmstate::{
    Action, DomainState, Endpoint, LauncherState, LauncherView, Migration, Network, PodAddresses, Proxy, Sent, Vmi,
    World,
};

use super::daemons::There;
use super::{Happening, Move, SOURCE, TARGET};

pub(super) const NODES: [&str; 2] = ["node0", "node1"];
const PODS: [&str; 2] = ["virt-launcher-a", "virt-launcher-b"];
const UID: &str = "m";
const BEGIN: i64 = 1_800_000_000;
/// A guest that has run at the target for longer does not go back.
const LONG: Duration = Duration::from_secs(9);

/// A launcher, as its virt-handler sees it, and that virt-handler.
pub(super) struct Side {
    pub(super) launcher: bool,
    pub(super) agent: bool,
    state: LauncherState,
    state_at: Timestamp,
    sent: Sent,
    looks_at: Option<Duration>,
    pub(super) listening: Option<Endpoint>,
    pub(super) dialling: Option<Endpoint>,
    network: Vec<PodAddresses>,
}

pub(super) fn side() -> Side {
    Side {
        launcher: true,
        agent: true,
        state: LauncherState::default(),
        state_at: at(Duration::ZERO),
        sent: Sent::default(),
        looks_at: None,
        listening: None,
        dialling: None,
        network: Vec::new(),
    }
}

impl Side {
    pub(super) fn migration(&mut self) -> &mut Migration {
        self.state.migration.get_or_insert_with(|| Migration { uid: UID.to_owned(), ..Migration::default() })
    }

    pub(super) fn set_mode(&mut self, mode: MigrationMode) {
        self.migration().mode = Some(match mode {
            MigrationMode::PostCopy => ApiMode::PostCopy,
            MigrationMode::Paused => ApiMode::Paused,
            _ => ApiMode::PreCopy,
        });
    }

    fn abort(&mut self) -> AbortState {
        match self.migration().abort {
            Some(MigrationAbortStatus::Aborting) => AbortState::Aborting,
            Some(MigrationAbortStatus::Succeeded) => AbortState::Succeeded,
            Some(MigrationAbortStatus::Failed) => AbortState::Failed,
            Some(_) | None => AbortState::None,
        }
    }

    /// As virt-handler reads it.
    fn set_abort(&mut self, abort: AbortState) {
        self.migration().abort = match abort {
            AbortState::None | AbortState::Unknown => None,
            AbortState::Aborting => Some(MigrationAbortStatus::Aborting),
            AbortState::Succeeded => Some(MigrationAbortStatus::Succeeded),
            AbortState::Failed => Some(MigrationAbortStatus::Failed),
        };
    }

    /// What the source's launcher reports at the end.
    pub(super) fn concluded(&mut self, outcome: &Outcome, now: Timestamp) {
        let Conclusion { phase, failure, abort } = transfer::conclude(outcome, self.abort());
        self.set_abort(abort);
        let migration = self.migration();
        (migration.phase, migration.failure, migration.ended_at) = (phase, failure, Some(now));
    }

    fn world<'a>(&'a self, side: usize, vmi: &'a VirtualMachineInstance, now: Timestamp) -> World<'a> {
        World {
            now,
            node_name: NODES[side],
            vmi: Vmi::Present(vmi),
            launcher: LauncherView {
                pod_dir: true,
                first_seen: at(Duration::ZERO),
                connected_once: true,
                process_gone: !self.launcher,
                failing_since: (!self.launcher).then(|| at(Duration::ZERO)),
                state: Some((&self.state, self.state_at)),
                left_behind: None,
            },
            pod_name: Some(PODS[side]),
            proxy: Proxy { listening: self.listening.as_ref(), dialling: self.dialling.as_ref() },
            network: Network::Finished(&self.network),
            kvm: Ok(()),
            selinux: Some(vmstate::selinux::OFF),
            has_record: true,
            rival: false,
            recorded_grace_seconds: None,
            sent: self.sent,
            failure: None,
            io_retry: None,
            expand_disks: false,
            volumes: vmstate::Volumes::default(),
        }
    }
}

fn at(time: Duration) -> Timestamp {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(BEGIN * 1_000 + millis).expect("a history is short")
}

/// The guest runs at the source, and the controller has handed off its migration.
pub(super) fn handed_off() -> VirtualMachineInstance {
    let vmi = json!({
        "metadata": {
            "namespace": "default", "name": "vm0", "uid": "vmi-uid",
            "creationTimestamp": at(Duration::ZERO).to_string(),
            "labels": {"kubevirt.io/nodeName": NODES[SOURCE], "kubevirt.io/migrationTargetNodeName": NODES[TARGET]},
        },
        "spec": {"domain": {"devices": {}}},
        "status": {
            "phase": "Running", "nodeName": NODES[SOURCE], "activePods": {"a": NODES[SOURCE], "b": NODES[TARGET]},
            "migrationState": {
                "migrationUid": UID, "sourceNode": NODES[SOURCE], "sourcePod": PODS[SOURCE],
                "targetNode": NODES[TARGET], "targetPod": PODS[TARGET],
            },
        },
    });
    serde_json::from_value(vmi).expect("an instance written by hand")
}

impl Move {
    pub(super) fn time(&self) -> Timestamp {
        at(self.now)
    }

    /// Whether the target's node has taken over the guest.
    pub(super) fn is_taken(&self) -> bool {
        self.vmi.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(NODES[TARGET])
    }

    /// Whether the guest has run at the target for too long to go back.
    pub(super) fn has_long_run(&self) -> bool {
        let migration = self.sides[TARGET].state.migration.as_ref();
        let arrived = migration.and_then(|migration| migration.ended_at);
        arrived
            .is_some_and(|arrived| Duration::try_from(self.time().duration_since(arrived)).unwrap_or_default() > LONG)
    }

    /// Publishes the state of both launchers to their watchers.
    pub(super) fn show(&mut self) {
        let now = self.time();
        for (side, seen) in [(SOURCE, Some(self.here.domain())), (TARGET, self.there.domain())] {
            let domain =
                seen.map(|(status, reason)| DomainState { status, reason, acpi: true, ..DomainState::default() });
            let it = &mut self.sides[side];
            if it.state.domain != domain {
                (it.state.domain, it.state_at) = (domain, now);
                self.look_soon(side);
                if side == TARGET {
                    self.soon(0, 20, Happening::TargetLooks);
                }
            }
        }
    }

    pub(super) fn target_looks(&mut self) {
        if !self.sides[TARGET].launcher {
            return;
        }
        let domain = self.there.domain();
        let now = self.time();
        for note in self.receiver.on(Seen { domain, receiving: self.receiving }) {
            let side = &mut self.sides[TARGET];
            if let Some(mode) = note.mode() {
                side.set_mode(mode);
            }
            if let Some(phase) = note.phase() {
                side.migration().phase = phase;
            }
            if note.phase().is_some_and(MigrationPhase::is_final) {
                side.migration().ended_at = Some(now);
            }
            side.state_at = now;
            self.look_soon(TARGET);
        }
        if self.receiver.asks_for_job(domain) {
            self.soon(20, 40, Happening::TargetLooks);
        }
    }

    pub(super) fn agent_returns(&mut self, side: usize) {
        let it = &mut self.sides[side];
        (it.agent, it.sent, it.listening, it.dialling) = (true, Sent::default(), None, None);
        self.look_soon(side);
    }

    /// Notifies virt-handler of a change.
    pub(super) fn look_soon(&mut self, side: usize) {
        let wait = Duration::from_millis(self.rng.within(1, 400));
        self.look_after(side, wait);
    }

    /// Schedules the next check of virt-handler after this time at the latest.
    fn look_after(&mut self, side: usize, wait: Duration) {
        let (at, known) = (self.now + wait, &mut self.sides[side].looks_at);
        if known.is_none_or(|known| at < known) {
            *known = Some(at);
            self.after(wait, Happening::AgentLooks(side));
        }
    }

    pub(super) fn agent_looks(&mut self, side: usize) {
        let it = &mut self.sides[side];
        if it.looks_at != Some(self.now) {
            return;
        }
        it.looks_at = None;
        if !it.agent {
            return;
        }
        let actions = vmstate::decide(&self.sides[side].world(side, &self.vmi, self.time()));
        for action in actions {
            self.act(side, action);
        }
    }

    fn stored(&mut self) {
        self.look_soon(SOURCE);
        self.look_soon(TARGET);
    }

    fn act(&mut self, side: usize, action: Action) {
        let now = self.time();
        match action {
            Action::RequeueAfter { delay, .. } => return self.look_after(side, delay),
            Action::EmitEvent { .. } | Action::RememberIoRetry(_) => return,
            _ => {}
        }
        self.line(&format!("the agent of {} does {:?}", NODES[side], action.kind()));
        match action {
            Action::UpdateStatus(status) => {
                self.vmi.status = Some(*status);
                self.stored();
            }
            Action::UpdateVmi(vmi) => {
                self.vmi = *vmi;
                self.stored();
            }
            Action::PrepareTarget { .. } => self.sides[side].migration().phase = MigrationPhase::Ready,
            Action::OpenTargetProxy => {
                let ports = [("1".to_owned(), 0)].into();
                self.sides[side].listening = Some(Endpoint { address: "10.0.0.2".to_owned(), ports });
            }
            Action::OpenSourceProxy(endpoint) => self.sides[side].dialling = Some(endpoint),
            Action::CloseProxies => (self.sides[side].listening, self.sides[side].dialling) = (None, None),
            Action::Migrate { .. } => {
                self.sides[side].migration().phase = MigrationPhase::Transferring;
                self.depart();
            }
            Action::AbortMigration { .. } => {
                let abort = transfer::abort_asked(self.sides[side].abort());
                self.sides[side].set_abort(abort);
                self.hear(Event::AbortAsked);
            }
            Action::SettleMigration { target_runs, .. } => {
                self.sides[side].sent.settle = Some(now);
                self.told |= target_runs;
                self.hear(Event::Settled(target_runs));
            }
            Action::Kill { .. } => {
                self.sides[side].sent.kill = Some(now);
                self.kill(side);
            }
            Action::Delete { .. } => {
                self.sides[side].sent.delete = Some(now);
                self.delete(side);
            }
            Action::CleanUp | Action::FinalizeTarget { .. } | Action::Shutdown => {}
            other => self.violate("transfer_ends", format!("a migration does not call for {:?}", other.kind())),
        }
        self.look_soon(side);
    }

    fn kill(&mut self, side: usize) {
        if side == SOURCE {
            self.ends_here("virt-handler");
            self.source_qemu_ends(Reason::Destroyed);
        } else if self.there.runs() {
            self.target_ends(There::Down(Reason::Destroyed));
        } else {
            self.target_ends(There::Nothing);
        }
    }

    fn delete(&mut self, side: usize) {
        let runs = if side == SOURCE { self.here == super::Here::Running } else { self.there.runs() };
        if runs {
            self.violate("guest_kept", "a launcher with a guest that runs was told to go".to_owned());
        }
        self.sides[side].launcher = false;
    }
}

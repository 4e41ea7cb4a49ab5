//! Both machines of a migration at once, with launchers, link and agents that fail: whatever happens in whatever order,
//! the guest never runs twice, and in the end it runs where the VMI says or has ended.

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::json;
use vmstate::{
    Action, DomainReason, DomainState, DomainStatus, Endpoint, LauncherState, Migration, MigrationPhase, Sent,
};

use crate::support::{Launcher, Scene, domain, running, vmi, with};

const NODES: [&str; 2] = ["node01", "node02"];
const PODS: [&str; 2] = ["virt-launcher-a", "virt-launcher-b"];
const SOURCE: usize = 0;
const TARGET: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// All is sent; the source's guest stands still.
    AllSent,
    /// The target is told to run the guest, and its answer arrives.
    Finished,
    /// It is told, and the answer is lost.
    AnswerLost,
    /// The word itself is lost.
    WordLost,
    /// It is told, runs the guest, and QEMU dies before the answer.
    DiesUnanswered,
    /// QEMU dies at the target.
    QemuDies,
    /// A source in doubt asks through the link.
    Ask,
    TransferBreaks,
    LauncherDies(usize),
    AgentStops(usize),
    AgentStarts(usize),
    LinkBreaks,
    LinkHeals,
    Abort,
    Time(i64),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::AllSent),
        2 => Just(Event::Finished),
        2 => Just(Event::AnswerLost),
        2 => Just(Event::WordLost),
        2 => Just(Event::DiesUnanswered),
        1 => Just(Event::QemuDies),
        3 => Just(Event::Ask),
        1 => Just(Event::TransferBreaks),
        1 => (0..2usize).prop_map(Event::LauncherDies),
        2 => (0..2usize).prop_map(Event::AgentStops),
        3 => (0..2usize).prop_map(Event::AgentStarts),
        1 => Just(Event::LinkBreaks),
        2 => Just(Event::LinkHeals),
        1 => Just(Event::Abort),
        2 => (1..40i64).prop_map(Event::Time),
    ]
}

struct Pair {
    vmi: VirtualMachineInstance,
    sides: [Scene; 2],
    agents: [bool; 2],
    link: bool,
    /// The guest has died where nobody else had it.
    died: bool,
}

impl Pair {
    /// The guest runs at the source, and the controller has handed its migration off.
    fn new() -> Pair {
        let mut vmi = with(
            vmi(Phase::Running),
            json!({
                "activePods": {"a": NODES[SOURCE], "b": NODES[TARGET]},
                "migrationState": {
                    "migrationUid": "m", "sourceNode": NODES[SOURCE], "sourcePod": PODS[SOURCE],
                    "targetNode": NODES[TARGET], "targetPod": PODS[TARGET],
                },
            }),
        );
        let labels = vmi.metadata.labels.as_mut().unwrap();
        labels.insert("kubevirt.io/migrationTargetNodeName".to_string(), NODES[TARGET].to_string());
        let side = |side: usize, domain: Option<DomainState>| {
            Scene::new(None, domain).but(|scene| {
                scene.node = NODES[side];
                scene.pod_name = Some(PODS[side].to_string());
            })
        };
        let sides = [side(SOURCE, Some(running())), side(TARGET, None)];
        Pair { vmi, sides, agents: [true, true], link: true, died: false }
    }

    fn state(&mut self, side: usize) -> &mut LauncherState {
        let now = self.sides[side].now;
        self.sides[side].state_at = now;
        self.sides[side].state.as_mut().unwrap()
    }

    fn alive(&self, side: usize) -> bool {
        matches!(self.sides[side].launcher, Launcher::Talking)
    }

    fn phase(&self, side: usize) -> Option<MigrationPhase> {
        let state = self.sides[side].state.as_ref()?;
        state.migration.as_ref().map(|migration| migration.phase).filter(|_| self.alive(side))
    }

    fn set_phase(&mut self, side: usize, phase: MigrationPhase) {
        let migration = self.state(side).migration.get_or_insert_with(Migration::default);
        (migration.uid, migration.phase) = ("m".to_string(), phase);
    }

    /// Whether vCPUs turn at this side.
    fn runs(&self, side: usize) -> bool {
        let domain = self.sides[side].state.as_ref().and_then(|state| state.domain.as_ref());
        self.alive(side) && domain.is_some_and(|domain| domain.status == DomainStatus::Running)
    }

    fn has_crashed(&self) -> bool {
        let domain = self.sides[TARGET].state.as_ref().and_then(|state| state.domain.as_ref());
        domain.is_some_and(|domain| domain.reason == DomainReason::Crashed)
    }

    fn stay(&mut self) {
        self.set_phase(SOURCE, MigrationPhase::Failed);
        self.state(SOURCE).domain = Some(running());
    }

    fn leave(&mut self) {
        self.set_phase(SOURCE, MigrationPhase::Completed);
        self.state(SOURCE).domain = Some(domain(DomainStatus::Shutoff, DomainReason::Migrated));
    }

    /// A target that has not been told to run the guest ends it with the source's connection.
    fn lose_incoming(&mut self) {
        if self.alive(TARGET) && !self.runs(TARGET) {
            self.state(TARGET).domain = None;
        }
    }

    fn arrive(&mut self) {
        self.set_phase(TARGET, MigrationPhase::Completed);
        let now = self.sides[TARGET].now;
        self.state(TARGET).migration.as_mut().unwrap().ended_at = Some(now);
        self.state(TARGET).domain = Some(running());
    }

    fn happen(&mut self, event: Event) {
        use MigrationPhase::{SwitchingOver, Transferring, Undecided};
        let waits = self.phase(TARGET) == Some(MigrationPhase::Ready);
        let incoming = self.sides[TARGET].state.as_ref().is_some_and(|state| state.domain.is_some());
        match (event, self.phase(SOURCE)) {
            (Event::AllSent, Some(Transferring)) if self.link && waits => {
                self.state(TARGET).domain = Some(domain(DomainStatus::Paused, DomainReason::PausedMigration));
                self.state(SOURCE).domain = Some(domain(DomainStatus::Paused, DomainReason::PausedMigration));
                self.set_phase(SOURCE, SwitchingOver);
            }
            (Event::TransferBreaks, Some(Transferring)) => {
                self.lose_incoming();
                self.stay();
            }
            (Event::Finished, Some(SwitchingOver)) if self.link && waits && incoming => {
                self.arrive();
                self.leave();
            }
            (Event::AnswerLost, Some(SwitchingOver)) if waits && incoming => {
                self.arrive();
                self.set_phase(SOURCE, Undecided);
            }
            (Event::WordLost, Some(SwitchingOver)) => {
                self.lose_incoming();
                self.set_phase(SOURCE, Undecided);
            }
            (Event::DiesUnanswered, Some(SwitchingOver)) if waits && incoming => {
                self.set_phase(TARGET, MigrationPhase::Failed);
                self.state(TARGET).domain = Some(domain(DomainStatus::Shutoff, DomainReason::Crashed));
                if self.link { self.stay() } else { self.set_phase(SOURCE, Undecided) }
            }
            (Event::QemuDies, _) if self.runs(TARGET) => {
                let arrived = self.sides[TARGET].state.as_ref().and_then(|state| state.migration.as_ref()?.ended_at);
                let taken =
                    self.vmi.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(NODES[TARGET]);
                let long = arrived.is_some_and(|at| self.sides[TARGET].now.duration_since(at).as_secs() > 10);
                let kept = matches!(self.phase(SOURCE), Some(SwitchingOver | Undecided));
                self.died = taken || long || !kept;
                self.state(TARGET).domain = Some(domain(DomainStatus::Shutoff, DomainReason::Crashed));
            }
            (Event::Ask, Some(SwitchingOver | Undecided)) if self.link && self.alive(TARGET) => {
                if self.runs(TARGET) {
                    self.leave();
                } else if self.has_crashed() {
                    self.set_phase(SOURCE, Undecided);
                } else {
                    self.state(TARGET).domain = None;
                    self.stay();
                }
            }
            // The connection is gone, and nobody answers.
            (Event::Ask, Some(SwitchingOver)) => self.set_phase(SOURCE, Undecided),
            (Event::LauncherDies(side), _) => {
                self.sides[side].launcher = Launcher::Gone;
                if side == SOURCE {
                    self.lose_incoming();
                }
            }
            (Event::AgentStops(side), _) => self.agents[side] = false,
            (Event::AgentStarts(side), _) => {
                if !self.agents[side] {
                    let scene = &mut self.sides[side];
                    (scene.sent, scene.listening, scene.dialling) = (Sent::default(), None, None);
                }
                self.agents[side] = true;
            }
            (Event::LinkBreaks, _) => self.link = false,
            (Event::LinkHeals, _) => self.link = true,
            (Event::Abort, _) => {
                let state = self.vmi.status.as_mut().and_then(|status| status.migration_state.as_mut());
                state.unwrap().abort_requested = Some(true);
            }
            (Event::Time(seconds), _) => {
                for side in &mut self.sides {
                    side.now += jiff::SignedDuration::from_secs(seconds);
                }
            }
            _ => {}
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(!(self.runs(SOURCE) && self.runs(TARGET)), "the guest runs twice");
        Ok(())
    }

    /// Both agents decide and act in turn until only waiting is left.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for round in 0..24 {
            let side = round % 2;
            if !self.agents[side] {
                continue;
            }
            self.sides[side].vmi = Some(self.vmi.clone());
            let actions = self.sides[side].decide();
            for action in actions {
                self.carry_out(side, action)?;
                self.check()?;
            }
        }
        for side in [SOURCE, TARGET].into_iter().filter(|side| self.agents[*side]) {
            self.sides[side].vmi = Some(self.vmi.clone());
            let actions = self.sides[side].decide();
            prop_assert!(actions.iter().all(|action| action.kind().is_none()), "no rest: {side} {actions:?}");
        }
        Ok(())
    }

    fn carry_out(&mut self, side: usize, action: Action) -> Result<(), TestCaseError> {
        let now = self.sides[side].now;
        match action {
            Action::UpdateStatus(status) => self.vmi.status = Some(*status),
            Action::UpdateVmi(vmi) => self.vmi = *vmi,
            Action::PrepareTarget { .. } => self.set_phase(side, MigrationPhase::Ready),
            Action::OpenTargetProxy => {
                let ports = [("1".to_string(), 0)].into();
                self.sides[side].listening = Some(Endpoint { address: "10.0.0.2".to_string(), ports });
            }
            Action::OpenSourceProxy(endpoint) => self.sides[side].dialling = Some(endpoint),
            Action::CloseProxies => (self.sides[side].listening, self.sides[side].dialling) = (None, None),
            Action::Migrate { .. } => self.set_phase(side, MigrationPhase::Transferring),
            Action::AbortMigration { .. } => {
                if self.phase(side) == Some(MigrationPhase::Transferring) {
                    self.lose_incoming();
                    self.stay();
                }
            }
            Action::SettleMigration { target_runs, .. } => match (self.phase(side), target_runs) {
                (Some(MigrationPhase::SwitchingOver | MigrationPhase::Undecided), true) => self.leave(),
                (Some(MigrationPhase::Undecided), false) => self.stay(),
                _ => {}
            },
            Action::Kill { .. } => {
                self.sides[side].sent.kill = Some(now);
                // What never ran here leaves nothing behind; libvirt forgets it.
                let ran = self.runs(side);
                self.state(side).domain = ran.then(|| domain(DomainStatus::Shutoff, DomainReason::Destroyed));
            }
            Action::Delete { .. } => {
                prop_assert!(!self.runs(side), "a guest that runs is not forgotten");
                self.sides[side].launcher = Launcher::Gone;
            }
            Action::CleanUp => self.sides[side].has_record = false,
            Action::FinalizeTarget { .. } | Action::EmitEvent { .. } | Action::RequeueAfter { .. } => {}
            Action::MountVolumes(_)
            | Action::UnmountVolumes(_)
            | Action::SyncVolumes { .. }
            | Action::DumpMemory { .. } => {
                return Err(TestCaseError::fail(format!(
                    "a guest without plugged volumes does not call for {action:?}"
                )));
            }
            Action::ConfigureNetwork
            | Action::SyncDomain { .. }
            | Action::GrowDisks { .. }
            | Action::Shutdown
            | Action::RememberIoRetry(_) => {
                return Err(TestCaseError::fail(format!("a migration does not call for {action:?}")));
            }
        }
        Ok(())
    }

    /// No more faults: time passes and everybody does their work.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        for event in [Event::LinkHeals, Event::AgentStarts(SOURCE), Event::AgentStarts(TARGET)] {
            self.happen(event);
        }
        for _ in 0..8 {
            self.settle()?;
            for event in [Event::Time(15), Event::AllSent, Event::Finished, Event::Ask] {
                self.happen(event);
                self.check()?;
            }
        }
        self.settle()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_guest_never_runs_twice_and_ends_up_where_the_vmi_says(events in prop::collection::vec(any_event(), 0..25)) {
        let mut pair = Pair::new();
        for event in &events {
            pair.settle()?;
            pair.happen(*event);
            pair.check()?;
        }
        pair.heal()?;
        let owner = pair.vmi.status.as_ref().and_then(|status| status.node_name.clone());
        let where_it_runs: Vec<_> = [SOURCE, TARGET].into_iter().filter(|side| pair.runs(*side)).collect();
        if pair.vmi.is_final() {
            prop_assert!(where_it_runs.is_empty(), "an ended VMI has a guest");
            let died = pair.died || events.iter().any(|event| matches!(event, Event::LauncherDies(_)));
            prop_assert!(died, "nobody ended it");
        } else {
            prop_assert_eq!(where_it_runs.len(), 1, "the guest runs once");
            prop_assert_eq!(owner.as_deref(), Some(NODES[where_it_runs[0]]));
            let state = pair.vmi.status.as_ref().unwrap().migration_state.as_ref().unwrap();
            prop_assert_eq!(state.completed, Some(true), "the migration is over");
            prop_assert_eq!(state.failed != Some(true), where_it_runs == [TARGET]);
        }
        let labels = pair.vmi.metadata.labels.as_ref().unwrap();
        prop_assert!(pair.vmi.is_final() || !labels.contains_key("kubevirt.io/migrationTargetNodeName"));
    }
}

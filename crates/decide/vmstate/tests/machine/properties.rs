//! Any world, and any story.

use api::v1::VirtualMachineInstancePhase as Phase;
use proptest::prelude::*;
use vmstate::{Action, ActionKind, DomainReason, DomainState, DomainStatus, Failure, LauncherState, Sent};

use crate::support::{Launcher, Scene, at, deleting, domain, running, vmi};

fn any_phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(vec![
        Phase::Running,
        Phase::Running,
        Phase::Scheduled,
        Phase::Pending,
        Phase::Scheduling,
        Phase::Scheduled,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Unknown,
        Phase::default(),
    ])
}

fn any_domain() -> impl Strategy<Value = Option<DomainState>> {
    use DomainReason as R;
    use DomainStatus as S;
    let status = prop::sample::select(vec![
        S::NoState,
        S::Running,
        S::Blocked,
        S::Paused,
        S::Shutdown,
        S::Shutoff,
        S::Crashed,
        S::PMSuspended,
        S::Unknown,
    ]);
    let reason = prop::sample::select(vec![
        R::Unknown,
        R::Shutdown,
        R::Destroyed,
        R::Crashed,
        R::Panicked,
        R::Saved,
        R::FromSnapshot,
        R::Migrated,
        R::Failed,
        R::PausedUser,
        R::PausedIOError,
        R::PausedPostcopyFailed,
        R::Booted,
        R::Daemon,
        R::PausedMigration,
    ]);
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(domain(S::Paused, R::PausedIOError))),
        3 => (status, reason).prop_map(|(status, reason)| Some(domain(status, reason))),
    ]
}

/// Most worlds are those in which something can be done.
fn any_launcher() -> impl Strategy<Value = Launcher> {
    prop_oneof![
        4 => Just(Launcher::Talking),
        1 => prop::sample::select(vec![Launcher::NotInitialised, Launcher::Silent, Launcher::Gone]),
    ]
}

fn any_failure() -> impl Strategy<Value = Option<Failure>> {
    use ActionKind::*;
    let action =
        prop::sample::select(vec![ConfigureNetwork, SyncDomain, Shutdown, Kill, Delete, CleanUp, UpdateStatus]);
    prop::option::of((action, any::<bool>(), any::<u32>(), -1000i64..1000).prop_map(|(action, critical, count, t)| {
        Failure { action, message: "it failed".to_string(), critical, count, at: at(t) }
    }))
}

fn any_time() -> impl Strategy<Value = Option<jiff::Timestamp>> {
    prop::option::of((-400i64..400).prop_map(at))
}

prop_compose! {
    fn any_scene()(
        phase in any_phase(), deleted: bool, exists in prop::bool::weighted(0.8), confirmed: bool, domain in any_domain(),
        launcher in any_launcher(), has_state in prop::bool::weighted(0.9), network in 0..3, failure in any_failure(),
        flags in any::<[bool; 3]>(), times in [any_time(), any_time(), any_time(), any_time(), any_time()],
        grace in prop::option::of(-5i64..4000), now in -400i64..400,
    ) -> Scene {
        let object = if deleted { deleting(vmi(phase)) } else { vmi(phase) };
        Scene::new(exists.then_some(object), domain).but(|s| {
            s.now = at(now);
            s.confirmed = confirmed;
            s.launcher = launcher;
            s.network = s.network.take().filter(|_| network == 0);
            s.interrupted = network == 1;
            s.has_record = flags[0];
            s.rival = flags[1];
            s.failure = failure;
            s.sent = Sent {
                sync: times[0],
                growth: times[4].map(|at| (at, 1 << 30)),
                shutdown: times[1],
                kill: times[2],
                delete: times[3],
                settle: times[0],
            };
            if let Some(vmi) = &mut s.vmi {
                vmi.spec.termination_grace_period_seconds = grace;
            }
            if let Some(state) = &mut s.state {
                state.marked_for_graceful_shutdown = flags[2];
                state.shutdown_requested_at = times[4];
            }
            if !has_state && !matches!(s.launcher, Launcher::Talking) {
                s.state = None;
            }
        })
    }
}

fn has(actions: &[Action], kind: ActionKind) -> bool {
    actions.iter().any(|action| action.kind() == Some(kind))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn no_world_is_too_strange(scene in any_scene()) {
        let actions = scene.decide();
        if has(&actions, ActionKind::SyncDomain) {
            let state = scene.state.as_ref().unwrap();
            prop_assert!(state.shutdown_requested_at.is_none() && scene.sent.shutdown.is_none());
            prop_assert!(!state.marked_for_graceful_shutdown);
            prop_assert!(state.domain.is_some() || !scene.rival, "two launchers must not both start a guest");
            prop_assert!(!has(&actions, ActionKind::Shutdown) && !has(&actions, ActionKind::Kill));
        }
        for end in [ActionKind::Shutdown, ActionKind::Kill, ActionKind::Delete] {
            prop_assert!(scene.vmi.is_some() || scene.confirmed || !has(&actions, end), "{end:?} on a cache's word");
        }
        for start in [ActionKind::ConfigureNetwork, ActionKind::SyncDomain, ActionKind::PrepareTarget] {
            prop_assert!(scene.vmi.is_some() || !has(&actions, start), "{start:?} in a launcher whose VMI is gone");
        }
        if let Some(vmi) = &scene.vmi && vmi.is_final() {
            prop_assert!(!has(&actions, ActionKind::UpdateStatus), "an ended VMI stays as it is");
        }
        for action in &actions {
            if let Action::RequeueAfter { delay, because } = action {
                prop_assert!(!delay.is_zero() && !because.is_empty());
            }
        }
    }
}

/// A model of everything around the machine, good enough to tell stories with.
struct Story {
    scene: Scene,
    /// The guest obeys a shutdown request.
    obedient: bool,
    shut_down: bool,
}

#[derive(Debug, Clone)]
enum Twist {
    DeleteVmi,
    ForgetVmi,
    GuestPowersOff,
    GuestCrashes,
    UserPauses,
    DiskFails,
    DiskRecovers,
    LauncherDies,
    PodStops,
    AgentRestarts,
    NextActionFails,
    Time(i64),
}

fn any_twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        Just(Twist::DeleteVmi),
        Just(Twist::ForgetVmi),
        Just(Twist::GuestPowersOff),
        Just(Twist::GuestCrashes),
        Just(Twist::UserPauses),
        Just(Twist::DiskFails),
        Just(Twist::DiskRecovers),
        Just(Twist::LauncherDies),
        Just(Twist::PodStops),
        Just(Twist::AgentRestarts),
        Just(Twist::NextActionFails),
        (0i64..20).prop_map(Twist::Time),
    ]
}

impl Story {
    fn new(obedient: bool) -> Self {
        let scene = Scene::new(vmi(Phase::Scheduled), None).but(|s| {
            s.network = None;
            s.has_record = true;
            s.now = at(1);
        });
        Story { scene, obedient, shut_down: false }
    }

    fn state(&mut self) -> &mut LauncherState {
        self.scene.state.get_or_insert_default()
    }

    fn set_domain(&mut self, domain: Option<DomainState>) {
        self.state().domain = domain;
        self.scene.state_at = self.scene.now;
    }

    fn alive(&self) -> bool {
        let domain = self.scene.state.as_ref().and_then(|state| state.domain.as_ref());
        matches!(self.scene.launcher, Launcher::Talking) && domain.is_some_and(|domain| !domain.is_down())
    }

    fn twist(&mut self, twist: &Twist) -> bool {
        match twist {
            Twist::DeleteVmi => self.scene.vmi = self.scene.vmi.take().map(deleting),
            Twist::ForgetVmi => self.scene.vmi = None,
            Twist::GuestPowersOff if self.alive() => {
                self.set_domain(Some(domain(DomainStatus::Shutoff, DomainReason::Shutdown)));
            }
            Twist::GuestCrashes if self.alive() => {
                self.set_domain(Some(domain(DomainStatus::Shutoff, DomainReason::Crashed)));
            }
            Twist::UserPauses if self.alive() => {
                self.set_domain(Some(domain(DomainStatus::Paused, DomainReason::PausedUser)));
            }
            Twist::DiskFails if self.alive() => {
                self.set_domain(Some(domain(DomainStatus::Paused, DomainReason::PausedIOError)));
            }
            Twist::DiskRecovers if self.alive() => self.set_domain(Some(running())),
            Twist::LauncherDies => self.scene.launcher = Launcher::Gone,
            Twist::PodStops => self.state().marked_for_graceful_shutdown = true,
            Twist::AgentRestarts => {
                self.scene.sent = Sent::default();
                self.scene.failure = None;
                self.scene.io_retry = None;
            }
            Twist::NextActionFails => return true,
            Twist::Time(seconds) => self.scene.now += jiff::SignedDuration::from_secs(*seconds),
            _ => {}
        }
        false
    }

    /// Decides and carries out until nothing but waiting is left, which must not take long.
    fn settle(&mut self, mut fail_next: bool) -> Result<(), TestCaseError> {
        for _ in 0..20 {
            let actions = self.scene.decide();
            let works = actions.iter().any(|action| action.kind().is_some());
            for action in actions {
                if fail_next && let Some(kind) = action.kind() {
                    fail_next = false;
                    let failure = Failure {
                        action: kind,
                        message: "no".to_string(),
                        critical: false,
                        count: 1,
                        at: self.scene.now,
                    };
                    self.scene.failure = Some(failure);
                    break;
                }
                self.carry_out(action)?;
            }
            if !works {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("the machine does not come to rest"))
    }

    fn carry_out(&mut self, action: Action) -> Result<(), TestCaseError> {
        if let Some(kind) = action.kind()
            && self.scene.failure.as_ref().is_some_and(|f| f.action == kind)
        {
            self.scene.failure = None;
        }
        let now = self.scene.now;
        match action {
            Action::MountVolumes(_)
            | Action::UnmountVolumes(_)
            | Action::SyncVolumes { .. }
            | Action::DumpMemory { .. } => {
                return Err(TestCaseError::fail(format!(
                    "a guest without plugged volumes does not call for {action:?}"
                )));
            }
            Action::ConfigureNetwork => self.scene.network = Some(vec![]),
            Action::GrowDisks { bytes } => self.scene.sent.growth = Some((now, bytes)),
            Action::SyncDomain { .. } => {
                prop_assert!(!self.shut_down, "nothing starts after a shutdown");
                self.set_domain(Some(running()));
                self.scene.sent.sync = Some(now);
            }
            Action::Shutdown => {
                self.shut_down = true;
                self.scene.sent.shutdown = Some(now);
                self.state().shutdown_requested_at.get_or_insert(now);
                if self.obedient {
                    self.set_domain(Some(domain(DomainStatus::Shutoff, DomainReason::Shutdown)));
                }
            }
            Action::Kill { .. } => {
                self.shut_down = true;
                self.scene.sent.kill = Some(now);
                self.set_domain(Some(domain(DomainStatus::Shutoff, DomainReason::Destroyed)));
            }
            Action::Delete { .. } => {
                prop_assert!(!self.alive(), "a living guest is never forgotten");
                self.set_domain(None);
                self.scene.sent.delete = Some(now);
                self.scene.launcher = Launcher::Gone;
            }
            Action::CleanUp => {
                prop_assert!(!self.alive(), "nothing is cleaned up under a living guest");
                self.scene.has_record = false;
            }
            Action::UpdateStatus(status) => {
                let vmi = self.scene.vmi.as_mut().unwrap();
                prop_assert!(!vmi.is_final(), "an ended VMI stays ended");
                vmi.status = Some(*status);
            }
            Action::RememberIoRetry(retry) => self.scene.io_retry = Some(retry),
            Action::EmitEvent { .. } | Action::RequeueAfter { .. } => {}
            Action::UpdateVmi(_)
            | Action::PrepareTarget { .. }
            | Action::OpenTargetProxy
            | Action::OpenSourceProxy(_)
            | Action::CloseProxies
            | Action::Migrate { .. }
            | Action::AbortMigration { .. }
            | Action::SettleMigration { .. }
            | Action::FinalizeTarget { .. } => {
                return Err(TestCaseError::fail(format!("nobody has asked for a migration: {action:?}")));
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_story_comes_to_rest_and_every_end_is_clean(
        obedient: bool, twists in prop::collection::vec(any_twist(), 0..12),
    ) {
        let mut story = Story::new(obedient);
        story.settle(false)?;
        prop_assert!(story.scene.vmi.as_ref().unwrap().is_running(), "without twists the guest runs");
        for twist in &twists {
            let fails = story.twist(twist);
            story.settle(fails)?;
        }
        // Now let the VMI be deleted, and time pass: whatever happened, nothing remains on the node.
        story.twist(&Twist::DeleteVmi);
        for _ in 0..40 {
            story.twist(&Twist::Time(5));
            story.settle(false)?;
        }
        prop_assert!(!story.alive(), "the guest has ended");
        prop_assert!(!story.scene.has_record, "nothing is left on the node");
        prop_assert!(story.scene.vmi.as_ref().is_none_or(|vmi| vmi.is_final()));
    }
}

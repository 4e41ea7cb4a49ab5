//! From the hand-over to the end, row by row.

use api::v1::VirtualMachineInstancePhase as Phase;
use vmstate::{ActionKind, DomainReason, DomainStatus, Failure, LauncherState, Sent};

use crate::support::{Launcher, Scene, at, deleting, domain, running, settled, vmi};

fn scheduled() -> Scene {
    Scene::new(vmi(Phase::Scheduled), None)
}

#[test]
fn a_guest_starts_step_by_step() {
    let pending = scheduled().but(|s| s.network = None);
    for (name, scene, expected) in [
        (
            "the launcher is waited for",
            pending.clone().but(|s| s.state = None).launcher(Launcher::NotInitialised),
            vec!["again in 1"],
        ),
        ("the network comes first", pending.clone(), vec!["network"]),
        ("then the domain", scheduled(), vec!["sync"]),
        (
            "which shows soon after",
            scheduled().but(|s| s.sent = Sent { sync: Some(at(58)), ..Sent::default() }),
            vec!["again in 3"],
        ),
        (
            "a running domain makes the phase Running",
            Scene::new(vmi(Phase::Scheduled), running()),
            vec!["status Running"],
        ),
        (
            "a domain that is defined and not up is started again",
            Scene::new(vmi(Phase::Scheduled), domain(DomainStatus::Shutoff, DomainReason::Unknown)),
            vec!["status Scheduled", "sync", "again in 5"],
        ),
        (
            "but not for ever",
            Scene::new(vmi(Phase::Scheduled), domain(DomainStatus::Shutoff, DomainReason::Unknown))
                .but(|s| s.now = at(301)),
            vec!["status Scheduled", "delete", "again in 5"],
        ),
        (
            "a failed start is final",
            Scene::new(vmi(Phase::Scheduled), domain(DomainStatus::Shutoff, DomainReason::Failed)),
            vec!["status Scheduled", "delete", "again in 5"],
        ),
        ("a second launcher waits for the first to go", scheduled().but(|s| s.rival = true), vec!["again in 1"]),
        (
            "a Pod that is being stopped starts nothing",
            scheduled().but(|s| s.state.as_mut().unwrap().marked_for_graceful_shutdown = true),
            vec!["again in 1"],
        ),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
    assert_eq!(scheduled().says(), ["Normal Created"]);
    assert_eq!(Scene::new(vmi(Phase::Scheduled), running()).says(), ["Normal Started"]);
}

#[test]
fn what_the_controller_still_owns_or_another_node_does_is_left_alone() {
    for phase in [Phase::Pending, Phase::Scheduling, Phase::default()] {
        assert_eq!(Scene::new(vmi(phase.clone()), None).does(), [""; 0], "{phase}");
    }
    let mut elsewhere = vmi(Phase::Running);
    elsewhere.metadata.labels = Some([("kubevirt.io/nodeName".to_string(), "node02".to_string())].into());
    elsewhere.status_mut().node_name = Some("node02".to_string());
    let scene = Scene::new(elsewhere, running());
    assert_eq!(scene.does(), [""; 0]);
    assert_eq!(scene.launcher(Launcher::Gone).does(), ["clean up"], "its leftovers go when its launcher is gone");
}

#[test]
fn a_settled_guest_needs_nothing() {
    assert_eq!(settled(Scene::new(vmi(Phase::Running), running())).decide(), []);
}

#[test]
fn an_unknown_state_freezes_everything() {
    let unknown = domain(DomainStatus::Unknown, DomainReason::Unknown);
    let running_vmi = vmi(Phase::Running);
    for vmi in [Some(running_vmi.clone()), Some(deleting(running_vmi)), Some(vmi(Phase::Failed)), None] {
        assert_eq!(Scene::new(vmi, unknown.clone()).does(), ["again in 5"]);
    }
}

#[test]
fn silence_changes_nothing_until_it_lasts() {
    let running_vmi = || vmi(Phase::Running);
    for vmi in [Some(running_vmi()), Some(deleting(running_vmi())), Some(vmi(Phase::Failed)), None] {
        let scene = Scene::new(vmi, running()).launcher(Launcher::Silent);
        assert_eq!(scene.does(), ["again in 1"], "{:?}", scene.vmi.map(|v| v.phase().cloned()));
    }
    assert_eq!(Scene::new(running_vmi(), running()).launcher(Launcher::Gone).does(), ["status Failed"]);
}

#[test]
fn absence_is_believed_only_when_confirmed() {
    let unconfirmed = Scene::new(None, running()).but(|s| s.confirmed = false);
    assert_eq!(unconfirmed.does(), ["again in 1"]);
    for (name, scene, expected) in [
        ("a running guest is shut down", Scene::new(None, running()), vec!["shutdown", "again in 5"]),
        (
            "a stopped one is forgotten",
            Scene::new(None, domain(DomainStatus::Shutoff, DomainReason::Shutdown)),
            vec!["delete", "clean up"],
        ),
        ("a launcher without a domain is ended", Scene::new(None, None), vec!["delete", "clean up"]),
        (
            "a launcher that is gone leaves its record",
            Scene::new(None, None).launcher(Launcher::Gone),
            vec!["clean up"],
        ),
        (
            "one that is not there yet is waited for",
            Scene::new(None, None).but(|s| s.state = None).launcher(Launcher::NotInitialised),
            vec!["again in 1"],
        ),
        ("without a record there is nothing to do", Scene::new(None, running()).but(|s| s.has_record = false), vec![]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
        assert_eq!(scene.says(), [""; 0], "{name}: there is no object to tell it to");
    }
}

#[test]
fn an_ended_vmi_is_cleaned_up_once() {
    let ended = |phase: Phase, domain| Scene::new(vmi(phase), domain);
    let down = || Some(domain(DomainStatus::Shutoff, DomainReason::Shutdown));
    for (name, scene, expected) in [
        ("the domain is forgotten", ended(Phase::Succeeded, down()), vec!["delete", "clean up"]),
        (
            "a guest that outlived its VMI is ended first",
            ended(Phase::Failed, Some(running())),
            vec!["kill", "again in 5"],
        ),
        ("without a domain the launcher is ended", ended(Phase::Failed, None), vec!["delete", "clean up"]),
        (
            "a launcher that is gone leaves its record",
            ended(Phase::Failed, None).launcher(Launcher::Gone),
            vec!["clean up"],
        ),
        ("nothing is left", ended(Phase::Failed, down()).but(|s| s.has_record = false), vec![]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
}

#[test]
fn the_phase_is_stored_before_the_domain_is_forgotten() {
    let down = domain(DomainStatus::Shutoff, DomainReason::Shutdown);
    let scene = Scene::new(vmi(Phase::Running), down.clone());
    assert_eq!(scene.does(), ["status Succeeded"]);
    assert_eq!(scene.says(), ["Normal Stopped"]);
    let next = scene.clone().but(|s| s.vmi = scene.stored());
    assert_eq!(next.does(), ["delete", "clean up"]);
    // Also when the launcher ended by itself in between: its last word counts.
    assert_eq!(Scene::new(vmi(Phase::Running), down).launcher(Launcher::Gone).does(), ["status Succeeded"]);
}

#[test]
fn an_interrupted_network_setup_fails_a_starting_guest_only() {
    let interrupted = |scene: Scene| {
        scene.but(|s| {
            s.network = None;
            s.interrupted = true;
        })
    };
    let scene = interrupted(scheduled());
    assert_eq!(scene.does(), ["status Failed"]);
    assert_eq!(scene.says(), ["Warning Stopped"]);
    assert!(scene.stored().unwrap().condition("Synchronized").unwrap().message().contains("cannot be repeated"));
    assert_eq!(settled(interrupted(Scene::new(vmi(Phase::Running), running()))).does(), [""; 0]);
    let silent = interrupted(Scene::new(vmi(Phase::Running), None)).launcher(Launcher::Silent);
    assert_eq!(silent.does(), ["again in 1"]);
}

fn failed(action: ActionKind, critical: bool, count: u32) -> Failure {
    Failure { action, message: "no such image".to_string(), critical, count, at: at(60) }
}

#[test]
fn a_failed_action_is_told_once_and_repeated_ever_more_rarely() {
    let scene = scheduled().but(|s| s.failure = Some(failed(ActionKind::SyncDomain, false, 1)));
    assert_eq!(scene.does(), ["status Scheduled", "again in 0.5"]);
    assert_eq!(scene.says(), ["Warning SyncFailed"]);
    let told = settled(scene);
    let condition = told.vmi.as_ref().unwrap().condition("Synchronized").unwrap().clone();
    assert!(condition.is_false() && condition.message() == "no such image");
    assert_eq!(told.does(), ["again in 0.5"]);
    assert_eq!(told.says(), [""; 0]);
    for (count, expected) in [(2, "again in 1"), (4, "again in 4"), (40, "again in 30")] {
        let scene = told.clone().but(|s| s.failure.as_mut().unwrap().count = count);
        assert_eq!(scene.does(), [expected]);
    }
    assert_eq!(told.clone().but(|s| s.now = at(61)).does(), ["sync"], "after the wait");
    assert_eq!(told.but(|s| s.failure = None).does(), ["status Scheduled", "sync"], "after a success elsewhere");
}

#[test]
fn a_critical_failure_ends_the_vmi_with_its_reason() {
    for action in [ActionKind::ConfigureNetwork, ActionKind::SyncDomain] {
        let scene = scheduled().but(|s| s.failure = Some(failed(action, true, 1)));
        assert_eq!(scene.does(), ["status Failed"]);
        assert_eq!(scene.says(), ["Warning SyncFailed", "Warning Stopped"]);
        assert_eq!(scene.stored().unwrap().condition("Synchronized").unwrap().message(), "no such image");
    }
}

#[test]
fn trouble_with_our_own_bookkeeping_is_not_the_guests() {
    let scene = settled(Scene::new(vmi(Phase::Running), running()));
    let scene = scene.but(|s| s.failure = Some(failed(ActionKind::UpdateStatus, false, 3)));
    assert_eq!(scene.decide(), []);
}

#[test]
fn a_guest_paused_by_a_failing_disk_is_resumed_now_and_then() {
    let paused = domain(DomainStatus::Paused, DomainReason::PausedIOError);
    let scene = settled(Scene::new(vmi(Phase::Running), paused));
    assert_eq!(scene.does(), ["sync"]);
    let retry = scene.decide().into_iter().find_map(|action| match action {
        vmstate::Action::RememberIoRetry(retry) => Some(retry),
        _ => None,
    });
    let again = scene.but(|s| {
        s.io_retry = retry;
        s.now = at(63);
    });
    assert_eq!(again.does(), ["again in 7"]);
    let paused_by_user = domain(DomainStatus::Paused, DomainReason::PausedUser);
    assert_eq!(settled(Scene::new(vmi(Phase::Running), paused_by_user)).does(), [""; 0]);
}

#[test]
fn a_running_guest_without_a_domain_is_lost_after_a_while() {
    let scene = settled(Scene::new(vmi(Phase::Running), None));
    assert_eq!(scene.does(), ["again in 1"], "libvirt may have just been restarted");
    assert_eq!(scene.clone().but(|s| s.now = at(70)).does(), ["status Failed"]);
    assert_eq!(Scene::new(vmi(Phase::Scheduled), None).but(|s| s.now = at(100)).does(), ["sync"]);
    let state = LauncherState { marked_for_graceful_shutdown: true, ..LauncherState::default() };
    assert_eq!(scene.but(|s| s.state = Some(state)).does(), ["delete", "again in 5"]);
}

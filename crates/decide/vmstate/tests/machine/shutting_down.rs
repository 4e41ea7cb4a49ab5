//! Asking a guest to power off, and what follows if it does not.

use api::v1::VirtualMachineInstancePhase as Phase;
use vmstate::{DomainReason, DomainStatus, Sent};

use crate::support::{Scene, at, deleting, domain, running, settled, vmi};

fn stopping() -> Scene {
    settled(Scene::new(deleting(vmi(Phase::Running)), running()))
}

fn asked(begun: i64, last: i64, now: i64, grace: Option<i64>) -> Scene {
    stopping().but(|s| {
        s.vmi.as_mut().unwrap().spec.termination_grace_period_seconds = grace;
        s.state.as_mut().unwrap().shutdown_requested_at = Some(at(begun));
        s.sent = Sent { shutdown: Some(at(last)), ..Sent::default() };
        s.now = at(now);
    })
}

#[test]
fn the_guest_is_asked_every_five_seconds_until_its_time_is_over() {
    for (name, scene, expected) in [
        ("first", stopping(), vec!["shutdown", "again in 5"]),
        ("in between nothing happens", asked(60, 60, 62, Some(30)), vec!["again in 3"]),
        ("again", asked(60, 60, 65, Some(30)), vec!["shutdown", "again in 5"]),
        ("the last pause is shorter", asked(60, 85, 87, Some(30)), vec!["again in 3"]),
        ("then it ends", asked(60, 85, 90, Some(30)), vec!["kill", "again in 5"]),
        ("thirty seconds are the default", asked(60, 85, 89, None), vec!["again in 1"]),
        ("and no more", asked(60, 85, 90, None), vec!["kill", "again in 5"]),
        ("no grace, no question", stopping().but(|s| grace(s, 0)), vec!["kill", "again in 5"]),
        ("a short grace is looked at in time", stopping().but(|s| grace(s, 2)), vec!["shutdown", "again in 2"]),
        ("a long one is kept", asked(60, 3000, 3005, Some(3600)), vec!["shutdown", "again in 5"]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
    assert_eq!(stopping().says(), ["Normal ShuttingDown"]);
    assert_eq!(asked(60, 60, 65, Some(30)).says(), [""; 0], "only the first request is news");
    assert_eq!(asked(60, 85, 90, Some(30)).says(), ["Normal Deleted"]);
}

fn grace(scene: &mut Scene, seconds: i64) {
    scene.vmi.as_mut().unwrap().spec.termination_grace_period_seconds = Some(seconds);
}

#[test]
fn a_guest_on_its_way_off_is_not_asked_again_but_its_time_runs() {
    let going = |now| {
        asked(60, 60, now, Some(30)).but(|s| {
            s.state.as_mut().unwrap().domain = Some(domain(DomainStatus::Shutdown, DomainReason::User));
        })
    };
    assert_eq!(going(66).does(), ["again in 5"]);
    assert_eq!(going(90).does(), ["kill", "again in 5"]);
}

#[test]
fn a_kill_is_repeated_if_qemu_is_still_there() {
    let killed = |now| asked(60, 85, now, Some(30)).but(|s| s.sent.kill = Some(at(90)));
    assert_eq!(killed(92).does(), ["again in 3"]);
    assert_eq!(killed(95).does(), ["kill", "again in 5"]);
}

#[test]
fn a_stopping_pod_shuts_its_running_guest_down() {
    let marked = settled(Scene::new(vmi(Phase::Running), running()))
        .but(|s| s.state.as_mut().unwrap().marked_for_graceful_shutdown = true);
    assert_eq!(marked.does(), ["shutdown", "again in 5"]);
}

#[test]
fn without_a_vmi_the_recorded_grace_counts() {
    let abandoned = |grace| {
        Scene::new(None, running()).but(|s| {
            s.recorded_grace = grace;
            s.state.as_mut().unwrap().shutdown_requested_at = Some(at(0));
        })
    };
    assert_eq!(abandoned(Some(61)).does(), ["shutdown", "again in 1"]);
    assert_eq!(abandoned(Some(60)).does(), ["kill", "again in 5"]);
    assert_eq!(abandoned(None).does(), ["kill", "again in 5"]);
}

#[test]
fn after_a_shutdown_began_nothing_is_started_or_resumed() {
    let paused = || domain(DomainStatus::Paused, DomainReason::PausedIOError);
    let scene = settled(Scene::new(vmi(Phase::Running), paused()));
    assert_eq!(scene.clone().but(|s| s.sent.shutdown = Some(at(0))).does(), [""; 0]);
    assert_eq!(scene.but(|s| s.state.as_mut().unwrap().shutdown_requested_at = Some(at(0))).does(), [""; 0]);
    let starting = Scene::new(vmi(Phase::Scheduled), None).but(|s| s.sent.shutdown = Some(at(0)));
    assert_eq!(starting.does(), ["again in 1"]);
}

#[test]
fn a_deleted_vmi_without_a_domain_ends_its_launcher() {
    let scene = settled(Scene::new(deleting(vmi(Phase::Scheduled)), None));
    assert_eq!(scene.does(), ["delete", "again in 5"]);
    let told = scene.but(|s| s.sent.delete = Some(at(59)));
    assert_eq!(told.does(), ["again in 4"]);
}

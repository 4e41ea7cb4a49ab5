use std::time::Duration;

use api::v1::RunStrategy;
use api::{conditions, reasons};

use super::*;

#[derive(Debug, PartialEq)]
enum Does {
    Nothing,
    Creates,
    Deletes,
}

fn does(w: &World) -> Does {
    let actions = decide(w);
    match (creates(&actions), deletes(&actions)) {
        (None, false) => Does::Nothing,
        (Some(_), false) => Does::Creates,
        (None, true) => Does::Deletes,
        (Some(_), true) => panic!("both in one pass: {actions:#?}"),
    }
}

const STOP: &str = r#"[{"action": "Stop", "uid": "vmi-uid"}]"#;
const OLD_STOP: &str = r#"[{"action": "Stop", "uid": "an earlier one"}]"#;
const START: &str = r#"[{"action": "Start"}]"#;
const NONE: &str = "[]";

#[test]
fn each_row_of_the_table_holds_while_an_instance_exists() {
    let rows = [
        ("Always", "Running", NONE, Does::Nothing),
        ("Always", "Running", STOP, Does::Deletes),
        ("Always", "Running", OLD_STOP, Does::Nothing),
        ("Always", "Succeeded", NONE, Does::Deletes),
        ("Always", "Failed", NONE, Does::Deletes),
        ("RerunOnFailure", "Running", NONE, Does::Nothing),
        ("RerunOnFailure", "Running", STOP, Does::Deletes),
        ("RerunOnFailure", "Succeeded", NONE, Does::Deletes),
        ("RerunOnFailure", "Failed", NONE, Does::Deletes),
        ("Manual", "Running", NONE, Does::Nothing),
        ("Manual", "Running", STOP, Does::Deletes),
        ("Manual", "Running", OLD_STOP, Does::Nothing),
        ("Manual", "Failed", NONE, Does::Nothing),
        ("Halted", "Running", NONE, Does::Deletes),
        ("Halted", "Pending", NONE, Does::Deletes),
        ("Once", "Running", NONE, Does::Nothing),
        ("Once", "Running", STOP, Does::Nothing),
        ("Once", "Succeeded", NONE, Does::Nothing),
        ("Once", "Failed", NONE, Does::Nothing),
    ];
    for (strategy, phase, requests, expected) in rows {
        let vm = with_requests(vm(strategy), serde_json::from_str(requests).unwrap());
        let w = world(vm.clone(), Some(vmi(phase)));
        assert_eq!(does(&w), expected, "{strategy}, {phase}, {requests}");
        let going = world(vm, Some(deleting(vmi(phase))));
        assert_eq!(does(&going), Does::Nothing, "{strategy}, {phase}, {requests}, already being deleted");
    }
}

#[test]
fn each_row_of_the_table_holds_while_no_instance_exists() {
    // Strategy, the strategy of the last start, first request.
    let rows = [
        ("Always", None, NONE, Does::Creates),
        ("Always", Some("Always"), NONE, Does::Creates),
        ("Always", None, STOP, Does::Creates),
        ("RerunOnFailure", None, NONE, Does::Creates),
        ("RerunOnFailure", Some("Manual"), NONE, Does::Creates),
        ("RerunOnFailure", Some("RerunOnFailure"), NONE, Does::Nothing),
        ("RerunOnFailure", Some("RerunOnFailure"), START, Does::Creates),
        ("Manual", None, NONE, Does::Nothing),
        ("Manual", None, START, Does::Creates),
        ("Manual", None, OLD_STOP, Does::Nothing),
        ("Halted", None, NONE, Does::Nothing),
        ("Halted", None, START, Does::Nothing),
        ("Once", None, NONE, Does::Creates),
        ("Once", Some("Once"), NONE, Does::Creates),
    ];
    for (strategy, last, requests, expected) in rows {
        let mut vm = with_requests(vm(strategy), serde_json::from_str(requests).unwrap());
        vm.status_mut().run_strategy = last.map(RunStrategy::from);
        assert_eq!(does(&world(vm, None)), expected, "{strategy}, {last:?}, {requests}");
    }
}

#[test]
fn nothing_is_created_or_deleted_while_an_earlier_write_is_not_visible() {
    let w = World { behind: Some(Duration::from_secs(3)), ..world(vm("Always"), None) };
    assert_eq!(decide(&w), [Action::RequeueAfter(Duration::from_secs(3))]);
}

#[test]
fn nothing_starts_while_the_cluster_is_being_emptied() {
    for strategy in ["Always", "Once", "RerunOnFailure", "Manual", "Halted"] {
        let vm = with_requests(vm(strategy), json!([{"action": "Start"}]));
        let w = World { hold_starts: true, ..world(vm, None) };
        assert_eq!(does(&w), Does::Nothing, "{strategy}");
    }
}

#[test]
fn a_start_request_to_a_halted_machine_switches_it_on_and_stays_until_it_runs() {
    let w = world(with_requests(vm("Halted"), json!([{"action": "Start"}])), None);
    let actions = decide(&w);
    let [Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. }] = actions.as_slice() else {
        panic!("{actions:#?}")
    };
    let on = patched(&*w.vm, patch);
    assert_eq!(on.spec.run_strategy, Some(RunStrategy::Always));
    assert_eq!(does(&world(on, None)), Does::Creates);

    let mut with_running = vm("Halted");
    with_running.spec.run_strategy = None;
    with_running.spec.running = Some(false);
    let w = world(with_requests(with_running, json!([{"action": "Start"}])), None);
    let actions = decide(&w);
    let [Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. }] = actions.as_slice() else {
        panic!("{actions:#?}")
    };
    assert_eq!(patched(&*w.vm, patch).spec.running, Some(true));
}

#[test]
fn an_unusable_strategy_is_refused_with_the_remedy_and_told_once() {
    let mut both = vm("Always");
    both.spec.running = Some(true);
    for vm in [both, vm("Sometimes")] {
        let w = world(vm, None);
        let actions = decide(&w);
        assert!(actions.iter().any(|a| matches!(a, Action::Note(note) if note.warning)), "{actions:#?}");
        let after = status_after(&w);
        let failure = after.condition(conditions::FAILURE).unwrap();
        assert_eq!(failure.reason(), reasons::FAILED_CREATE);
        assert!(failure.message().contains("spec.run"), "{}", failure.message());
        assert_eq!(decide(&world(after, None)), []);
    }
}

#[test]
fn a_failed_instance_is_rerun_although_its_strategy_starts_only_on_request() {
    let w = world(vm("RerunOnFailure"), Some(vmi("Failed")));
    let actions = decide(&w);
    let position = |matches: fn(&Action) -> bool| actions.iter().position(matches).unwrap();
    let status = position(|a| matches!(a, Action::ReplaceStatus(_)));
    let delete = position(|a| matches!(a, Action::Delete { kind: Kind::Vmi, .. }));
    assert!(status < delete, "the request must be on record before the instance goes");
    let mut after = status_after(&w);
    assert_eq!(after.status.as_ref().unwrap().state_change_requests.len(), 1);
    after.status_mut().start_failure = None;
    assert_eq!(does(&world(after.clone(), None)), Does::Creates);
    let again = status_after(&world(after, Some(vmi("Failed"))));
    assert_eq!(again.status.unwrap().state_change_requests.len(), 1, "asked for once");
    let succeeded = status_after(&world(vm("RerunOnFailure"), Some(vmi("Succeeded"))));
    assert!(succeeded.status.unwrap().state_change_requests.is_empty());
}

#[test]
fn requests_are_dropped_when_they_are_done() {
    let left = |requests: Value, vmi: Option<VirtualMachineInstance>| -> usize {
        let w = world(with_requests(vm("Manual"), requests), vmi);
        status_after(&w).status.unwrap().state_change_requests.len()
    };
    let stop = || json!([{"action": "Stop", "uid": "vmi-uid"}]);
    assert_eq!(left(stop(), Some(vmi("Running"))), 1, "the instance is still there");
    assert_eq!(left(stop(), Some(deleting(vmi("Running")))), 1);
    assert_eq!(left(stop(), None), 0);
    assert_eq!(left(json!([{"action": "Stop", "uid": "an earlier one"}]), Some(vmi("Running"))), 0);
    assert_eq!(left(json!([{"action": "Stop"}]), Some(vmi("Running"))), 0, "a stop that names nobody");
    assert_eq!(left(json!([{"action": "Start"}]), Some(vmi("Pending"))), 0);
    assert_eq!(left(json!([{"action": "Start"}]), Some(deleting(vmi("Running")))), 1);
    assert_eq!(left(json!([{"action": "Start"}]), Some(vmi("Failed"))), 1);
    let restart = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    assert_eq!(left(restart, None), 1, "the start of a restart");
}

fn failures(vm: &VirtualMachine) -> Option<(i64, i64)> {
    let failure = vm.status.as_ref()?.start_failure.as_ref()?;
    let pause = failure.retry_after_timestamp.as_ref()?.0.duration_since(time(100).0).as_secs();
    Some((failure.consecutive_fail_count?, pause))
}

#[test]
fn failed_starts_are_counted_once_each_and_paused_after() {
    let first = status_after(&world(vm("Always"), Some(vmi("Failed"))));
    let (count, pause) = failures(&first).unwrap();
    assert_eq!(count, 1);
    assert!((10..=15).contains(&pause), "{pause}");
    assert_eq!(
        failures(&status_after(&world(first.clone(), Some(vmi("Failed"))))),
        Some((1, pause)),
        "the same instance"
    );

    let w = world(first.clone(), None);
    assert_eq!(does(&w), Does::Nothing);
    assert!(decide(&w).contains(&Action::RequeueAfter(Duration::from_secs(u64::try_from(pause).unwrap()))));
    let later = World { now: time(100 + pause), ..world(first.clone(), None) };
    assert_eq!(does(&later), Does::Creates);

    let mut second = vmi("Failed");
    second.metadata.uid = Some("another".into());
    let twice = status_after(&world(first, Some(second)));
    let (count, pause) = failures(&twice).unwrap();
    assert_eq!(count, 2);
    assert!((40..=60).contains(&pause), "{pause}");
    assert_eq!(failures(&status_after(&world(twice, Some(having_run(vmi("Failed")))))), None, "it had run");
}

#[test]
fn pauses_grow_with_the_square_spread_by_uid_and_are_capped() {
    use super::super::backoff::pause_seconds;
    for count in 1..20 {
        for uid in ["a", "b", "0b1e7a3c-1111-4222-8333-444455556666"] {
            let pause = pause_seconds(count, uid);
            let (low, high) = ((10 * count * count).min(300), (15 * count * count).min(300));
            assert!((low..=high).contains(&pause), "{count} {uid}: {pause}");
            assert_eq!(pause, pause_seconds(count, uid));
        }
    }
    assert_eq!(pause_seconds(i64::MAX, "x"), 300);
    let distinct: std::collections::HashSet<_> = (0..50).map(|n| pause_seconds(3, &format!("uid-{n}"))).collect();
    assert!(distinct.len() > 20, "machines that failed together do not come back together");
}

#[test]
fn strategies_that_do_not_restart_by_themselves_neither_count_nor_wait() {
    let mut failing = vm("Manual");
    failing.status_mut().start_failure =
        status_after(&world(vm("Always"), Some(vmi("Failed")))).status.unwrap().start_failure;
    let w = world(with_requests(failing.clone(), json!([{"action": "Start"}])), None);
    assert_eq!(does(&w), Does::Creates);
    assert_eq!(failures(&status_after(&world(failing, None))), None);
}

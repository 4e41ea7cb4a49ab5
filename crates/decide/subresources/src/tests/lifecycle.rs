use json_patch::Patch;
use serde_json::{Value, json};

use super::{in_phase, vm, vmi};
use crate::options::{RestartOptions, StartOptions, StopOptions};
use crate::{Plan, Refusal, Step, restart, start, stop};

fn with_strategy(strategy: &str) -> api::v1::VirtualMachine {
    vm(json!({ "spec": { "runStrategy": strategy }, "status": { "created": true } }))
}

fn patch(operations: Value) -> Patch {
    serde_json::from_value(operations).expect("a test's patch decodes")
}

fn start_now() -> StartOptions {
    StartOptions::default()
}

fn one(step: Step) -> Result<Plan, Refusal> {
    Ok(Plan { steps: vec![step], undo: None })
}

fn requests(requests: Value) -> Step {
    Step::VmStatus(patch(json!([
        { "op": "test", "path": "/status/stateChangeRequests", "value": null },
        { "op": "add", "path": "/status/stateChangeRequests", "value": requests },
    ])))
}

fn strategy_patch(from: &str, to: &str) -> Step {
    Step::Vm(patch(json!([
        { "op": "test", "path": "/spec/runStrategy", "value": from },
        { "op": "replace", "path": "/spec/runStrategy", "value": to },
    ])))
}

fn code(result: Result<Plan, Refusal>) -> u16 {
    result.expect_err("the request is refused").code()
}

#[test]
fn starting_a_halted_machine_changes_its_run_strategy() {
    assert_eq!(start(&with_strategy("Halted"), None, &start_now()), one(strategy_patch("Halted", "Always")));
}

#[test]
fn starting_keeps_the_old_form_of_the_run_strategy() {
    let patch = json!([
        { "op": "test", "path": "/spec/running", "value": false },
        { "op": "replace", "path": "/spec/running", "value": true },
    ]);
    assert_eq!(
        start(&vm(json!({ "spec": { "running": false } })), None, &start_now()),
        one(Step::Vm(self::patch(patch)))
    );
}

#[test]
fn starting_a_machine_without_a_strategy_adds_one() {
    let patch = json!([
        { "op": "test", "path": "/spec/runStrategy", "value": null },
        { "op": "add", "path": "/spec/runStrategy", "value": "Always" },
    ]);
    assert_eq!(start(&vm(json!({})), None, &start_now()), one(Step::Vm(self::patch(patch))));
}

#[test]
fn starting_a_halted_machine_paused_is_a_request() {
    let options = StartOptions { paused: true, ..StartOptions::default() };
    let expected = requests(json!([{ "action": "Start", "data": { "paused": "true" } }]));
    assert_eq!(start(&with_strategy("Halted"), None, &options), one(expected));
}

#[test]
fn starting_where_requests_decide_leaves_a_request() {
    for strategy in ["Manual", "RerunOnFailure"] {
        let expected = requests(json!([{ "action": "Start" }]));
        assert_eq!(start(&with_strategy(strategy), None, &start_now()), one(expected), "{strategy}");
    }
}

#[test]
fn starting_over_an_ended_instance_removes_it_first() {
    for (strategy, phase) in [("Manual", "Succeeded"), ("Manual", "Failed"), ("RerunOnFailure", "Succeeded")] {
        let expected = requests(json!([{ "action": "Stop", "uid": "vmi-uid" }, { "action": "Start" }]));
        let decided = start(&with_strategy(strategy), Some(&in_phase(phase)), &start_now());
        assert_eq!(decided, one(expected), "{strategy} {phase}");
    }
}

#[test]
fn an_instance_of_unknown_or_no_phase_does_not_stop_a_start() {
    for vmi in [in_phase("Unknown"), in_phase(""), vmi(json!({}))] {
        let expected = requests(json!([{ "action": "Start" }]));
        assert_eq!(start(&with_strategy("Manual"), Some(&vmi), &start_now()), one(expected));
    }
}

#[test]
fn starts_that_make_no_sense_are_conflicts() {
    let up = in_phase("Running");
    assert_eq!(code(start(&with_strategy("Halted"), Some(&up), &start_now())), 409);
    assert_eq!(code(start(&with_strategy("Halted"), Some(&in_phase("Scheduling")), &start_now())), 409);
    assert_eq!(code(start(&with_strategy("RerunOnFailure"), Some(&in_phase("Failed")), &start_now())), 409);
    for strategy in ["Always", "Once", "WaitAsReceiver"] {
        let refusal = start(&with_strategy(strategy), None, &start_now()).expect_err("refused");
        assert_eq!(refusal.code(), 409);
        let words = format!(
            "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"vm\": \
             {strategy} does not support manual start requests"
        );
        assert_eq!(refusal.message(), words);
    }
    let recovering = json!({
        "spec": { "runStrategy": "Halted" },
        "status": { "conditions": [{ "type": "ManualRecoveryRequired", "status": "True" }] },
    });
    assert_eq!(code(start(&vm(recovering), None, &start_now())), 409);
}

#[test]
fn both_forms_of_the_strategy_together_are_an_error() {
    let both = vm(json!({ "spec": { "running": true, "runStrategy": "Always" } }));
    assert_eq!(code(start(&both, None, &start_now())), 500);
}

#[test]
fn the_first_request_of_a_machine_without_status_adds_the_status() {
    let patch = json!([
        { "op": "add", "path": "/status", "value": { "stateChangeRequests": [{ "action": "Start" }] } },
    ]);
    let fresh = vm(json!({ "spec": { "runStrategy": "Manual" } }));
    assert_eq!(start(&fresh, None, &start_now()), one(Step::VmStatus(self::patch(patch))));
}

#[test]
fn a_request_ends_the_crash_loop_backoff() {
    let failing =
        json!({ "spec": { "runStrategy": "Manual" }, "status": { "startFailure": { "consecutiveFailCount": 3 } } });
    let patch = json!([
        { "op": "test", "path": "/status/stateChangeRequests", "value": null },
        { "op": "add", "path": "/status/stateChangeRequests", "value": [{ "action": "Start" }] },
        { "op": "test", "path": "/status/startFailure", "value": { "consecutiveFailCount": 3 } },
        { "op": "remove", "path": "/status/startFailure" },
    ]);
    assert_eq!(start(&vm(failing), None, &start_now()), one(Step::VmStatus(self::patch(patch))));
}

#[test]
fn only_a_stop_overtakes_pending_requests() {
    let pending = vm(json!({
        "spec": { "runStrategy": "Manual" },
        "status": { "stateChangeRequests": [{ "action": "Start" }] },
    }));
    assert_eq!(code(start(&pending, None, &start_now())), 500);
    assert_eq!(code(restart(&pending, Some(&in_phase("Running")), &RestartOptions::default())), 500);
    let patch = json!([
        { "op": "test", "path": "/status/stateChangeRequests", "value": [{ "action": "Start" }] },
        { "op": "replace", "path": "/status/stateChangeRequests", "value": [{ "action": "Stop", "uid": "vmi-uid" }] },
    ]);
    assert_eq!(
        stop(&pending, Some(&in_phase("Running")), &StopOptions::default()),
        one(Step::VmStatus(self::patch(patch)))
    );
}

#[test]
fn asking_for_the_same_stop_again_only_checks_that_it_is_pending() {
    let pending = vm(json!({
        "spec": { "runStrategy": "Manual" },
        "status": { "stateChangeRequests": [{ "action": "Stop", "uid": "vmi-uid" }] },
    }));
    let unchanged = json!([
        { "op": "test", "path": "/status/stateChangeRequests", "value": [{ "action": "Stop", "uid": "vmi-uid" }] },
    ]);
    let decided = stop(&pending, Some(&in_phase("Running")), &StopOptions::default());
    assert_eq!(decided, one(Step::VmStatus(patch(unchanged))));
}

#[test]
fn stopping_a_machine_that_should_run_changes_its_run_strategy() {
    for strategy in ["Always", "Once"] {
        let decided = stop(&with_strategy(strategy), None, &StopOptions::default());
        assert_eq!(decided, one(strategy_patch(strategy, "Halted")), "{strategy}");
    }
}

#[test]
fn stopping_where_requests_decide_leaves_a_request_for_that_instance() {
    for strategy in ["Manual", "RerunOnFailure"] {
        let decided = stop(&with_strategy(strategy), Some(&in_phase("Running")), &StopOptions::default());
        assert_eq!(decided, one(requests(json!([{ "action": "Stop", "uid": "vmi-uid" }]))), "{strategy}");
    }
}

#[test]
fn stopping_what_does_not_run_is_a_conflict() {
    for strategy in ["Halted", "Manual", "RerunOnFailure"] {
        assert_eq!(code(stop(&with_strategy(strategy), None, &StopOptions::default())), 409, "{strategy}");
        let ended = in_phase("Succeeded");
        assert_eq!(code(stop(&with_strategy(strategy), Some(&ended), &StopOptions::default())), 409, "{strategy}");
    }
    assert_eq!(code(stop(&with_strategy("WaitAsReceiver"), None, &StopOptions::default())), 409);
}

#[test]
fn a_halted_machine_is_stopped_again_only_to_hurry_it() {
    let halted = with_strategy("Halted");
    let running = vmi(json!({ "spec": { "terminationGracePeriodSeconds": 30 }, "status": { "phase": "Running" } }));
    let within = |seconds| StopOptions { grace_period: Some(seconds), ..StopOptions::default() };
    assert_eq!(code(stop(&halted, Some(&running), &StopOptions::default())), 409);
    assert_eq!(code(stop(&halted, Some(&running), &within(30))), 409);
    let hurry = Step::Vmi(patch(json!([
        { "op": "test", "path": "/spec/terminationGracePeriodSeconds", "value": 30 },
        { "op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": 5 },
    ])));
    let request = requests(json!([{ "action": "Stop", "uid": "vmi-uid" }]));
    let expected = Plan { steps: vec![hurry, request], undo: None };
    assert_eq!(stop(&halted, Some(&running), &within(5)), Ok(expected));
}

#[test]
fn a_grace_period_is_added_where_there_was_none() {
    let within = StopOptions { grace_period: Some(5), ..StopOptions::default() };
    let decided = stop(&with_strategy("Always"), Some(&in_phase("Running")), &within).expect("stops");
    let added = json!([
        { "op": "test", "path": "/spec/terminationGracePeriodSeconds", "value": null },
        { "op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 5 },
    ]);
    assert_eq!(decided.steps, vec![Step::Vmi(patch(added)), strategy_patch("Always", "Halted")]);
}

#[test]
fn an_ended_instance_keeps_its_grace_period() {
    let within = StopOptions { grace_period: Some(5), ..StopOptions::default() };
    let decided = stop(&with_strategy("Always"), Some(&in_phase("Succeeded")), &within);
    assert_eq!(decided, one(strategy_patch("Always", "Halted")));
}

#[test]
fn a_negative_grace_period_is_a_bad_request() {
    let options = StopOptions { grace_period: Some(-1), ..StopOptions::default() };
    assert_eq!(code(stop(&with_strategy("Always"), None, &options)), 400);
}

#[test]
fn restarting_asks_for_a_stop_and_a_start() {
    for strategy in ["Always", "Manual", "RerunOnFailure"] {
        let decided = restart(&with_strategy(strategy), Some(&in_phase("Running")), &RestartOptions::default());
        let expected = requests(json!([{ "action": "Stop", "uid": "vmi-uid" }, { "action": "Start" }]));
        assert_eq!(decided, one(expected), "{strategy}");
    }
}

#[test]
fn a_forced_restart_shortens_the_grace_period_and_can_take_it_back() {
    let forced = RestartOptions { grace_period_seconds: Some(0), ..RestartOptions::default() };
    let running = vmi(json!({ "spec": { "terminationGracePeriodSeconds": 30 }, "status": { "phase": "Running" } }));
    let decided = restart(&with_strategy("Always"), Some(&running), &forced).expect("restarts");
    let grace = |from: i64, to: i64| {
        Step::Vmi(patch(json!([
            { "op": "test", "path": "/spec/terminationGracePeriodSeconds", "value": from },
            { "op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": to },
        ])))
    };
    assert_eq!(decided.steps[0], grace(30, 1));
    assert_eq!(decided.undo, Some(grace(1, 30)));

    let without = restart(&with_strategy("Always"), Some(&in_phase("Running")), &forced).expect("restarts");
    let removed = json!([
        { "op": "test", "path": "/spec/terminationGracePeriodSeconds", "value": 1 },
        { "op": "remove", "path": "/spec/terminationGracePeriodSeconds" },
    ]);
    assert_eq!(without.undo, Some(Step::Vmi(patch(removed))));
}

#[test]
fn restarts_that_make_no_sense_are_refused() {
    let running = in_phase("Running");
    let within = |seconds| RestartOptions { grace_period_seconds: Some(seconds), ..RestartOptions::default() };
    assert_eq!(code(restart(&with_strategy("Always"), Some(&running), &within(1))), 400);
    assert_eq!(code(restart(&with_strategy("Always"), Some(&running), &within(-1))), 400);
    assert_eq!(code(restart(&with_strategy("Halted"), Some(&running), &RestartOptions::default())), 409);
    assert_eq!(code(restart(&with_strategy("Once"), Some(&running), &RestartOptions::default())), 409);
    assert_eq!(code(restart(&with_strategy("Always"), None, &RestartOptions::default())), 409);
    let migrating = vm(json!({
        "spec": { "runStrategy": "Always" },
        "status": { "conditions": [{ "type": "VolumesChange", "status": "True" }] },
    }));
    assert_eq!(code(restart(&migrating, Some(&running), &RestartOptions::default())), 409);
}

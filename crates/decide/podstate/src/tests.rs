//! The table of decisions, and statuses seen through them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The present of all tests.
const NOW: i64 = 1000;

fn pod(change: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "ferrovirt.io/host", "command": ["x"]}]},
    });
    json_merge(&mut pod, &change);
    serde_json::from_value(pod).unwrap()
}

fn json_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| json_merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, from) => *into = from.clone(),
    }
}

fn deleting() -> Pod {
    pod(json!({"metadata": {"deletionTimestamp": "1970-01-01T00:16:30Z", "deletionGracePeriodSeconds": 10}}))
}

fn disk(shim: ShimState) -> Observed {
    Observed {
        accepted_at: at(900),
        address: Some(Ipv4Addr::new(10, 244, 1, 5)),
        shim,
        containers: BTreeMap::new(),
        stopping_since: None,
        released: false,
    }
}

fn with(mut disk: Observed, name: &str, stage: Stage) -> Observed {
    disk.containers.insert(name.to_owned(), ContainerRecord { restarts: 0, stage, previous: None });
    disk
}

fn running() -> Stage {
    let process = Process { pid: 7, start_time: 7, boot: 7 };
    Stage::Running { process, started_at: at(901) }
}

fn exited(code: i32) -> Stage {
    let reason = if code == 0 { ExitReason::Completed } else { ExitReason::Error };
    let message = if code == 0 { String::new() } else { "last words".to_owned() };
    Stage::Exited(Exit { code, signal: None, reason, message, started_at: Some(at(901)), finished_at: at(950) })
}

fn look<'a>(pod: Presence<'a>, disk: Option<&'a Observed>, blocked: Option<&'a Obstacle>) -> PodView<'a> {
    PodView { pod, disk, blocked, node_address: Ipv4Addr::new(10, 201, 0, 11), now: at(NOW) }
}

fn actions(pod: &Pod, disk: Option<&Observed>) -> Vec<PodAction> {
    decide(&look(Presence::Known(pod), disk, None))
}

/// The names of the actions, statuses by their phase.
fn brief(actions: &[PodAction]) -> Vec<String> {
    let name = |a: &PodAction| match a {
        PodAction::ReportStatus(status) => format!("report {}", status.phase.as_deref().unwrap_or("?")),
        PodAction::Stop { .. } => "stop".to_owned(),
        PodAction::Kill { .. } => "kill".to_owned(),
        PodAction::Wake(after) => format!("wake {}s", after.as_secs()),
        other => format!("{other:?}").to_lowercase(),
    };
    actions.iter().map(name).collect()
}

fn reported(actions: &[PodAction]) -> PodStatus {
    let status = actions.iter().find_map(|a| match a {
        PodAction::ReportStatus(status) => Some((**status).clone()),
        _ => None,
    });
    status.expect("a status is reported")
}

#[test]
fn a_pod_goes_its_way() {
    use ShimState::{Alive, Gone, NotStarted};
    let stopping = |since: i64| Observed { stopping_since: Some(at(since)), ..with(disk(Alive), "c", running()) };
    let released = |d: Observed| Observed { released: true, ..d };
    let finished = pod(json!({"status": {"phase": "Failed"}}));
    let always = pod(json!({"spec": {"restartPolicy": "Always"}}));
    let cases: Vec<(&str, Pod, Option<Observed>, Vec<&str>)> = vec![
        ("a new Pod is started", pod(json!({})), None, vec!["start"]),
        ("a start that was interrupted goes on", pod(json!({})), Some(disk(NotStarted)), vec!["start"]),
        ("a shim without containers yet is pending", pod(json!({})), Some(disk(Alive)), vec!["report Pending"]),
        ("a container that runs", pod(json!({})), Some(with(disk(Alive), "c", running())), vec!["report Running"]),
        (
            "an end with success",
            pod(json!({})),
            Some(with(disk(Gone), "c", exited(0))),
            vec!["report Succeeded", "release"],
        ),
        (
            "an end with failure",
            pod(json!({})),
            Some(with(disk(Gone), "c", exited(3))),
            vec!["report Failed", "release"],
        ),
        ("released already", pod(json!({})), Some(released(with(disk(Gone), "c", exited(3)))), vec!["report Failed"]),
        (
            "a lost shim ends a Pod that never restarts",
            pod(json!({})),
            Some(with(disk(Gone), "c", running())),
            vec!["report Failed", "release"],
        ),
        (
            "a shim lost before any container as well",
            pod(json!({})),
            Some(disk(Gone)),
            vec!["report Failed", "release"],
        ),
        ("a lost shim is replaced otherwise", always.clone(), Some(with(disk(Gone), "c", running())), vec!["start"]),
        ("an end is not the end of Always", always, Some(with(disk(Alive), "c", exited(0))), vec!["report Running"]),
        ("a finished Pod is never started", finished.clone(), None, vec![]),
        ("a Pod declared finished is stopped", finished.clone(), Some(with(disk(Alive), "c", running())), vec!["stop"]),
        ("and freed", finished, Some(with(disk(Gone), "c", exited(0))), vec!["release"]),
        ("deletion stops", deleting(), Some(with(disk(Alive), "c", running())), vec!["stop"]),
        ("deletion waits for the grace period", deleting(), Some(stopping(995)), vec!["wake 5s", "report Running"]),
        ("then kills", deleting(), Some(stopping(990)), vec!["kill", "wake 1s", "report Running"]),
        ("deletion frees what ended", deleting(), Some(with(disk(Gone), "c", exited(0))), vec!["release"]),
        (
            "deletion reports the end and deletes",
            deleting(),
            Some(released(with(disk(Gone), "c", exited(0)))),
            vec!["report Succeeded", "delete"],
        ),
        ("deletion of a Pod that never started", deleting(), None, vec!["delete"]),
        ("deletion of one half prepared", deleting(), Some(disk(NotStarted)), vec!["release"]),
        ("and after that", deleting(), Some(released(disk(NotStarted))), vec!["delete"]),
    ];
    for (name, pod, disk, expected) in cases {
        assert_eq!(brief(&actions(&pod, disk.as_ref())), expected, "{name}");
    }
}

#[test]
fn what_has_no_object_is_cleared_away() {
    use ShimState::{Alive, Gone};
    let released = Observed { released: true, ..disk(Gone) };
    let stopped = Observed { stopping_since: Some(at(999)), ..disk(Alive) };
    let cases = [
        (None, vec![]),
        (Some(disk(Alive)), vec!["stop", "kill", "wake 1s"]),
        (Some(stopped), vec!["kill", "wake 1s"]),
        (Some(disk(Gone)), vec!["release"]),
        (Some(released), vec!["purge"]),
    ];
    for (disk, expected) in cases {
        assert_eq!(brief(&decide(&look(Presence::Gone, disk.as_ref(), None))), expected);
    }
}

#[test]
fn a_settled_pod_is_left_alone() {
    let disk = with(disk(ShimState::Alive), "c", running());
    let first =
        pod(json!({"status": {"conditions": [{"type": "kubevirt.io/virtual-machine-unpaused", "status": "True"}]}}));
    let status = reported(&actions(&first, Some(&disk)));
    let settled = Pod { status: Some(status), ..first };
    let later = PodView { now: at(NOW + 500), ..look(Presence::Known(&settled), Some(&disk), None) };
    assert_eq!(decide(&later), []);
}

#[test]
fn a_missing_image_is_told_as_an_error_then_as_a_pause_with_the_remedy_and_tried_again() {
    let obstacle = |reason, attempts, ago| Obstacle {
        blocked: Blocked { reason, message: "import it".to_owned() },
        attempts,
        met_at: at(NOW - ago),
        mended: false,
    };
    let first = pod(json!({}));
    let told = |pod: &Pod, obstacle: &Obstacle| decide(&look(Presence::Known(pod), None, Some(obstacle)));
    let reason = |actions: &[PodAction]| {
        let state = reported(actions).container_statuses.unwrap()[0].state.clone().unwrap();
        let waiting = state.waiting.unwrap();
        (waiting.reason.unwrap(), waiting.message.unwrap_or_default())
    };
    let once = obstacle(PULL_ERROR, 1, 0);
    assert_eq!(brief(&told(&first, &once)), ["report Pending", "wake 1s"]);
    assert_eq!(reason(&told(&first, &once)), ("ErrImagePull".to_owned(), "import it".to_owned()));
    let second = Pod { status: Some(reported(&told(&first, &once))), ..first.clone() };
    assert_eq!(brief(&told(&second, &once)), ["wake 1s"], "told already");
    assert_eq!(reason(&told(&second, &obstacle(PULL_ERROR, 1, 5))).0, "ImagePullBackOff");
    assert_eq!(reason(&told(&first, &obstacle(PULL_ERROR, 2, 0))).0, "ErrImagePull", "after the next attempt");
    assert_eq!(reason(&told(&first, &obstacle(CONFIG_ERROR, 3, 0))).0, CONFIG_ERROR);
    assert_eq!(brief(&told(&first, &obstacle(CONFIG_ERROR, 3, 5))), ["start"]);
    for (attempts, pause) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (60, 300)] {
        let tried = |ago| brief(&told(&second, &obstacle(PULL_ERROR, attempts, ago))).contains(&"start".to_owned());
        assert_eq!((tried(pause - 1), tried(pause)), (false, true), "after {attempts} attempts");
    }
    assert_eq!(brief(&told(&second, &Obstacle { mended: true, ..once })), ["start"], "it was imported");
}

#[test]
fn a_pod_that_waits_for_a_volume_is_being_created_and_looks_often() {
    let obstacle = |reason, attempts, millis| Obstacle {
        blocked: Blocked { reason, message: "claim shop/disk is in use".to_owned() },
        attempts,
        met_at: at(NOW) - SignedDuration::from_millis(millis),
        mended: false,
    };
    for reason in [FAILED_MOUNT, FAILED_ATTACH] {
        let first = pod(json!({}));
        let told = decide(&look(Presence::Known(&first), None, Some(&obstacle(reason, 1, 0))));
        let waiting = reported(&told).container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("ContainerCreating"));
        assert_eq!(waiting.message.as_deref(), Some("claim shop/disk is in use"));
        assert_eq!(obstacle(reason, 1, 0).event(), reason);
        for (attempts, pause) in [(1, 125), (2, 250), (3, 500), (4, 1000), (60, 1000)] {
            let due = |millis| obstacle(reason, attempts, millis).left(at(NOW)).is_none();
            assert_eq!((due(pause - 1), due(pause)), (false, true), "after {attempts} attempts");
        }
    }
    assert_eq!(obstacle(CONFIG_ERROR, 1, 0).event(), "Failed");
}

#[test]
fn what_the_runner_lacks_fails_the_pod_and_says_so() {
    let probing = pod(json!({"spec": {"containers": [{"name": "c", "livenessProbe": {"periodSeconds": 1}}]}}));
    let status = reported(&actions(&probing, None));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("UnsupportedByRunner"));
    let message = status.message.clone().unwrap();
    assert!(message.contains("spec.containers[0].livenessProbe: probes are not supported"), "{message}");
    let settled = Pod { status: Some(status), ..probing };
    assert_eq!(actions(&settled, None), []);
}

#[test]
fn a_running_pod_is_ready_when_its_gates_are_open() {
    let disk = with(disk(ShimState::Alive), "c", running());
    let gate = "kubevirt.io/virtual-machine-unpaused";
    let ready = |gates: Value| {
        let pod = pod(json!({"spec": {"readinessGates": [{"conditionType": gate}]}, "status": {"conditions": gates}}));
        let status = reported(&actions(&pod, Some(&disk)));
        let conditions = status.conditions.unwrap();
        let find = |type_: &str| conditions.iter().find(|c| c.type_ == type_).unwrap().clone();
        assert_eq!(find("ContainersReady").status, "True");
        assert_eq!(conditions.iter().filter(|c| c.type_ == gate).count(), gates.as_array().unwrap().len());
        let ready = find("Ready");
        (ready.status, ready.reason.unwrap_or_default())
    };
    assert_eq!(ready(json!([])), ("False".to_owned(), "ReadinessGatesNotReady".to_owned()));
    assert_eq!(ready(json!([{"type": gate, "status": "False"}])).0, "False");
    assert_eq!(ready(json!([{"type": gate, "status": "True"}])).0, "True");
}

#[test]
fn the_status_tells_where_how_and_how_it_ended() {
    let running = reported(&actions(&pod(json!({})), Some(&with(disk(ShimState::Alive), "c", running()))));
    assert_eq!(running.pod_ip.as_deref(), Some("10.244.1.5"));
    assert_eq!(running.host_ip.as_deref(), Some("10.201.0.11"));
    assert_eq!(running.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(running.start_time.as_ref().unwrap().0, at(900));
    let container = &running.container_statuses.as_ref().unwrap()[0];
    assert!(container.ready);
    assert_eq!(container.state.as_ref().unwrap().running.as_ref().unwrap().started_at.as_ref().unwrap().0, at(901));

    let before = Pod { status: Some(running), ..pod(json!({})) };
    let gone = Observed { address: None, ..with(disk(ShimState::Gone), "c", exited(3)) };
    let ended = reported(&actions(&before, Some(&gone)));
    assert_eq!(ended.pod_ip.as_deref(), Some("10.244.1.5"), "the address stays known after it is given back");
    let container = &ended.container_statuses.as_ref().unwrap()[0];
    let terminated = container.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((terminated.exit_code, terminated.reason.as_deref()), (3, Some("Error")));
    assert_eq!(terminated.message.as_deref(), Some("last words"));
    let ready = ended.conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodFailed")));
}

#[test]
fn init_containers_come_first_and_a_failed_one_is_the_end() {
    let pod = pod(json!({"spec": {"initContainers": [{"name": "i", "image": "ferrovirt.io/host", "command": ["x"]}]}}));
    let first = reported(&actions(&pod, Some(&with(disk(ShimState::Alive), "i", running()))));
    assert_eq!(first.phase.as_deref(), Some("Pending"));
    let waiting = first.container_statuses.as_ref().unwrap()[0].state.as_ref().unwrap().waiting.clone().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("PodInitializing"));
    let initialized = first.conditions.unwrap().into_iter().find(|c| c.type_ == "Initialized").unwrap();
    assert_eq!(initialized.status, "False");

    let failed = with(disk(ShimState::Gone), "i", exited(1));
    assert_eq!(brief(&actions(&pod, Some(&failed))), ["report Failed", "release"]);
    let both = with(with(disk(ShimState::Alive), "i", exited(0)), "c", running());
    assert_eq!(brief(&actions(&pod, Some(&both))), ["report Running"]);
}

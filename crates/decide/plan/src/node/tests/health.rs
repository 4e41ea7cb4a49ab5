use std::sync::Arc;
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use api::{annotations, labels, reasons};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::super::{Action, Agents, Live, Own, World, decide, judge};
use super::{arc, node, schedulable, time};
use crate::effect::Patch;
use crate::object::Kind;

const NOW: i64 = 1_000;
const AGAIN: Action = Action::RequeueAfter(Duration::from_secs(60));

fn heard_of(seconds_ago: i64) -> String {
    time(NOW - seconds_ago).0.to_string()
}

fn silent() -> Node {
    node("n1", schedulable(), Some(&heard_of(301)))
}

fn vmi(name: &str, phase: &str) -> VirtualMachineInstance {
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}"), "resourceVersion": "1",
                     "labels": {labels::NODE_NAME: "n1"}},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase, "nodeName": "n1"},
    });
    serde_json::from_value(object).unwrap()
}

/// A launcher Pod of `vm`, with its containers ended or not.
fn pod(phase: &str, containers_ended: &[bool]) -> Pod {
    let state = |ended: &bool| if *ended { json!({"terminated": {"exitCode": 0}}) } else { json!({"running": {}}) };
    let statuses: Vec<Value> = containers_ended
        .iter()
        .map(|ended| {
            json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state(ended)})
        })
        .collect();
    let object = json!({
        "metadata": {"name": "virt-launcher-vm-x", "namespace": "ns", "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "uid-of-vm",
             "controller": true}]},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase, "containerStatuses": statuses},
    });
    serde_json::from_value(object).unwrap()
}

fn world(node: Option<Node>, vmis: Vec<VirtualMachineInstance>) -> World {
    World { name: "n1".into(), node: node.map(Arc::new), vmis: arc(vmis), now: time(NOW) }
}

fn live(node: Option<Node>, vmis: Vec<VirtualMachineInstance>, pods: Vec<Pod>) -> Live {
    Live { node, vmis, pods, agents: Agents::default() }
}

fn judged(live: &Live) -> Vec<Action> {
    judge(&world(Some(silent()), vec![vmi("vm", "Running")]), live)
}

/// The names of the instances that are failed.
fn failed(actions: &[Action]) -> Vec<&str> {
    fn name(action: &Action) -> Option<&str> {
        if let Action::Patch { kind: Kind::Vmi, name, .. } = action { Some(name) } else { None }
    }
    actions.iter().filter_map(name).collect()
}

#[test]
fn a_node_is_silent_if_it_is_gone_or_was_not_heard_of_for_five_minutes() {
    let running = || vec![vmi("vm", "Running")];
    let ended = || vec![vmi("vm", "Failed")];
    let with = |heartbeat: &str| Some(node("n1", schedulable(), Some(heartbeat)));
    let marked = || Some(node("n1", json!({labels::SCHEDULABLE: "false"}), Some(&heard_of(301))));
    let look = || vec![Action::Own(Own::LookLive), AGAIN];
    let rows = [
        ("heard of just now", with(&heard_of(0)), running(), vec![AGAIN]),
        ("heard of five minutes ago", with(&heard_of(300)), running(), vec![AGAIN]),
        ("its clock is ahead of ours", with(&heard_of(-120)), running(), vec![AGAIN]),
        ("never heard of", Some(node("n1", schedulable(), None)), running(), vec![AGAIN]),
        ("silent", with(&heard_of(301)), running(), look()),
        ("silent, without instances, still schedulable", with(&heard_of(301)), vec![], look()),
        ("silent, without instances, marked", marked(), vec![], vec![AGAIN]),
        ("silent, marked, with an instance that has ended", marked(), ended(), vec![AGAIN]),
        ("gone, with an instance", None, running(), look()),
        ("gone, with an instance that has ended", None, ended(), vec![AGAIN]),
        ("gone, and nothing was there", None, vec![], vec![]),
    ];
    for (name, node, vmis, wanted) in rows {
        assert_eq!(decide(&world(node, vmis)), wanted, "{name}");
    }
}

#[test]
fn an_unreadable_heartbeat_is_told_and_nothing_is_done() {
    let odd = || node("n1", schedulable(), Some("yesterday"));
    let actions = decide(&world(Some(odd()), vec![vmi("vm", "Running")]));
    let [Action::Own(Own::Warn(message))] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(message.contains("kubevirt.io/heartbeat") && message.contains("yesterday"), "{message}");
    let actions = judged(&live(Some(odd()), vec![vmi("vm", "Running")], vec![]));
    assert!(matches!(actions.as_slice(), [Action::Own(Own::Warn(_))]), "{actions:?}");
}

#[test]
fn a_node_that_answers_after_all_is_left_alone() {
    let answers = node("n1", schedulable(), Some(&heard_of(2)));
    assert_eq!(judged(&live(Some(answers), vec![vmi("vm", "Running")], vec![])), []);
}

#[test]
fn a_silent_node_takes_no_more_guests_and_says_so_once() {
    let actions = judged(&live(Some(silent()), vec![], vec![]));
    let [Action::Patch { kind: Kind::Node, patch: Patch::Strategic(patch), .. }, Action::Note(note)] =
        actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    // The version guards: a heartbeat that came meanwhile makes the patch fail.
    let wanted =
        json!({"metadata": {"uid": "uid-of-n1", "resourceVersion": "7", "labels": {labels::SCHEDULABLE: "false"}}});
    assert_eq!(*patch, wanted);
    assert_eq!((note.warning, note.reason.as_str()), (false, reasons::NODE_UNRESPONSIVE));
    let marked = node("n1", json!({labels::SCHEDULABLE: "false"}), Some(&heard_of(301)));
    assert_eq!(judged(&live(Some(marked), vec![], vec![])), []);
}

#[test]
fn an_instance_is_given_up_only_if_no_pod_of_its_own_is_alive_on_the_node() {
    let elsewhere = || {
        let mut pod = pod("Running", &[false]);
        pod.spec.as_mut().unwrap().node_name = Some("n2".into());
        pod
    };
    let namesakes = || {
        let mut pod = pod("Running", &[false]);
        pod.metadata.owner_references.as_mut().unwrap()[0].uid = "another".into();
        pod
    };
    let rows: [(&str, Vec<Pod>, bool); 9] = [
        ("no Pod", vec![], true),
        ("a running Pod", vec![pod("Running", &[false])], false),
        ("a Pod the kubelet has said nothing about", vec![pod("Pending", &[])], false),
        ("one of two containers ended", vec![pod("Running", &[true, false])], false),
        ("all containers ended", vec![pod("Running", &[true, true])], true),
        ("a failed Pod", vec![pod("Failed", &[])], true),
        ("a succeeded Pod", vec![pod("Succeeded", &[])], true),
        ("a Pod on another node", vec![elsewhere()], true),
        ("a Pod of an earlier instance of the name", vec![namesakes()], true),
    ];
    for (name, pods, gives_up) in rows {
        for node in [Some(silent()), None] {
            let actions = judged(&live(node, vec![vmi("vm", "Running")], pods.clone()));
            assert_eq!(!failed(&actions).is_empty(), gives_up, "{name}: {actions:?}");
        }
    }
}

#[test]
fn a_guest_that_was_leaving_a_lost_node_is_given_up_only_with_its_target() {
    for (phase, stays) in [("Running", true), ("Failed", false)] {
        let mut leaving = vmi("vm", "Running");
        let state = json!({"migrationUid": "m", "targetPod": "target", "targetNode": "n2", "startTimestamp": time(50)});
        leaving.status_mut().migration_state = serde_json::from_value(state).unwrap();
        let mut target = pod(phase, &[]);
        target.metadata.name = Some("target".into());
        target.spec.as_mut().unwrap().node_name = Some("n2".into());
        let actions = judged(&live(Some(silent()), vec![leaving], vec![target]));
        assert_eq!(failed(&actions).is_empty(), stays, "target {phase}");
    }
}

#[test]
fn only_what_the_node_agent_owns_is_given_up() {
    for (phase, gives_up) in [
        ("Pending", false),
        ("Scheduling", false),
        ("Scheduled", true),
        ("Running", true),
        ("Succeeded", false),
        ("Failed", false),
    ] {
        let actions = judged(&live(None, vec![vmi("vm", phase)], vec![]));
        assert_eq!(failed(&actions).len(), usize::from(gives_up), "{phase}");
    }
}

/// The guest it waits for runs elsewhere: failing it would end an exchange that can be tried again.
#[test]
fn an_instance_that_waits_for_a_guest_is_not_given_up() {
    for (phase, gives_up) in [("Scheduled", false), ("Running", true)] {
        let mut receiver = vmi("vm", phase);
        let waits = (annotations::CREATE_MIGRATION_TARGET.to_owned(), "true".to_owned());
        receiver.metadata.annotations = Some([waits].into());
        assert_eq!(failed(&judged(&live(None, vec![receiver], vec![]))).len(), usize::from(gives_up), "{phase}");
    }
}

#[test]
fn an_instance_that_has_moved_on_is_not_given_up() {
    let mut moved = vmi("vm", "Running");
    moved.metadata.labels.as_mut().unwrap().insert(labels::NODE_NAME.into(), "n2".into());
    assert_eq!(judged(&live(None, vec![moved], vec![])), []);
}

#[test]
fn giving_up_fails_the_instance_with_a_reason_unless_it_was_moved_meanwhile() {
    let actions = judged(&live(None, vec![vmi("vm", "Running")], vec![]));
    let [
        Action::Patch { kind: Kind::Vmi, namespace, name, patch: Patch::Json(patch), .. },
        Action::NoteAbout(about, note),
    ] = actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    let uid = about.uid.as_deref();
    assert_eq!((namespace.as_deref(), name.as_str(), uid), (Some("ns"), "vm", Some("uid-of-vm")));
    assert_eq!((note.warning, note.reason.as_str()), (false, reasons::NODE_UNRESPONSIVE));
    let after = |vmi: VirtualMachineInstance| {
        let mut value = serde_json::to_value(vmi).unwrap();
        machinery::patch::apply(&mut value, patch).map(|()| value)
    };
    let status = after(vmi("vm", "Running")).unwrap()["status"].clone();
    assert_eq!((&status["phase"], &status["reason"]), (&json!(Phase::Failed), &json!(reasons::NODE_UNRESPONSIVE)));
    assert!(after(vmi("vm", "Succeeded")).is_err(), "the guest ended well after all");
    let mut namesake = vmi("vm", "Running");
    namesake.metadata.uid = Some("another".into());
    assert!(after(namesake).is_err());
}

#[test]
fn each_instance_is_judged_by_its_own_pod() {
    let vmis = vec![vmi("vm", "Running"), vmi("other", "Scheduled")];
    let actions = judged(&live(None, vmis, vec![pod("Running", &[false])]));
    assert_eq!(failed(&actions), ["other"]);
}

#[test]
fn orphans_are_told_of_once_no_agent_will_come() {
    let set = |desired: i32, current: i32, ready: i32| -> DaemonSet {
        let status = json!({"desiredNumberScheduled": desired, "currentNumberScheduled": current, "numberReady": ready,
                            "numberMisscheduled": 0});
        serde_json::from_value(json!({"metadata": {"name": "virt-handler"}, "status": status})).unwrap()
    };
    let agent = |node: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "h"}, "spec": {"nodeName": node, "containers": []}}))
            .unwrap()
    };
    let agents = |pods: Vec<Pod>, daemon_sets: Vec<DaemonSet>| Agents { pods, daemon_sets };
    let rows = [
        ("settled without an agent here", agents(vec![agent("n2")], vec![set(1, 1, 1)]), true),
        ("scheduled and not ready yet", agents(vec![], vec![set(2, 2, 1)]), true),
        ("one is still to come", agents(vec![], vec![set(2, 1, 1)]), false),
        ("an agent is here", agents(vec![agent("n1")], vec![set(1, 1, 1)]), false),
        ("agents are not Pods here", agents(vec![], vec![]), false),
        ("two sets disagree", agents(vec![], vec![set(1, 1, 1), set(1, 1, 1)]), false),
    ];
    let warns = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Note(note) if note.warning));
    for (name, agents, told) in rows {
        let guest = vec![pod("Running", &[false])];
        let seen = Live { agents, ..live(Some(silent()), vec![vmi("vm", "Running")], guest) };
        assert_eq!(warns(&judged(&seen)), told, "{name}");
        let empty = Live { vmis: vec![], ..seen };
        assert!(!warns(&judged(&empty)), "{name}: there is nobody to be orphaned");
    }
}

#[test]
fn a_settled_silent_node_costs_no_writes() {
    let marked = node("n1", json!({labels::SCHEDULABLE: "false"}), Some(&heard_of(4_000)));
    let seen = live(Some(marked), vec![vmi("vm", "Running")], vec![pod("Running", &[false])]);
    assert_eq!(judged(&seen), []);
}

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

fn vmi(patch: Value) -> Arc<VirtualMachineInstance> {
    let mut object = json!({"metadata": {"name": "vm", "namespace": "ns", "uid": "u1"},
        "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1",
                   "conditions": [{"type": "LiveMigratable", "status": "True"}]}});
    machinery::patch::merge(&mut object, &patch);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn migration(name: &str, phase: &str, created: i64) -> Arc<Migration> {
    let object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": time(created)},
        "spec": {"vmiName": "vm"}, "status": {"phase": phase}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn pod(phase: &str) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({"metadata": {"name": phase}, "status": {"phase": phase}})).unwrap())
}

fn guest(vmi: Arc<VirtualMachineInstance>) -> Guest {
    Guest { vmi, pods: vec![pod("Running")], migrations: vec![] }
}

fn world(guests: Vec<Guest>) -> World {
    let config = Arc::new(ClusterConfig::default());
    World { name: "n1".into(), node: None, guests, config, behind: false, now: time(100) }
}

fn made(w: &World) -> Vec<Migration> {
    decide(w).iter().filter_map(|action| action.migrates().cloned()).collect()
}

#[test]
fn a_guest_that_was_asked_to_leave_gets_one_migration() {
    let w = world(vec![guest(vmi(json!({})))]);
    let made = made(&w);
    let [one] = made.as_slice() else { panic!("{made:?}") };
    assert!(one.metadata.name.as_deref().unwrap().starts_with("kubevirt-evacuation-vm-"));
    assert_eq!(one.metadata.annotations.as_ref().unwrap()[annotations::EVACUATION_MIGRATION], "n1");
    assert_eq!(one.spec.priority, Some(MigrationPriority::SystemCritical));
    assert_eq!(one.spec.vmi_name.as_deref(), Some("vm"));
}

#[test]
fn every_condition_of_an_evacuation_counts() {
    let sending = json!({"status": {"migrationState": {"startTimestamp": time(50)}}});
    let sent = json!({"status": {"migrationState": {"startTimestamp": time(50), "endTimestamp": time(60)}}});
    let table = [
        ("asked", json!({}), true),
        ("not asked", json!({"status": {"evacuationNodeName": null}}), false),
        ("asked to leave another node", json!({"status": {"evacuationNodeName": "n2"}}), false),
        ("has left", json!({"status": {"nodeName": "n2"}}), false),
        ("is on its way", sending, false),
        ("an earlier journey is over", sent, true),
        ("has ended", json!({"status": {"phase": "Succeeded"}}), false),
        ("is being deleted", json!({"metadata": {"deletionTimestamp": time(1)}}), false),
        ("stays", json!({"spec": {"evictionStrategy": "None"}}), false),
        ("somebody else moves it", json!({"spec": {"evictionStrategy": "External"}}), false),
        ("moves if it can, and can", json!({"spec": {"evictionStrategy": "LiveMigrateIfPossible"}}), true),
        ("cannot move", json!({"status": {"conditions": [{"type": "LiveMigratable", "status": "False"}]}}), false),
        ("nobody knows whether it can", json!({"status": {"conditions": []}}), false),
        ("the cluster's strategy, which is None", json!({"spec": {"evictionStrategy": null}}), false),
    ];
    for (what, patch, expected) in table {
        assert_eq!(!made(&world(vec![guest(vmi(patch))])).is_empty(), expected, "{what}");
    }
}

#[test]
fn unfinished_migrations_and_second_pods_are_waited_for() {
    let mut one = guest(vmi(json!({})));
    one.migrations = vec![migration("a", "Pending", 1)];
    assert_eq!(made(&world(vec![one.clone()])), vec![]);
    one.migrations = vec![migration("a", "Failed", 1)];
    one.pods.push(pod("Pending"));
    assert_eq!(made(&world(vec![one.clone()])), vec![]);
    one.pods[1] = pod("Succeeded");
    assert_eq!(made(&world(vec![one.clone()])).len(), 1);
    let mut w = world(vec![one]);
    w.behind = true;
    assert_eq!(made(&w), vec![], "what we made may not be visible yet");
}

#[test]
fn the_drain_taint_asks_all_guests_at_once() {
    let node = |key: &str, effect: &str| -> Arc<Node> {
        let object = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": key, "effect": effect}]}});
        Arc::new(serde_json::from_value(object).unwrap())
    };
    for (key, effect, expected) in [
        ("kubevirt.io/drain", "NoSchedule", 1),
        ("kubevirt.io/drain", "NoExecute", 0),
        ("node.kubernetes.io/unschedulable", "NoSchedule", 0),
    ] {
        let mut w = world(vec![guest(vmi(json!({"status": {"evacuationNodeName": null}})))]);
        w.node = Some(node(key, effect));
        assert_eq!(made(&w).len(), expected, "{key}:{effect}");
    }
}

#[test]
fn the_descheduler_is_less_urgent_than_a_drain() {
    let annotated = json!({"metadata": {"annotations": {"kubevirt.io/eviction-source": "descheduler"}}});
    let made = made(&world(vec![guest(vmi(annotated))]));
    assert_eq!(made[0].spec.priority, Some(MigrationPriority::SystemMaintenance));
}

/// Canceled evacuations end at once, and so several may begin and end within one second.
#[test]
fn attempts_of_the_same_second_have_names_of_their_own() {
    let mut w = world(vec![guest(vmi(json!({})))]);
    let mut seen = std::collections::BTreeSet::new();
    for attempt in 0..6 {
        let made = made(&w);
        let [next] = made.as_slice() else { panic!("{made:?}") };
        let name = next.metadata.name.clone().unwrap();
        assert!(seen.insert(name.clone()), "{name} of attempt {attempt} exists");
        let mut canceled = Arc::unwrap_or_clone(migration(&name, "Failed", 10));
        let aborted = json!({"type": conditions::MIGRATION_ABORT_REQUESTED, "status": "True",
                             "reason": api::reasons::EVACUATION_CANCELED});
        canceled.status.get_or_insert_default().conditions = vec![serde_json::from_value(aborted).unwrap()];
        w.guests[0].migrations.push(Arc::new(canceled));
    }
}

#[test]
fn a_name_stands_for_one_attempt() {
    let name = |migrations: Vec<Arc<Migration>>| {
        let mut one = guest(vmi(json!({})));
        one.migrations = migrations;
        made(&world(vec![one]))[0].metadata.name.clone().unwrap()
    };
    let first = name(vec![]);
    assert_eq!(first, name(vec![]), "a second look meets the first");
    let second = name(vec![migration("a", "Failed", 1)]);
    assert_ne!(first, second);
    let third = name(vec![migration("b", "Failed", 2), migration("a", "Failed", 1)]);
    assert_ne!(second, third);
    assert_eq!(third, name(vec![migration("b", "Failed", 2)]), "old ones may be collected");
}

#[test]
fn an_evacuation_is_called_off_once_neither_mark_nor_taint_asks_for_it() {
    let empties = |node: &str| {
        let mut one = (*migration("m", "Pending", 1)).clone();
        one.metadata.annotations = Some([(annotations::EVACUATION_MIGRATION.to_owned(), node.to_owned())].into());
        one
    };
    let node = |taint: &str| -> Node {
        let object = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}});
        serde_json::from_value(object).unwrap()
    };
    let (drained, cordoned) = (node("kubevirt.io/drain"), node("node.kubernetes.io/unschedulable"));
    let unmarked = || vmi(json!({"status": {"evacuationNodeName": null}}));
    let elsewhere = vmi(json!({"status": {"evacuationNodeName": "n2"}}));
    let a_users = (*migration("m", "Pending", 1)).clone();
    let table = [
        ("an eviction has marked it", empties("n1"), vmi(json!({})), None, false),
        ("marked, and its node takes Pods again", empties("n1"), vmi(json!({})), Some(&cordoned), false),
        ("unmarked", empties("n1"), unmarked(), None, true),
        ("unmarked, and its node is only cordoned", empties("n1"), unmarked(), Some(&cordoned), true),
        ("unmarked, and its node has the taint", empties("n1"), unmarked(), Some(&drained), false),
        ("asked to leave another node", empties("n1"), elsewhere, None, true),
        ("a user's migration", a_users, unmarked(), None, false),
    ];
    for (what, migration, vmi, node, expected) in table {
        assert_eq!(is_called_off(&migration, &vmi, node, &ClusterConfig::default()), expected, "{what}");
    }
}

#[test]
fn only_moves_away_from_the_node_that_have_not_started_are_called_off() {
    let table = [
        (None, "n1", true),
        (Some("Pending"), "n1", true),
        (Some("Scheduling"), "n1", true),
        (Some("Scheduled"), "n1", true),
        (Some("PreparingTarget"), "n1", false),
        (Some("TargetReady"), "n1", false),
        (Some("Running"), "n1", false),
        (Some("Pending"), "n2", false),
    ];
    for (phase, node, expected) in table {
        let migration = serde_json::from_value(json!({
            "metadata": {"annotations": {annotations::EVACUATION_MIGRATION: "n1"}},
            "spec": {"vmiName": "a"}, "status": {"phase": phase},
        }));
        assert_eq!(can_be_called_off(&migration.unwrap(), node), expected, "{phase:?} {node}");
    }
    let by_hand = serde_json::from_value(json!({"metadata": {}, "spec": {"vmiName": "a"}}));
    assert!(!can_be_called_off(&by_hand.unwrap(), "n1"), "somebody else wants this one");
}

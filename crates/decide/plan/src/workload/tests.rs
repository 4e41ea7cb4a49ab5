use std::sync::Arc;
use std::time::Duration;

use api::annotations;
use api::config::ClusterConfig;
use api::v1::{KubeVirt, MigrationPriority, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::effect::Patch;
use crate::object::Kind;

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

fn kubevirt(strategy: Value, status: Value) -> Arc<KubeVirt> {
    let mut object = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt", "uid": "kv"},
        "spec": {"workloadUpdateStrategy": strategy},
        "status": {"phase": "Deployed", "observedDeploymentID": "2", "targetDeploymentID": "2"}});
    machinery::patch::merge(&mut object, &json!({ "status": status }));
    Arc::new(serde_json::from_value(object).unwrap())
}

fn methods(methods: &[&str]) -> Arc<KubeVirt> {
    kubevirt(json!({ "workloadUpdateMethods": methods }), json!({}))
}

/// Runs, can move, and has a launcher of the version before.
fn vmi(name: &str, patch: Value) -> Arc<VirtualMachineInstance> {
    let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}")},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1", "launcherContainerImageVersion": "launcher:1",
                   "conditions": [{"type": "LiveMigratable", "status": "True"}]}});
    machinery::patch::merge(&mut object, &patch);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}")},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    machinery::patch::merge(&mut object, &patch);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn guest(vmi: Arc<VirtualMachineInstance>) -> Guest {
    let pod = pod(&format!("pod-of-{}", vmi.metadata.name.as_deref().unwrap_or_default()), json!({}));
    Guest { vmi, pods: vec![pod], migrations: vec![] }
}

/// A migration of ours.
fn migration(name: &str, phase: &str) -> Arc<Migration> {
    let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}"),
            "creationTimestamp": time(1), "annotations": {annotations::WORKLOAD_UPDATE_MIGRATION: ""}},
        "spec": {"vmiName": "vm"}, "status": {"phase": phase}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn world(kubevirt: Arc<KubeVirt>, guests: Vec<Guest>) -> World {
    let config = ClusterConfig { launcher_image: "launcher:2".into(), ..ClusterConfig::default() };
    World {
        kubevirt,
        guests,
        unfinished: vec![],
        config: Arc::new(config),
        last_batch: time(0),
        behind: None,
        hold: false,
        now: time(100),
    }
}

fn one(methods_: &[&str], patch: Value) -> World {
    world(methods(methods_), vec![guest(vmi("vm", patch))])
}

fn made(w: &World) -> Vec<Migration> {
    decide(w).iter().filter_map(|action| action.migrates().cloned()).collect()
}

/// What is done with the outcome told.
fn attempts(w: &World) -> Vec<Action> {
    let told = |action| match action {
        Action::Tell { effect, .. } => Some(*effect),
        _ => None,
    };
    decide(w).into_iter().filter_map(told).collect()
}

fn evicted(w: &World) -> Vec<String> {
    let pod = |action| match action {
        Action::Own(Own::Evict { pod, .. }) => Some(pod.into()),
        _ => None,
    };
    attempts(w).into_iter().filter_map(pod).collect()
}

fn aborted(w: &World) -> Vec<String> {
    let name = |action| match action {
        Action::Delete { kind: Kind::Migration, name, .. } => Some(name),
        _ => None,
    };
    attempts(w).into_iter().filter_map(name).collect()
}

/// What the status says after the decision.
fn counted(w: &World) -> Option<i64> {
    let mut object = serde_json::to_value(&*w.kubevirt).unwrap();
    for action in decide(w) {
        if let Action::Patch { kind: Kind::KubeVirt, patch: Patch::Json(patch), .. } = action {
            machinery::patch::apply(&mut object, &patch).unwrap();
        }
    }
    object["status"]["outdatedVirtualMachineInstanceWorkloads"].as_i64()
}

fn next_look(w: &World) -> Option<Duration> {
    decide(w).iter().find_map(|action| match action {
        Action::RequeueAfter(delay) => Some(*delay),
        _ => None,
    })
}

fn current(patch: Value) -> Value {
    let mut all = json!({"status": {"launcherContainerImageVersion": "launcher:2"}});
    machinery::patch::merge(&mut all, &patch);
    all
}

fn with_condition(type_: &str, status: &str) -> Value {
    let conditions = json!([{"type": "LiveMigratable", "status": "True"}, {"type": type_, "status": status}]);
    current(json!({"status": {"conditions": conditions}}))
}

#[test]
fn a_guest_on_an_outdated_launcher_gets_a_migration() {
    let w = one(&["LiveMigrate"], json!({}));
    let made = made(&w);
    let [one] = made.as_slice() else { panic!("{made:?}") };
    assert!(one.metadata.name.as_deref().unwrap().starts_with("kubevirt-workload-update-vm-"));
    assert_eq!(one.metadata.annotations.as_ref().unwrap()[annotations::WORKLOAD_UPDATE_MIGRATION], "");
    assert_eq!(one.spec.priority, Some(MigrationPriority::SystemCritical));
    assert_eq!((one.spec.vmi_name.as_deref(), one.metadata.namespace.as_deref()), (Some("vm"), Some("ns")));
    assert_eq!((counted(&w), next_look(&w)), (Some(1), Some(Duration::from_secs(30))));
}

#[test]
fn every_condition_of_a_move_counts() {
    let not_movable = json!([{"type": "LiveMigratable", "status": "False"}]);
    let on_its_way = json!({"status": {"migrationState": {"startTimestamp": time(50)}}});
    let table = [
        ("outdated", json!({}), true),
        ("up to date", current(json!({})), false),
        ("nobody knows its launcher", json!({"status": {"launcherContainerImageVersion": null}}), false),
        ("not running", json!({"status": {"phase": "Scheduled"}}), false),
        ("has ended", json!({"status": {"phase": "Failed"}}), false),
        ("is being deleted", json!({"metadata": {"deletionTimestamp": time(1)}}), false),
        ("is on its way", on_its_way, false),
        ("cannot move", json!({"status": {"conditions": not_movable}}), false),
        ("was asked to leave its node", json!({"status": {"evacuationNodeName": "n1"}}), false),
        ("waits for CPUs", with_condition("HotVCPUChange", "False"), true),
        ("waits for memory", with_condition("HotMemoryChange", "True"), true),
        ("could not get memory", with_condition("HotMemoryChange", "False"), false),
        ("waits for a network", with_condition("MigrationRequired", "True"), true),
        ("may get a network without", with_condition("MigrationRequired", "False"), false),
        ("waits for volumes", with_condition("VolumesChange", "True"), true),
        ("was given its volumes back", with_condition("VolumesChange", "False"), false),
    ];
    for (what, patch, expected) in table {
        assert_eq!(!made(&one(&["LiveMigrate"], patch)).is_empty(), expected, "{what}");
    }
}

#[test]
fn a_change_is_the_users_and_not_as_urgent_as_an_old_launcher() {
    let made = made(&one(&["LiveMigrate"], with_condition("HotMemoryChange", "True")));
    assert_eq!(made[0].spec.priority, Some(MigrationPriority::UserTriggered));
    assert_eq!(made[0].metadata.labels.as_ref().unwrap().get(api::labels::VOLUME_UPDATE_MIGRATION), None);
    let annotated = json!({"metadata": {"annotations": {annotations::WORKLOAD_UPDATE_MIGRATION_ABORTION: ""}}});
    let mut called_off = with_condition("HotMemoryChange", "True");
    machinery::patch::merge(&mut called_off, &annotated);
    assert_eq!(self::made(&one(&["LiveMigrate"], called_off)), vec![]);
}

#[test]
fn a_guest_that_its_volumes_tie_down_moves_if_all_of_them_are_copied() {
    let conditions = |storage: &str| {
        json!([{"type": "LiveMigratable", "status": "False"}, {"type": "VolumesChange", "status": "True"},
               {"type": "StorageLiveMigratable", "status": storage}])
    };
    let moving = |storage: &str, other: &str| {
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let other = json!({"name": "b", "persistentVolumeClaimInfo": {"accessModes": [other]}});
        current(json!({"spec": {"volumes": [claim("a"), claim("b")]}, "status": {
            "conditions": conditions(storage), "migratedVolumes": [{"volumeName": "a"}],
            "volumeStatus": [other, {"name": "a", "target": ""}]}}))
    };
    let made_with = |patch: Value| made(&one(&["LiveMigrate"], patch));
    assert_eq!(made_with(moving("True", "ReadWriteOnce")), vec![], "one would be left behind");
    assert_eq!(made_with(moving("False", "ReadWriteMany")), vec![], "it cannot be copied");
    let made = made_with(moving("True", "ReadWriteMany"));
    assert_eq!(made[0].metadata.labels.as_ref().unwrap()[api::labels::VOLUME_UPDATE_MIGRATION], "vm");
}

#[test]
fn nothing_happens_while_the_installation_is_not_settled() {
    let statuses = [
        json!({"phase": "Deploying"}),
        json!({"phase": "Deleting"}),
        json!({"phase": null}),
        json!({"targetDeploymentID": "3"}),
        json!({"observedDeploymentID": null}),
    ];
    for status in statuses {
        let both = json!({"workloadUpdateMethods": ["LiveMigrate", "Evict"]});
        let w = world(kubevirt(both, status.clone()), vec![guest(vmi("vm", json!({})))]);
        assert_eq!(decide(&w), vec![], "{status}");
    }
    let mut w = one(&["LiveMigrate"], json!({}));
    w.hold = true;
    assert_eq!(decide(&w), vec![], "the cluster is shutting down");
    w.hold = false;
    w.behind = Some(Duration::from_secs(5));
    assert_eq!(decide(&w), vec![Action::RequeueAfter(Duration::from_secs(5))], "what we made may not be visible yet");
}

#[test]
fn without_a_method_guests_are_only_counted() {
    let w = one(&[], json!({}));
    assert_eq!((made(&w), evicted(&w), counted(&w)), (vec![], vec![], Some(1)));
    let told = kubevirt(json!({}), json!({"outdatedVirtualMachineInstanceWorkloads": 1}));
    let w = world(told, vec![guest(vmi("vm", json!({})))]);
    assert_eq!(decide(&w), vec![Action::RequeueAfter(Duration::from_secs(30))], "that is known already");
    let w = world(methods(&[]), vec![]);
    assert_eq!(counted(&w), Some(0), "nobody need guess whether it was looked");
    assert_eq!(next_look(&w), None);
}

#[test]
fn what_cannot_move_is_evicted_if_it_may_be() {
    let tied = json!({"status": {"conditions": [{"type": "LiveMigratable", "status": "False"}]}});
    let mut must_move = tied.clone();
    machinery::patch::merge(&mut must_move, &json!({"spec": {"evictionStrategy": "LiveMigrate"}}));
    for (methods, patch, moves, goes) in [
        (&["Evict"][..], must_move, 0, 0),
        (&["Evict"][..], json!({"spec": {"evictionStrategy": "LiveMigrate"}}), 0, 1),
        (&["LiveMigrate", "Evict"][..], json!({}), 1, 0),
        (&["LiveMigrate", "Evict"][..], tied.clone(), 0, 1),
        (&["Evict"][..], json!({}), 0, 1),
        (&["Evict"][..], tied.clone(), 0, 1),
        (&["LiveMigrate"][..], tied, 0, 0),
    ] {
        let w = one(methods, patch);
        assert_eq!((made(&w).len(), evicted(&w).len()), (moves, goes), "{methods:?}");
    }
}

#[test]
fn a_pod_on_its_way_out_is_not_evicted_again() {
    let mut w = one(&["Evict"], json!({}));
    assert_eq!(evicted(&w), ["pod-of-vm"]);
    w.guests[0].pods.push(pod("elsewhere", json!({"spec": {"nodeName": "n2"}})));
    assert_eq!(evicted(&w), ["pod-of-vm"], "the guest is not in that one");
    w.guests[0].pods = vec![pod("a", json!({"metadata": {"deletionTimestamp": time(1)}}))];
    assert_eq!(evicted(&w), Vec::<String>::new());
    w.guests[0].pods = vec![];
    assert_eq!(evicted(&w), Vec::<String>::new());
}

#[test]
fn evictions_come_in_batches() {
    let guests = |n: usize| (0..n).map(|i| guest(vmi(&format!("vm{i}"), json!({})))).collect::<Vec<_>>();
    let strategy = |size: i64| {
        json!({"workloadUpdateMethods": ["Evict"], "batchEvictionSize": size,
                                       "batchEvictionInterval": "1m30s"})
    };
    let mut w = world(kubevirt(strategy(3), json!({})), guests(5));
    assert_eq!(evicted(&w).len(), 3);
    assert_eq!(next_look(&w), Some(Duration::from_secs(30)));
    w.last_batch = time(20);
    assert_eq!(evicted(&w), Vec::<String>::new(), "80 s are not 90 s");
    assert_eq!(next_look(&w), Some(Duration::from_secs(10)), "exactly when the next batch may go");
    let w = world(kubevirt(strategy(0), json!({})), guests(5));
    assert_eq!(evicted(&w), Vec::<String>::new());
    let mut w = world(methods(&["Evict"]), guests(12));
    assert_eq!(evicted(&w).len(), 10, "ten, unless the strategy says otherwise");
    w.last_batch = time(41);
    assert_eq!(evicted(&w), Vec::<String>::new(), "a minute, unless the strategy says otherwise");
}

#[test]
fn no_guest_is_always_first_in_line() {
    let guests: Vec<Guest> = (0..6).map(|i| guest(vmi(&format!("vm{i}"), json!({})))).collect();
    let strategy = json!({"workloadUpdateMethods": ["Evict"], "batchEvictionSize": 1});
    let first = |last_batch: i64| {
        let mut w = world(kubevirt(strategy.clone(), json!({})), guests.clone());
        w.last_batch = time(last_batch);
        evicted(&w)
    };
    assert_eq!(first(-7), first(-7), "the same world gives the same decision");
    let firsts: std::collections::BTreeSet<_> = (0..40).map(|batch| first(-60 * batch)).collect();
    assert_eq!(firsts.len(), 6, "one that cannot be evicted does not keep the others from it");
}

#[test]
fn no_more_migrations_are_made_than_there_is_room_for() {
    let guests: Vec<Guest> = (0..9).map(|i| guest(vmi(&format!("vm{i}"), json!({})))).collect();
    for (running, expected) in [(0, 5), (3, 2), (5, 0), (7, 0)] {
        let mut w = world(methods(&["LiveMigrate"]), guests.clone());
        w.unfinished = (0..running).map(|i| migration(&format!("r{i}"), "Running")).collect();
        w.unfinished.push(migration("waiting", "Pending"));
        assert_eq!(made(&w).len(), expected, "{running} run");
        assert_eq!(counted(&w), Some(9));
    }
}

#[test]
fn one_attempt_at_a_time_and_a_name_for_each() {
    let name = |migrations: Vec<Arc<Migration>>| {
        let mut w = one(&["LiveMigrate"], json!({}));
        w.guests[0].migrations = migrations;
        made(&w).first().and_then(|made| made.metadata.name.clone())
    };
    let first = name(vec![]);
    assert!(first.is_some());
    assert_eq!(first, name(vec![]), "a second look meets the first");
    assert_eq!(name(vec![migration("a", "Pending")]), None);
    let second = name(vec![migration("a", "Failed")]);
    assert!(second.is_some() && second != first);
}

#[test]
fn of_two_attempts_in_one_second_the_later_counts() {
    let ended = |name: &str, at: i64| -> Arc<Migration> {
        let mut failed = (*migration(name, "Failed")).clone();
        let reached = json!([{"phase": "Failed", "phaseTransitionTimestamp": time(at)}]);
        failed.status.as_mut().unwrap().phase_transition_timestamps = serde_json::from_value(reached).unwrap();
        Arc::new(failed)
    };
    let name = |migrations: Vec<Arc<Migration>>| {
        let mut w = one(&["LiveMigrate"], json!({}));
        w.guests[0].migrations = migrations;
        made(&w)[0].metadata.name.clone()
    };
    assert_eq!(name(vec![ended("b", 2), ended("a", 30)]), name(vec![ended("a", 30)]));
}

#[test]
fn a_migration_without_anything_to_bring_is_given_up() {
    let state = |uid: &str, ready: bool| {
        let ready = ready.then(|| time(5));
        json!({"status": {"migrationState": {"migrationUid": uid, "targetNodeDomainReadyTimestamp": ready}}})
    };
    let called_off = json!({"metadata": {"annotations": {annotations::WORKLOAD_UPDATE_MIGRATION_ABORTION: ""}}});
    let mut change_called_off = with_condition("HotVCPUChange", "True");
    machinery::patch::merge(&mut change_called_off, &called_off);
    let table = [
        ("the change was taken back", current(json!({})), 1),
        ("the guest has arrived", current(state("uid-of-m", true)), 0),
        ("another has arrived before", current(state("uid-of-other", true)), 1),
        ("it is on its way", current(state("uid-of-m", false)), 1),
        ("the change is still wanted", with_condition("HotVCPUChange", "True"), 0),
        ("somebody calls it off", change_called_off, 1),
        ("its launcher is outdated", json!({}), 0),
        ("its launcher is outdated, and somebody calls it off", called_off, 0),
        ("nobody knows its launcher", json!({"status": {"launcherContainerImageVersion": null}}), 0),
    ];
    for (what, patch, expected) in table {
        let mut w = one(&["LiveMigrate"], patch);
        w.guests[0].migrations = vec![migration("m", "Scheduling"), migration("old", "Failed")];
        assert_eq!(aborted(&w).len(), expected, "{what}");
    }
    let mut w = one(&["LiveMigrate"], current(json!({})));
    let mut others = (*migration("m", "Pending")).clone();
    others.metadata.annotations = None;
    w.guests[0].migrations = vec![Arc::new(others)];
    assert_eq!(aborted(&w), Vec::<String>::new(), "it is not ours");
}

#[test]
fn what_is_left_alone_is_not_looked_for() {
    let label = json!({"metadata": {"labels": {api::labels::OUTDATED_LAUNCHER_IMAGE: ""}}});
    assert!(is_pending(&vmi("vm", label)));
    assert!(is_pending(&vmi("vm", with_condition("MigrationRequired", "True"))));
    assert!(!is_pending(&vmi("vm", current(json!({})))));
}

fn any_vmi() -> impl Strategy<Value = Value> {
    let image = prop_oneof![Just(json!("launcher:1")), Just(json!("launcher:2")), Just(Value::Null)];
    let condition = prop::sample::select(vec!["HotVCPUChange", "HotMemoryChange", "VolumesChange", "AgentConnected"]);
    let status = || prop::sample::select(vec!["True", "False"]);
    (image, status(), condition, status(), any::<[bool; 4]>()).prop_map(
        |(image, movable, condition, is, [marked, deleted, moving, called_off])| {
            let mut vmi = json!({"status": {"launcherContainerImageVersion": image, "conditions": [
                {"type": "LiveMigratable", "status": movable}, {"type": condition, "status": is}]}});
            let mut more = |patch: Value| machinery::patch::merge(&mut vmi, &patch);
            if marked {
                more(json!({"status": {"evacuationNodeName": "n1"}}));
            }
            if deleted {
                more(json!({"metadata": {"deletionTimestamp": time(1)}}));
            }
            if moving {
                more(json!({"status": {"migrationState": {"startTimestamp": time(50)}}}));
            }
            if called_off {
                more(json!({"metadata": {"annotations": {annotations::WORKLOAD_UPDATE_MIGRATION_ABORTION: ""}}}));
            }
            vmi
        },
    )
}

fn any_world() -> impl Strategy<Value = World> {
    let methods = prop::sample::subsequence(vec!["LiveMigrate", "Evict"], 0..=2);
    let phase = prop::sample::select(vec!["Pending", "Running", "Failed", ""]);
    let guests = prop::collection::vec((any_vmi(), phase), 0..15);
    let deployed = prop::bool::weighted(0.8);
    (methods, guests, 0..7_usize, 0..4_i64, 0..120_i64, deployed).prop_map(
        |(methods, guests, running, size, since, deployed)| {
            let strategy = json!({"workloadUpdateMethods": methods, "batchEvictionSize": size});
            let status = json!({"phase": if deployed { "Deployed" } else { "Deploying" }});
            let guests = guests.into_iter().enumerate().map(|(i, (patch, phase))| {
                let mut one = guest(vmi(&format!("vm{i}"), patch));
                one.migrations = (!phase.is_empty()).then(|| migration(&format!("m{i}"), phase)).into_iter().collect();
                one
            });
            let mut w = world(kubevirt(strategy, status), guests.collect());
            w.unfinished = (0..running).map(|i| migration(&format!("r{i}"), "Running")).collect();
            w.last_batch = time(100 - since);
            w
        },
    )
}

proptest! {
    /// What must hold in every world, however many guests want what.
    #[test]
    fn limits_are_kept_and_no_guest_is_disturbed_twice(w in any_world()) {
        let (made, evicted) = (made(&w), evicted(&w));
        let strategy = w.kubevirt.spec.workload_update_strategy.clone().unwrap();
        prop_assert!(made.len() <= 5_usize.saturating_sub(w.unfinished.len()));
        prop_assert!(evicted.len() as i64 <= strategy.batch_eviction_size.unwrap());
        if elapsed(&w) < 60 {
            prop_assert_eq!(evicted.len(), 0);
        }
        let named = |method: &str| strategy.workload_update_methods.iter().any(|named| named == method);
        prop_assert!(made.is_empty() || named("LiveMigrate"));
        prop_assert!(evicted.is_empty() || named("Evict"));
        let mut touched: Vec<String> = evicted.iter().map(|pod| pod.replace("pod-of-", "")).collect();
        touched.extend(made.iter().filter_map(|migration| migration.spec.vmi_name.clone()));
        for name in &touched {
            let one = w.guests.iter().find(|guest| guest.vmi.metadata.name.as_ref() == Some(name)).unwrap();
            prop_assert!(one.unfinished().next().is_none(), "{name} has a migration");
            prop_assert!(one.vmi.is_running() && !one.vmi.is_marked_for_deletion());
        }
        touched.sort();
        let all = touched.len();
        touched.dedup();
        prop_assert_eq!(touched.len(), all, "one thing at a time");
        if w.kubevirt.status.as_ref().unwrap().phase != Some(api::v1::KubeVirtPhase::Deployed) {
            prop_assert_eq!(decide(&w), vec![]);
        }
    }

    /// The order in which a cache lists guests is no reason to choose others.
    #[test]
    fn the_order_of_guests_does_not_matter(w in any_world()) {
        let mut turned = w.clone();
        turned.guests.reverse();
        prop_assert_eq!(made(&w), made(&turned));
        prop_assert_eq!(evicted(&w), evicted(&turned));
    }
}

fn elapsed(w: &World) -> i64 {
    w.now.0.as_second() - w.last_batch.0.as_second()
}

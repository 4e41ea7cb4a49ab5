//! Limits, priorities, and the making of the target Pod.

use super::*;
use crate::migration::status::waits_for_its_node;
use crate::migration::{Slots, priority, spec_priority, start, waits_for_room};

fn pending(slots: Slots) -> World {
    let mut begun = migration("Pending");
    begun.status.as_mut().unwrap().migration_state =
        Some(serde_json::from_value(json!({"sourcePod": "source"})).unwrap());
    World { slots, ..world(begun, vmi(Value::Null), vec![]) }
}

#[test]
fn a_target_is_made_only_while_there_is_room() {
    let slots =
        |cluster, outbound, ahead, ahead_here| Slots { cluster, outbound, ahead, ahead_here, ..Slots::default() };
    let table = [
        (slots(0, 0, 0, 0), ""),
        (slots(4, 1, 0, 0), ""),
        (slots(5, 0, 0, 0), "ClusterLimitReached"),
        (slots(4, 0, 1, 0), "ClusterLimitReached"),
        (slots(3, 0, 1, 0), ""),
        (slots(2, 2, 0, 0), "NodeLimitReached"),
        (slots(1, 1, 0, 1), "NodeLimitReached"),
        (slots(0, 0, 0, 2), "NodeLimitReached"),
        (slots(0, 0, 0, 1), ""),
        (slots(5, 2, 0, 0), "ClusterLimitReached"),
    ];
    for (slots, reason) in table {
        let w = pending(slots);
        assert_eq!(waits_for(&w), reason, "{slots:?}");
        assert_eq!(decide(&w).contains(&Action::Own(Own::Start)), reason.is_empty(), "{slots:?}");
        let made = start(&w, Some(&source())).iter().any(|a| matches!(a, Action::Own(Own::CreateTarget { .. })));
        assert_eq!(made, reason.is_empty(), "{slots:?}: the same holds under the lock");
    }
}

#[test]
fn the_configured_limits_count() {
    let mut w = pending(Slots { cluster: 1, outbound: 1, ..Slots::default() });
    let mut config = (*w.config).clone();
    let limits = config.configuration.migrations.get_or_insert_default();
    limits.parallel_migrations_per_cluster = Some(1);
    w.config = Arc::new(config.clone());
    assert_eq!(waits_for(&w), "ClusterLimitReached");
    let limits = config.configuration.migrations.get_or_insert_default();
    (limits.parallel_migrations_per_cluster, limits.parallel_outbound_migrations_per_node) = (Some(9), Some(1));
    w.config = Arc::new(config);
    assert_eq!(waits_for(&w), "NodeLimitReached");
}

#[test]
fn who_waits_for_room_looks_again_sooner_the_more_urgent_it_is() {
    for (name, level, seconds) in
        [("system-critical", 100, 1), ("user-triggered", 50, 3), ("system-maintenance", 20, 5), ("", 0, 5)]
    {
        let mut w = pending(Slots { cluster: 5, ..Slots::default() });
        let mut own = (*w.migration).clone();
        own.spec.priority = (!name.is_empty()).then(|| name.into());
        assert_eq!((spec_priority(&own), priority(&own)), (level, level));
        w.migration = Arc::new(own.clone());
        let delay = std::time::Duration::from_secs(seconds);
        assert!(decide(&w).contains(&Action::Own(Own::RequeueAfter { delay, priority: level })), "{name}");
        own.status = migration("Running").status;
        assert_eq!(priority(&own), 1000, "what runs comes first");
    }
}

#[test]
fn who_waits_for_the_cluster_and_who_for_a_node_are_told_apart() {
    let full = pending(Slots { cluster: 5, ..Slots::default() });
    let waiting = decide(&full);
    let waiting = written(&waiting).unwrap();
    assert!(waits_for_room(waiting) && !waits_for_its_node(waiting));
    let node = pending(Slots { outbound: 2, ..Slots::default() });
    let waiting = decide(&node);
    let waiting = written(&waiting).unwrap();
    assert!(!waits_for_room(waiting) && waits_for_its_node(waiting));
}

#[test]
fn a_second_active_pod_and_a_guest_that_does_not_run_are_waited_for() {
    let mut w = pending(Slots::default());
    w.pods.push(Arc::new(pod("stray", Some("n3"), "running", json!({api::labels::APP: "virt-launcher"}))));
    assert_eq!(waits_for(&w), "OtherPodActive");
    w.pods.pop();
    w.pods.push(Arc::new(pod("old", Some("n3"), "succeeded", json!({api::labels::APP: "virt-launcher"}))));
    assert_eq!(waits_for(&w), "", "one that has ended does not count");
    let mut vmi = vmi(Value::Null);
    vmi.status_mut().phase = Some("Scheduled".into());
    w.vmi = Some(Arc::new(vmi));
    assert_eq!(waits_for(&w), "InstanceNotRunning");
}

#[test]
fn a_start_writes_nothing_but_the_target() {
    let w = pending(Slots::default());
    assert_eq!(decide(&w), [Action::Own(Own::Start)]);
    let actions = start(&w, Some(&source()));
    let [Action::Own(Own::CreateTarget { pod, .. }), Action::Note(note), again] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    let lost = "a Pod that comes and goes while the watch is down leaves no event";
    assert!(matches!(again, Action::Own(Own::RequeueAfter { delay, .. }) if delay.as_secs() == 300), "{lost}");
    assert_eq!(note.reason, "SuccessfulCreate");
    assert!(crate::migration::is_target(pod, "uid-of-m"));
    assert_eq!(pod.metadata.labels.as_ref().unwrap()[api::labels::CREATED_BY], "vmi-uid");
    let selector = pod.spec.as_ref().unwrap().node_selector.as_ref().unwrap();
    assert_eq!(selector["cpu-vendor.node.kubevirt.io/AMD"], "true");
}

#[test]
fn the_targets_name_follows_from_both_uids() {
    let name = |w: &World| match start(w, Some(&source())).into_iter().next() {
        Some(Action::Own(Own::CreateTarget { pod, .. })) => pod.metadata.name.unwrap(),
        other => panic!("{other:?}"),
    };
    let w = pending(Slots::default());
    assert_eq!(name(&w), name(&w));
    let mut other = pending(Slots::default());
    let mut migration = (*other.migration).clone();
    migration.metadata.uid = Some("another".into());
    other.migration = Arc::new(migration);
    assert_ne!(name(&w), name(&other));
}

#[test]
fn what_changed_before_the_lock_was_taken_stops_a_start() {
    let stopped = |change: &dyn Fn(&mut World)| {
        let mut w = pending(Slots::default());
        change(&mut w);
        let actions = start(&w, Some(&source()));
        assert!(matches!(actions.as_slice(), [Action::Own(Own::RequeueAfter { .. })]), "{actions:?}");
    };
    stopped(&|w| w.migration = Arc::new(deleted(migration("Pending"))));
    stopped(&|w| w.migration = Arc::new(migration("Scheduling")));
    stopped(&|w| w.pods.push(Arc::new(target("new"))));
    stopped(&|w| w.behind = Some(std::time::Duration::from_secs(1)));
    stopped(&|w| w.vmi = None);
}

#[test]
fn a_target_that_cannot_be_made_says_why() {
    let w = pending(Slots::default());
    let actions = start(&w, None);
    let shown =
        api::conditions::find(&written(&actions).unwrap().status.as_ref().unwrap().conditions, "migrationWaiting");
    assert_eq!(shown.unwrap().reason(), "FailedCreate");
    assert_eq!(notes(&actions), ["vmi:FailedCreate"]);
    let mut vmi = vmi(Value::Null);
    vmi.spec.domain.cpu = Some(serde_json::from_value(json!({"model": "host-model"})).unwrap());
    let mut bare = pending(Slots::default());
    bare.vmi = Some(Arc::new(vmi));
    let mut unlabelled = node("n1");
    unlabelled.metadata.labels = None;
    bare.nodes = vec![Arc::new(unlabelled)];
    let actions = start(&bare, Some(&source()));
    assert!(
        !actions.iter().any(|a| matches!(a, Action::Own(Own::CreateTarget { .. }))),
        "a CPU that nobody knows is not moved"
    );
}

#[test]
fn the_launchers_user_is_settled_before_the_target_is_made() {
    let mut w = pending(Slots::default());
    let mut root = vmi(Value::Null);
    root.status_mut().runtime_user = Some(0);
    root.metadata.annotations = None;
    w.vmi = Some(Arc::new(root));
    let patched = patched_vmi(&w).unwrap();
    assert_eq!(patched.status.unwrap().runtime_user, Some(107));
    assert!(patched.metadata.annotations.unwrap().contains_key("kubevirt.io/nonroot"));
    assert!(!decide(&w).contains(&Action::Own(Own::Start)));
}

#[test]
fn plugged_volumes_follow_to_a_target_that_is_up() {
    let mut guest = vmi(Value::Null);
    guest.spec.volumes.push(
        serde_json::from_value(
            json!({"name": "extra", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}),
        )
        .unwrap(),
    );
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "uid-of-c"},
                       "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"}});
    let beside = json!({"metadata": {"name": "hp", "namespace": "ns", "uid": "uid-of-hp", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "source", "uid": "uid-of-source", "controller": true}]},
        "spec": {"containers": [], "volumes": [{"name": "extra", "persistentVolumeClaim": {"claimName": "c"}}]}});
    let mut w = world(migration("Pending"), guest, vec![target("running")]);
    w.claims.claims.insert("c".into(), Arc::new(serde_json::from_value(claim).unwrap()));
    w.helpers.push(Arc::new(serde_json::from_value(beside).unwrap()));
    let actions = decide(&w);
    let made = actions.iter().find_map(|a| match a {
        Action::Create { object: Object::Pod(pod), .. } => Some(pod),
        _ => None,
    });
    let mut attachment = (**made.unwrap()).clone();
    assert_eq!(attachment.metadata.labels.as_ref().unwrap()[api::labels::MIGRATION_JOB_UID], "uid-of-m");
    assert_eq!(phase_after(&w), "Pending", "the volumes are not there yet");
    attachment.metadata.uid = Some("uid-of-a".into());
    let ready = json!({"phase": "Running", "containerStatuses": [
        {"name": "hotplug-disk", "ready": true, "image": "", "imageID": "", "restartCount": 0}]});
    attachment.status = Some(serde_json::from_value(ready).unwrap());
    w.helpers.push(Arc::new(attachment.clone()));
    assert_eq!(phase_after(&w), "Scheduling");
    attachment.status = Some(serde_json::from_value(json!({"phase": "Failed"})).unwrap());
    w.helpers[1] = Arc::new(attachment);
    w.migration = Arc::new(migration("Scheduling"));
    assert_eq!(phase_after(&w), "Failed", "row 10 of the list");
}

#[test]
fn what_a_quota_refuses_does_not_show_that_others_are_just_trying() {
    let refused = |slots| {
        let mut w = pending(slots);
        let condition =
            json!([{"type": "migrationRejectedByResourceQuota", "status": "True", "reason": "ResourceQuotaExceeded"}]);
        let mut own = (*w.migration).clone();
        own.status.get_or_insert_default().conditions = serde_json::from_value(condition).unwrap();
        w.migration = Arc::new(own);
        w
    };
    let [tries, runs] =
        [1, 0].map(|attempts| Slots { outbound: 2, attempts, attempts_here: attempts, ..Slots::default() });
    assert_eq!(waits_for(&pending(tries)), "NodeLimitReached", "others come first");
    assert_eq!(waits_for(&refused(runs)), "NodeLimitReached", "a running migration is worth telling");
    let effects = decide(&refused(tries));
    assert!(written(&effects).is_none(), "nothing is written: {effects:?}");
    assert!(!effects.contains(&Action::Own(Own::Start)), "the limit holds for attempts, too");
    assert!(effects.iter().any(|effect| matches!(effect, Action::Own(Own::RequeueAfter { .. }))));
}

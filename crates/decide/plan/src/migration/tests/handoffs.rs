//! The hand-off: what must be found live, and what the nodes are told.

use super::*;
use crate::migration::{Live, hand_off};

/// What is different when it is looked at live.
type Change = Box<dyn Fn(&mut Live)>;

fn ready() -> (World, Live) {
    let w = world(migration("Scheduled"), vmi(Value::Null), vec![target("running")]);
    let live =
        Live { vmi: Some(vmi(Value::Null)), target: Some(target("running")), migrations: vec![migration("Scheduled")] };
    (w, live)
}

fn patch_of(actions: &[Action]) -> Option<&json_patch::Patch> {
    actions.iter().find_map(|action| match action {
        Action::Own(Own::HandOff(patch)) => Some(patch),
        _ => None,
    })
}

#[test]
fn a_ready_target_is_looked_at_live_before_it_is_handed_off() {
    let (w, live) = ready();
    assert!(decide(&w).contains(&Action::Own(Own::ConfirmHandOff)));
    let actions = hand_off(&w, &live);
    let after = applied(live.vmi.as_ref().unwrap(), patch_of(&actions).unwrap());
    assert_eq!(after.metadata.labels.as_ref().unwrap()[api::labels::MIGRATION_TARGET_NODE_NAME], "n2");
    let state = after.status.unwrap().migration_state.unwrap();
    let names = [&state.migration_uid, &state.source_node, &state.source_pod, &state.target_node, &state.target_pod];
    assert_eq!(names.map(|name| name.as_deref().unwrap()), ["uid-of-m", "n1", "source", "n2", "target"]);
    assert_eq!(state.migration_configuration, Some(w.config.migrations()));
    assert_eq!(state.target_memory_overhead.unwrap().0, "1000");
    assert_eq!(notes(&actions), ["SuccessfulHandOver"]);
}

#[test]
fn what_is_found_live_can_stop_a_hand_off() {
    let other = json!({"migrationUid": "uid-of-other", "targetNode": "n3"});
    let table: Vec<(&str, Change)> = vec![
        ("the instance is gone", Box::new(|live| live.vmi = None)),
        ("another one has its name", Box::new(|live| live.vmi.as_mut().unwrap().metadata.uid = Some("new".into()))),
        (
            "it is being deleted",
            Box::new(|live| live.vmi.as_mut().unwrap().metadata.deletion_timestamp = Some(time(1))),
        ),
        ("it has ended", Box::new(|live| live.vmi.as_mut().unwrap().status_mut().phase = Some("Failed".into()))),
        (
            "the guest is on the target's node",
            Box::new(|live| live.vmi.as_mut().unwrap().status_mut().node_name = Some("n2".into())),
        ),
        ("the target is gone", Box::new(|live| live.target = None)),
        ("the target has ended", Box::new(|live| live.target = Some(target("failed")))),
        ("the migration was deleted", Box::new(|live| live.migrations = vec![deleted(migration("Scheduled"))])),
        ("the migration is gone", Box::new(|live| live.migrations.clear())),
        ("the migration has ended", Box::new(|live| live.migrations = vec![migration("Failed")])),
        ("it was done before", Box::new(|live| live.vmi = Some(vmi(course("handed off"))))),
        (
            "another migration has the instance",
            Box::new(move |live| {
                live.vmi = Some(vmi(other.clone()));
                live.migrations.push(named("other", "Running"));
            }),
        ),
    ];
    for (what, change) in table {
        let (w, mut live) = ready();
        change(&mut live);
        let actions = hand_off(&w, &live);
        assert_eq!(patch_of(&actions), None, "{what}");
        assert!(
            actions.iter().any(|a| matches!(a, Action::Own(Own::RequeueAfter { .. }))),
            "{what}: another look follows"
        );
    }
}

#[test]
fn the_state_of_a_migration_that_has_ended_is_replaced() {
    let (w, mut live) = ready();
    live.vmi =
        Some(vmi(json!({"migrationUid": "uid-of-other", "targetNode": "n3", "failed": true, "abortRequested": true})));
    live.migrations.push(named("other", "Failed"));
    let actions = hand_off(&w, &live);
    let state =
        applied(live.vmi.as_ref().unwrap(), patch_of(&actions).unwrap()).status.unwrap().migration_state.unwrap();
    assert_eq!((state.failed, state.abort_requested), (None, None));
}

#[test]
fn the_patch_fails_if_the_instance_has_changed_since() {
    let (w, live) = ready();
    let actions = hand_off(&w, &live);
    let mut changed = serde_json::to_value(live.vmi.as_ref().unwrap()).unwrap();
    changed["metadata"]["resourceVersion"] = json!("8");
    assert!(machinery::patch::apply(&mut changed, patch_of(&actions).unwrap()).is_err());
}

#[test]
fn a_hand_off_without_an_answer_is_looked_up() {
    let (mut w, mut live) = ready();
    w.handed_off = true;
    assert!(decide(&w).contains(&Action::Own(Own::ConfirmHandOff)));
    assert!(hand_off(&w, &live).contains(&Action::Own(Own::ForgetHandOff)), "it was lost");
    live.vmi = Some(vmi(course("handed off")));
    assert!(!hand_off(&w, &live).contains(&Action::Own(Own::ForgetHandOff)), "the cache is behind");
    w.migration = Arc::new(deleted(migration("Scheduled")));
    live.vmi = Some(vmi(Value::Null));
    assert!(hand_off(&w, &live).contains(&Action::Own(Own::ForgetHandOff)));
}

#[test]
fn the_best_policy_is_told_with_the_hand_off() {
    let (mut w, live) = ready();
    let policy = json!({"metadata": {"name": "gold"}, "spec": {"allowAutoConverge": true,
        "selectors": {"virtualMachineInstanceSelector": {"tier": "gold"}}}});
    w.policies.push(Arc::new(serde_json::from_value(policy).unwrap()));
    let actions = hand_off(&w, &live);
    let state =
        applied(live.vmi.as_ref().unwrap(), patch_of(&actions).unwrap()).status.unwrap().migration_state.unwrap();
    assert_eq!(state.migration_policy_name.as_deref(), Some("gold"));
    assert_eq!(state.migration_configuration.unwrap().allow_auto_converge, Some(true));
}

#[test]
fn a_node_that_is_to_plug_memory_or_cpus_is_told_the_targets_size() {
    let (w, mut live) = ready();
    let vmi = live.vmi.as_mut().unwrap();
    vmi.spec.domain.cpu = Some(serde_json::from_value(json!({"dedicatedCpuPlacement": true})).unwrap());
    for type_ in ["HotVCPUChange", "HotMemoryChange"] {
        vmi.status_mut().conditions.push(serde_json::from_value(json!({"type": type_, "status": "True"})).unwrap());
    }
    let resources = json!({"limits": {"cpu": "4"}, "requests": {"memory": "1Mi", "hugepages-2Mi": "2Mi"}});
    let compute = &mut live.target.as_mut().unwrap().spec.as_mut().unwrap().containers[0];
    compute.resources = Some(serde_json::from_value(resources).unwrap());
    let actions = hand_off(&w, &live);
    let labels = applied(live.vmi.as_ref().unwrap(), patch_of(&actions).unwrap()).metadata.labels.unwrap();
    assert_eq!(labels[api::labels::VMI_POD_CPU_LIMITS], "4");
    assert_eq!(labels[api::labels::VMI_POD_MEMORY_REQUESTS], (3 << 20).to_string());
}

/// The guest has moved since the cache's version of the instance, and its old Pod is still there.
#[test]
fn the_source_is_where_the_guest_is_now() {
    let (mut w, mut live) = ready();
    live.vmi.as_mut().unwrap().status_mut().node_name = Some("n3".into());
    assert_eq!(patch_of(&hand_off(&w, &live)), None, "the Pod there is not in the cache yet");
    let labels = json!({api::labels::APP: "virt-launcher", api::labels::CREATED_BY: "vmi-uid"});
    w.pods.push(Arc::new(pod("second", Some("n3"), "running", labels)));
    let actions = hand_off(&w, &live);
    let after = applied(live.vmi.as_ref().unwrap(), patch_of(&actions).unwrap());
    let state = after.status.unwrap().migration_state.unwrap();
    assert_eq!([state.source_node, state.source_pod].map(Option::unwrap), ["n3", "second"]);
}

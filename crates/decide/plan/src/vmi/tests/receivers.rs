//! Instances that receive a guest from elsewhere.

use api::{annotations, conditions, labels, reasons};

use super::super::decide;
use super::*;

fn receiver(phase: &str) -> VirtualMachineInstance {
    let mut vmi = vmi(phase);
    vmi.metadata.annotations.get_or_insert_default().insert(annotations::CREATE_MIGRATION_TARGET.into(), "true".into());
    vmi
}

fn targeted(phase: &str) -> VirtualMachineInstance {
    let mut vmi = receiver(phase);
    vmi.metadata.labels.get_or_insert_default().insert(labels::MIGRATION_TARGET_NODE_NAME.into(), "n1".into());
    vmi.status_mut().migration_state = Some(serde_json::from_value(json!({"migrationUid": "m"})).unwrap());
    vmi
}

fn failed(phase: &str) -> VirtualMachineInstance {
    let mut vmi = targeted(phase);
    vmi.status_mut().migration_state.as_mut().unwrap().failed = Some(true);
    vmi
}

/// One row of the phase machine for receivers: instance, Pod → phase, needs confirmation.
#[test]
fn a_receiver_waits_again_instead_of_failing() {
    for (name, vmi, pods, phase, confirmed) in [
        ("fresh", receiver("Pending"), vec![], "WaitingForSync", false),
        ("waiting", receiver("WaitingForSync"), vec![], "WaitingForSync", false),
        ("its Pod came", targeted("WaitingForSync"), vec![pod("new")], "Scheduling", false),
        ("its Pod came and ended", targeted("WaitingForSync"), vec![pod("failed")], "WaitingForSync", false),
        ("its migration failed", failed("WaitingForSync"), vec![pod("new")], "WaitingForSync", false),
        ("the Pod runs", targeted("Scheduling"), vec![pod("ready")], "Scheduled", false),
        ("the Pod ended early", targeted("Scheduling"), vec![pod("failed")], "WaitingForSync", false),
        ("the Pod vanished early", targeted("Scheduling"), vec![], "WaitingForSync", true),
        ("the Pod ended", targeted("Scheduled"), vec![pod("failed")], "WaitingForSync", false),
        ("the Pod vanished", targeted("Scheduled"), vec![], "WaitingForSync", true),
        ("the migration failed", failed("Scheduled"), vec![pod("ready")], "WaitingForSync", false),
        ("all is well", targeted("Scheduled"), vec![pod("ready")], "Scheduled", false),
    ] {
        let w = world(vmi, pods);
        let actions = decide(&w);
        assert_eq!(phase_after(&w, &actions).as_ref().map(Phase::as_str), Some(phase), "{name}: {actions:#?}");
        assert_eq!(confirms(&actions), confirmed, "{name}");
        assert!(created(&actions).is_empty(), "{name}: the migration brings the Pod");
    }
}

/// The end of a Pod can show later than that of the migration it was created for.
#[test]
fn a_receiver_is_not_handed_over_with_the_pod_of_a_migration_that_is_over() {
    let migration = |uid: &str, phase: &str| {
        let object = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"vmiName": "vm"},
            "status": {"phase": phase}});
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let mut earlier = pod("ready");
    earlier.metadata.labels.get_or_insert_default().insert(labels::MIGRATION_JOB_UID.into(), "m1".into());
    for (name, migrations, phase) in [
        ("it runs", vec![migration("m1", "Scheduling")], "Scheduled"),
        ("it failed", vec![migration("m1", "Failed")], "Scheduling"),
        ("it is gone, the next is here", vec![migration("m2", "Pending")], "Scheduling"),
    ] {
        let w = World { migrations, ..world(targeted("Scheduling"), vec![earlier.clone()]) };
        assert_eq!(phase_after(&w, &decide(&w)).as_ref().map(Phase::as_str), Some(phase), "{name}");
    }
}

#[test]
fn a_failed_attempt_is_recorded_with_the_phase() {
    let w = world(targeted("Scheduled"), vec![pod("failed")]);
    let actions = decide(&w);
    assert!(actions.iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. })));
    let state = written(&w, &actions).unwrap().status.unwrap().migration_state.unwrap();
    assert_eq!((state.failed, state.completed, state.end_timestamp), (Some(true), Some(true), Some(time(100))));
}

#[test]
fn the_end_of_an_earlier_pod_does_not_end_an_exchange_that_has_only_begun() {
    let mut vmi = targeted("Scheduled");
    let shown = json!({"targetState": {"migrationUID": "m2"}, "sourceState": {"syncAddress": "this-cluster/x"}});
    vmi.status_mut().migration_state = Some(serde_json::from_value(shown).unwrap());
    let before = vmi.status.clone().unwrap().migration_state;
    let w = world(vmi, vec![pod("failed")]);
    let after = written(&w, &decide(&w)).unwrap().status.unwrap();
    assert_eq!((after.phase.as_ref().map(Phase::as_str), after.migration_state), (Some("WaitingForSync"), before));
}

#[test]
fn the_wait_says_what_would_end_it() {
    let w = world(receiver("WaitingForSync"), vec![]);
    let new = written(&w, &decide(&w)).unwrap();
    let seen = condition(&new, conditions::SYNCHRONIZED);
    assert_eq!(seen.reason(), reasons::WAITING_FOR_SYNC);
    assert!(seen.message().contains("spec.receive"));
    let w = world(new, vec![pod("new")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::SYNCHRONIZED), None);
}

#[test]
fn a_node_of_an_earlier_attempt_does_not_hide_the_pod_of_the_next() {
    let mut again = targeted("WaitingForSync");
    again.status_mut().node_name = Some("n0".into());
    let w = world(again, vec![pod("ready")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.phase(), Some(&Phase::Scheduling));
    let w = world(new, vec![pod("ready")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().status.unwrap().node_name.as_deref(), Some("n1"));
}

#[test]
fn a_wait_shows_nothing_of_a_pod_that_is_gone() {
    let mut again = receiver("WaitingForSync");
    let refused = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    again.status_mut().conditions.push(serde_json::from_value(refused).unwrap());
    let w = world(again, vec![]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::POD_SCHEDULED), None);
}

#[test]
fn a_deleted_receiver_is_let_go_once_its_pods_are_gone() {
    let w = world(deleting(receiver("WaitingForSync")), vec![pod("new")]);
    assert!(decide(&w).iter().any(|action| matches!(action, Action::Delete { kind: Kind::Pod, .. })));
    let w = world(deleting(receiver("WaitingForSync")), vec![]);
    let actions = decide(&w);
    assert!(confirms(&actions));
    assert_eq!(written(&w, &actions).unwrap().metadata.finalizers, None);
}

#[test]
fn a_guest_that_went_to_another_cluster_has_succeeded() {
    let left = |source: &str, completed: bool| {
        let mut vmi = vmi("Running");
        let state = json!({"completed": completed, "sourceState": {"syncAddress": source},
                           "targetState": {"syncAddress": "10.0.0.1:9185"}});
        vmi.status_mut().migration_state = Some(serde_json::from_value(state).unwrap());
        let w = world(vmi, vec![pod("succeeded")]);
        phase_after(&w, &decide(&w))
    };
    assert_eq!(left("", true), Some(Phase::Succeeded));
    assert_eq!(left("", false), Some(Phase::Running));
    assert_eq!(left("10.0.0.2:9185", true), Some(Phase::Running), "a local one is the node agent's to tell");
}

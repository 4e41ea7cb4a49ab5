use api::{conditions, finalizers, reasons};
use machinery::names::NodeName;

use super::super::{Sort, decide};
use super::*;

/// One row of the phase machine: phase, Pod, being deleted → phase, needs confirmation.
#[test]
fn each_row_of_the_phase_machine_holds() {
    let rows = [
        ("Pending", Some("new"), false, "Scheduling", false),
        ("Pending", None, true, "Failed", false),
        ("Pending", Some("new"), true, "Scheduling", false),
        ("Scheduling", Some("new"), false, "Scheduling", false),
        ("Scheduling", Some("unschedulable"), false, "Scheduling", false),
        ("Scheduling", Some("creating"), false, "Scheduling", false),
        ("Scheduling", Some("image missing"), false, "Scheduling", false),
        ("Scheduling", Some("running"), false, "Scheduled", false),
        ("Scheduling", Some("ready"), false, "Scheduled", false),
        ("Scheduling", Some("ready"), true, "Scheduling", false),
        ("Scheduling", Some("compute ended"), false, "Failed", false),
        ("Scheduling", Some("succeeded"), false, "Failed", false),
        ("Scheduling", Some("failed"), false, "Failed", false),
        ("Scheduling", Some("terminating"), false, "Failed", false),
        ("Scheduling", Some("terminating"), true, "Failed", false),
        ("Scheduling", None, false, "Failed", true),
        ("Scheduled", Some("ready"), false, "Scheduled", false),
        ("Scheduled", Some("failed"), false, "Failed", false),
        ("Scheduled", Some("compute ended"), false, "Failed", false),
        ("Scheduled", Some("succeeded"), false, "Scheduled", false),
        ("Scheduled", None, false, "Failed", true),
        ("Running", Some("ready"), false, "Running", false),
        ("Running", Some("failed"), false, "Running", false),
        ("Running", Some("terminating"), true, "Running", false),
        ("Running", None, false, "Failed", true),
        ("Running", None, true, "Failed", true),
        ("Succeeded", Some("succeeded"), false, "Succeeded", false),
        ("Failed", Some("failed"), false, "Failed", false),
        ("Succeeded", None, false, "Succeeded", true),
        ("Failed", None, true, "Failed", true),
    ];
    for (phase, pod_state, delete, expected, confirmed) in rows {
        let vmi = if delete { deleting(vmi(phase)) } else { vmi(phase) };
        let w = world(vmi, pod_state.map(pod).into_iter().collect());
        let actions = decide(&w);
        let row = format!("{phase}, Pod {pod_state:?}, deleting {delete}: {actions:#?}");
        assert_eq!(phase_after(&w, &actions).as_ref().map(Phase::as_str), Some(expected), "{row}");
        assert_eq!(confirms(&actions), confirmed, "{row}");
    }
}

#[test]
fn a_phase_of_another_node_is_not_taken_for_the_pod_of_this_one() {
    let mut other = pod("ready");
    other.spec.as_mut().unwrap().node_name = Some("n2".into());
    let actions = decide(&world(vmi("Running"), vec![other]));
    let [Action::Confirm { look: Look::NoPods(sort), .. }] = actions.as_slice() else { panic!("{actions:#?}") };
    assert_eq!(*sort, Sort::Launchers { node: Some(NodeName::new("n1")) }, "only Pods on the instance's node count");
}

/// The source Pod is gone. What the nodes wrote, the state of the target Pod → whether the guest is given up.
#[test]
fn a_guest_that_was_leaving_is_given_up_only_if_it_cannot_have_arrived() {
    let begun = json!({"migrationUid": "m", "targetPod": "target", "targetNode": "n2", "startTimestamp": time(50)});
    let with = |field: &str, value: Value| {
        let mut state = begun.clone();
        state[field] = value;
        state
    };
    let rows = [
        ("the target may have it", begun.clone(), Some("ready"), false),
        ("the target is going", begun.clone(), Some("terminating"), false),
        ("the target has ended", begun.clone(), Some("failed"), true),
        ("the target is gone", begun.clone(), None, true),
        ("the nodes say that it stayed", with("failed", json!(true)), Some("ready"), true),
        ("the transfer had not begun", with("startTimestamp", Value::Null), Some("ready"), true),
        ("another Pod was the target", with("targetPod", json!("other")), Some("ready"), true),
        ("there was no migration", Value::Null, Some("ready"), true),
    ];
    for (what, state, target, given_up) in rows {
        let mut leaving = vmi("Running");
        leaving.status_mut().migration_state = serde_json::from_value(state).unwrap();
        let target = target.map(|state| {
            let mut pod = pod(state);
            pod.metadata.name = Some("target".into());
            pod.spec.as_mut().unwrap().node_name = Some("n2".into());
            pod
        });
        let w = world(leaving, target.into_iter().collect());
        assert_eq!(confirms(&decide(&w)), given_up, "{what}");
    }
}

#[test]
fn the_hand_over_is_one_write_with_node_label_volumes_and_interfaces() {
    let w = world(vmi("Scheduling"), vec![pod("ready")]);
    let new = written(&w, &decide(&w)).unwrap();
    let status = new.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Scheduled));
    assert_eq!(status.node_name.as_deref(), Some("n1"));
    assert_eq!(new.metadata.labels.unwrap()[api::labels::NODE_NAME], "n1");
    assert_eq!(status.volume_status.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["root"]);
    assert_eq!(status.interfaces[0].pod_interface_name.as_deref(), Some("eth0"));
    assert_eq!(status.migration_transport.as_deref(), Some("Unix"));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(status.memory.unwrap().memory_overhead.unwrap().0, "1000");
    let entered: Vec<_> = status.phase_transition_timestamps.iter().map(|t| t.phase.clone().unwrap()).collect();
    assert_eq!(entered, [Phase::Scheduling, Phase::Scheduled]);
}

#[test]
fn pinned_cpus_without_guaranteed_resources_hold_the_hand_over_and_say_why() {
    let mut pinned = vmi("Scheduling");
    pinned.spec.domain.cpu.get_or_insert_default().dedicated_cpu_placement = Some(true);
    let w = world(pinned.clone(), vec![pod("ready")]);
    let actions = decide(&w);
    let new = written(&w, &actions).unwrap();
    assert_eq!(new.phase(), Some(&Phase::Scheduling));
    let condition = new.condition(conditions::SYNCHRONIZED).unwrap();
    assert_eq!(condition.reason(), reasons::FAILED_GUARANTEE_RESOURCES);
    assert!(actions.iter().any(|a| matches!(a, Action::Note(note) if note.warning)));
    let mut guaranteed = pod("ready");
    guaranteed.status.as_mut().unwrap().qos_class = Some("Guaranteed".into());
    let w = world(pinned, vec![guaranteed]);
    assert_eq!(phase_after(&w, &decide(&w)), Some(Phase::Scheduled));
}

#[test]
fn an_unknown_phase_is_named_in_a_condition_and_let_go_on_deletion() {
    for phase in ["Unknown", "Invented"] {
        let w = world(vmi(phase), vec![]);
        let new = written(&w, &decide(&w)).unwrap();
        let condition = new.condition(conditions::SYNCHRONIZED).unwrap();
        assert!(condition.is_false() && condition.message().contains(phase));
        let w = world(deleting(vmi(phase)), vec![]);
        let actions = decide(&w);
        assert!(confirms(&actions));
        assert_eq!(written(&w, &actions).unwrap().metadata.finalizers, None);
    }
}

#[test]
fn an_instance_past_admission_first_gets_its_finalizer_and_phase() {
    let mut bare = vmi("");
    bare.metadata.finalizers = None;
    bare.metadata.annotations = None;
    let w = world(bare, vec![]);
    let actions = decide(&w);
    let [Action::Replace(Object::Vmi(new))] = actions.as_slice() else { panic!("{actions:#?}") };
    assert_eq!(new.metadata.finalizers.clone().unwrap(), [finalizers::VIRTUAL_MACHINE_INSTANCE]);
    assert_eq!(new.phase(), Some(&Phase::Pending));
    assert_eq!(new.metadata.annotations.clone().unwrap()[api::annotations::LATEST_OBSERVED_API_VERSION], "v1");
}

#[test]
fn a_finalizer_under_its_old_name_is_renamed() {
    let mut old = vmi("Scheduling");
    old.metadata.finalizers = Some(vec![finalizers::VIRTUAL_MACHINE_INSTANCE_LEGACY.into()]);
    let w = world(old, vec![pod("creating")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.metadata.finalizers.unwrap(), [finalizers::VIRTUAL_MACHINE_INSTANCE]);
}

#[test]
fn a_vm_that_is_missing_from_the_cache_is_looked_for_before_its_finalizer_is_removed() {
    let mut ended = vmi("Failed");
    ended.metadata.finalizers = Some(vec![finalizers::VIRTUAL_MACHINE_CONTROLLER.into()]);
    let owner = |uid: &str| json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": uid, "controller": true});
    ended.metadata.owner_references = serde_json::from_value(json!([owner("vm-1")])).unwrap();
    let w = World { owner: Owner::Gone, ..world(ended, vec![]) };
    let actions = decide(&w);
    let [Action::Confirm { look, .. }] = actions.as_slice() else { panic!("{actions:#?}") };
    assert_eq!(look.queries(&w), [Query::get(Kind::Vm, "ns", "vm")]);
    let vm = |uid: &str| -> Object {
        let vm: api::v1::VirtualMachine =
            serde_json::from_value(json!({"metadata": {"name": "vm", "uid": uid}, "spec": {}})).unwrap();
        vm.into()
    };
    assert!(look.holds(&w, &[]), "there is none of that name");
    assert!(look.holds(&w, &[vm("vm-2")]), "it is another one");
    assert!(!look.holds(&w, &[vm("vm-1")]), "the cache is behind");
}

/// Its migration decides which of two claims holds the guest's state. A cache without the migration may be late.
#[test]
fn a_migration_that_is_missing_from_the_cache_is_looked_for_before_its_instance_is_released() {
    let state = |target: &str| json!({"migrationUid": "m", "sourcePersistentStatePVCName": "a", "targetPersistentStatePVCName": target});
    let ended = |target: &str| {
        let mut ended = vmi("Failed");
        ended.status_mut().migration_state = serde_json::from_value(state(target)).unwrap();
        world(ended, vec![])
    };
    let migration = |phase: &str| {
        let object = json!({"metadata": {"name": "m", "namespace": "ns", "uid": "m"}, "spec": {"vmiName": "vm"},
            "status": {"phase": phase}});
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let looks = |w: &World| decide(w).iter().map(|action| format!("{action}")).collect::<String>();
    let unknown = ended("b");
    let arbiter = Look::NoMigration { uid: "m".into() };
    assert!(looks(&unknown).contains(&arbiter.to_string()), "{}", looks(&unknown));
    let known = World { migrations: vec![migration("Failed")], ..ended("b") };
    assert!(confirms(&decide(&known)) && !looks(&known).contains(&arbiter.to_string()), "it has decided");
    let undecided = World { migrations: vec![migration("Running")], ..ended("b") };
    assert!(!confirms(&decide(&undecided)), "it has yet to decide");
    let shared = ended("a");
    assert!(!looks(&shared).contains(&arbiter.to_string()), "there is one claim only");
}

#[test]
fn finalizers_leave_with_the_last_pod_and_the_vms_own_only_if_the_vm_is_gone() {
    let mut ended = vmi("Succeeded");
    ended.metadata.finalizers.as_mut().unwrap().push(finalizers::VIRTUAL_MACHINE_CONTROLLER.into());
    ended.status_mut().launcher_container_image_version = Some("launcher:1".into());
    for (owner, left) in [
        (Owner::Alive, Some(vec![finalizers::VIRTUAL_MACHINE_CONTROLLER.to_owned()])),
        (Owner::Gone, None),
        (Owner::Nobody, None),
    ] {
        let w = World { owner, ..world(ended.clone(), vec![]) };
        let new = written(&w, &decide(&w)).unwrap();
        assert_eq!(new.metadata.finalizers, left, "{owner:?}");
        assert_eq!(new.status.unwrap().launcher_container_image_version, None);
    }
    let w = world(ended, vec![pod("succeeded")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.metadata.finalizers.unwrap().len(), 2, "a Pod is left");
}

#[test]
fn each_row_of_the_ready_table_holds() {
    let rows = [
        ("Pending", None, "False", reasons::POD_NOT_EXISTS),
        ("Scheduling", Some("terminating"), "False", reasons::POD_TERMINATING),
        ("Running", Some("failed"), "False", reasons::POD_TERMINATING),
        ("Scheduling", Some("creating"), "False", reasons::GUEST_NOT_RUNNING),
        ("Scheduled", Some("ready"), "False", reasons::GUEST_NOT_RUNNING),
        ("Running", Some("running"), "False", reasons::POD_CONDITION_MISSING),
        ("Running", Some("ready"), "True", ""),
    ];
    for (phase, pod_state, status, reason) in rows {
        // A failure makes the pass report instead of creating a Pod.
        let failed = Some(crate::SyncError::new(reasons::FAILED_CREATE, "quota"));
        let w = World { failed, ..world(vmi(phase), pod_state.map(pod).into_iter().collect()) };
        let new = written(&w, &decide(&w)).unwrap();
        let ready = condition(&new, conditions::READY);
        assert_eq!((ready.status.as_str(), ready.reason()), (status, reason), "{phase}, Pod {pod_state:?}");
    }
}

#[test]
fn the_schedulers_latest_words_are_kept_until_the_pod_is_scheduled() {
    let w = world(vmi("Scheduling"), vec![pod("unschedulable")]);
    let first = written(&w, &decide(&w)).unwrap();
    let seen = condition(&first, conditions::POD_SCHEDULED);
    assert_eq!(
        (seen.reason(), seen.message()),
        (reasons::UNSCHEDULABLE, "0/1 nodes are available: 1 Insufficient memory.")
    );

    let mut changed = pod("unschedulable");
    changed.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].message = Some("0/2 nodes are available".into());
    let w = world(first.clone(), vec![changed]);
    let second = written(&w, &decide(&w)).unwrap();
    assert_eq!(condition(&second, conditions::POD_SCHEDULED).message(), "0/2 nodes are available");

    let w = world(second, vec![pod("creating")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::POD_SCHEDULED), None);
}

#[test]
fn a_pod_that_is_gone_waits_for_no_node_any_more() {
    let waiting = world(vmi("Scheduling"), vec![pod("unschedulable")]);
    let waits = written(&waiting, &decide(&waiting)).unwrap();
    assert!(waits.condition(api::conditions::POD_SCHEDULED).is_some());
    let gone = world(waits, vec![]);
    let failed = written(&gone, &decide(&gone)).unwrap();
    assert_eq!(failed.phase(), Some(&Phase::Failed));
    assert!(failed.condition(api::conditions::POD_SCHEDULED).is_none());
}

#[test]
fn a_container_that_cannot_start_is_named_with_the_kubelets_reason_and_message() {
    let w = world(vmi("Scheduling"), vec![pod("image missing")]);
    let blocked = written(&w, &decide(&w)).unwrap();
    let seen = condition(&blocked, conditions::SYNCHRONIZED);
    assert_eq!((seen.reason(), seen.message()), (reasons::ERR_IMAGE_PULL, "container compute: the registry says no"));
    let w = world(blocked, vec![pod("creating")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::SYNCHRONIZED), None);
}

#[test]
fn an_eviction_shows_as_a_condition_while_it_lasts() {
    let mut evicted = vmi("Running");
    evicted.status_mut().evacuation_node_name = Some("n1".into());
    let w = world(evicted, vec![pod("ready")]);
    let mut new = written(&w, &decide(&w)).unwrap();
    assert!(condition(&new, conditions::EVICTION_REQUESTED).is_true());
    new.status_mut().evacuation_node_name = None;
    let w = world(new, vec![pod("ready")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::EVICTION_REQUESTED), None);
}

//! Guests that move between clusters.

use api::v1::RunStrategy;
use std::time::Duration;

use super::*;

fn moving(completed: bool, phase: &str) -> VirtualMachineInstance {
    let state = json!({"migrationUid": "m", "targetNode": "n2", "completed": completed, "sourceState": {},
                       "targetState": {"syncAddress": "this-cluster/there"}});
    with(vmi(phase), json!({"status": {"migrationState": state}}))
}

fn received(phase: &str) -> VirtualMachineInstance {
    let state = json!({"migrationUid": "m", "targetNode": "n2", "completed": true,
                       "sourceState": {"syncAddress": "this-cluster/here"}, "targetState": {}});
    with(vmi(phase), json!({"status": {"migrationState": state}}))
}

#[test]
fn a_machine_that_waits_starts_an_instance_that_receives() {
    let w = world(vm("WaitAsReceiver"), None);
    let actions = decide(&w);
    let noted = creates(&actions).unwrap().metadata.annotations.clone().unwrap();
    assert_eq!(noted["kubevirt.io/create-migration-target"], "true");
    let receiver = with(
        vmi("WaitingForSync"),
        json!({"metadata": {"annotations": {"kubevirt.io/create-migration-target": "true"}}}),
    );
    let waiting = world(vm("WaitAsReceiver"), Some(receiver));
    assert!(machine_after(&waiting).is_none() && failure(&waiting).is_none());
}

#[test]
fn a_guest_that_has_arrived_is_run_as_its_owner_said() {
    let mut receiving = vm("WaitAsReceiver");
    receiving.metadata.annotations.as_mut().unwrap().insert("kubevirt.io/restore-run-strategy".into(), "Manual".into());
    let w = world(receiving, Some(moving(true, "Running")));
    assert_eq!(machine_after(&w).unwrap().spec.run_strategy, Some(RunStrategy::Manual));
    let silent = world(vm("WaitAsReceiver"), Some(moving(true, "Running")));
    assert!(machine_after(&silent).is_none() && failure(&silent).is_none());
    let (reason, message) = failure(&world(vm("WaitAsReceiver"), Some(vmi("Running")))).unwrap();
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("is not a receiver"), "{message}");
}

#[test]
fn a_guest_that_has_left_is_halted_here_and_not_started_again() {
    let w = world(vm("Always"), Some(moving(true, "Succeeded")));
    assert_eq!(machine_after(&w).unwrap().spec.run_strategy, Some(RunStrategy::Halted));
    assert!(!deletes(&decide(&w)));
    let leaving = world(vm("Always"), Some(moving(false, "Succeeded")));
    let actions = decide(&leaving);
    assert!(actions.contains(&Action::RequeueAfter(Duration::from_secs(2))), "{actions:#?}");
    assert!(!deletes(&actions));
    let local = with(vmi("Succeeded"), json!({"status": {"migrationState": {"completed": true}}}));
    assert!(deletes(&decide(&world(vm("Always"), Some(local)))), "a migration within the cluster is none");
}

#[test]
fn a_guest_that_was_received_is_like_any_other_from_then_on() {
    assert!(deletes(&decide(&world(vm("Always"), Some(received("Succeeded"))))), "it is started again");
}

#[test]
fn a_guest_that_may_run_elsewhere_is_not_run_again() {
    for strategy in ["Always", "RerunOnFailure"] {
        let actions = decide(&world(vm(strategy), Some(moving(false, "Failed"))));
        assert!(!deletes(&actions), "{strategy}: {actions:#?}");
        let stayed = with(moving(true, "Failed"), json!({"status": {"migrationState": {"failed": true}}}));
        assert!(
            deletes(&decide(&world(vm(strategy), Some(stayed)))),
            "{strategy}: the guest was here, and is replaced"
        );
    }
    let waiting = with(
        vmi("Succeeded"),
        json!({"status": {"migrationState": {"sourceState": {"migrationUID": "m"},
        "targetState": {"syncAddress": "this-cluster/there"}}}}),
    );
    assert!(deletes(&decide(&world(vm("Always"), Some(waiting)))), "nobody has begun to send it");
}

#[test]
fn an_instance_stays_until_it_is_known_where_its_guest_is() {
    let released = |w: &World| instance_after(w).is_some_and(|vmi| vmi.metadata.finalizers.is_none());
    for phase in ["Succeeded", "Failed"] {
        assert!(!released(&world(vm("Always"), Some(deleting(moving(false, phase))))), "{phase}: it may run elsewhere");
        assert!(
            !released(&world(vm("Always"), Some(deleting(moving(true, phase))))),
            "{phase}: the machine goes first"
        );
        assert!(released(&world(vm("Halted"), Some(deleting(moving(true, phase))))), "{phase}: it is");
        let stayed = with(moving(true, phase), json!({"status": {"migrationState": {"failed": true}}}));
        assert!(released(&world(vm("Always"), Some(deleting(stayed)))), "{phase}: the guest was here");
    }
}

#[test]
fn an_instance_whose_guest_never_came_is_let_go() {
    let gone = deleting(vmi("WaitingForSync"));
    let after = instance_after(&world(vm("Halted"), Some(gone))).unwrap();
    assert_eq!(after.metadata.finalizers, None);
    assert!(instance_after(&world(vm("Manual"), Some(vmi("WaitingForSync")))).is_none());
}

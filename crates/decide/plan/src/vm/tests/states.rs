use api::v1::{Condition, ConditionStatus, VirtualMachinePrintableStatus as Printable};
use api::{conditions, reasons};

use super::*;
use crate::effect::Doubt as _;

fn with_condition(
    mut vmi: VirtualMachineInstance,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
) -> VirtualMachineInstance {
    let condition = Condition::new(type_, status, reason, "words", time(0));
    conditions::set(&mut vmi.status_mut().conditions, condition);
    vmi
}

fn word(w: &World) -> Printable {
    status_after(w).status.unwrap().printable_status.unwrap()
}

#[test]
fn each_row_of_the_printable_status_holds() {
    let unsynced = |reason| with_condition(vmi("Scheduling"), conditions::SYNCHRONIZED, ConditionStatus::False, reason);
    let no_node =
        with_condition(vmi("Scheduling"), conditions::POD_SCHEDULED, ConditionStatus::False, reasons::UNSCHEDULABLE);
    let paused = with_condition(vmi("Running"), conditions::PAUSED, ConditionStatus::True, reasons::PAUSED_BY_USER);
    let mut migrating = vmi("Running");
    migrating.status_mut().migration_state = serde_json::from_value(json!({"startTimestamp": time(90)})).unwrap();
    let mut migrated = migrating.clone();
    migrated.status_mut().migration_state =
        serde_json::from_value(json!({"startTimestamp": time(90), "endTimestamp": time(95)})).unwrap();
    let rows = [
        (Printable::Stopping, deleting(vmi("Running"))),
        (Printable::Stopping, deleting(vmi("Scheduling"))),
        (Printable::Migrating, migrating.clone()),
        (Printable::Running, migrated),
        (Printable::Paused, paused),
        (Printable::Running, vmi("Running")),
        (Printable::ErrorUnschedulable, no_node),
        (Printable::ErrImagePull, unsynced(reasons::ERR_IMAGE_PULL)),
        (Printable::ImagePullBackOff, unsynced(reasons::IMAGE_PULL_BACK_OFF)),
        (Printable::Starting, unsynced(reasons::FAILED_CREATE)),
        (Printable::Starting, vmi("")),
        (Printable::Starting, vmi("Pending")),
        (Printable::Starting, vmi("Scheduling")),
        (Printable::Starting, vmi("Scheduled")),
        (Printable::Stopped, vmi("Succeeded")),
        (Printable::Stopped, vmi("Failed")),
        (Printable::Stopped, deleting(vmi("Failed"))),
        (Printable::Unknown, vmi("Unknown")),
    ];
    for (expected, vmi) in rows {
        let w = world(vm("Manual"), Some(vmi.clone()));
        assert_eq!(word(&w), expected, "{:?}", vmi.status);
    }
    assert_eq!(word(&world(vm("Manual"), None)), Printable::Stopped);
    assert_eq!(word(&world(vm("Always"), Some(vmi("Failed")))), Printable::CrashLoopBackOff);
    let mut going = vm("Always");
    going.metadata.deletion_timestamp = Some(time(1));
    assert_eq!(word(&world(going, Some(migrating))), Printable::Terminating);
}

#[test]
fn a_running_machine_shows_its_instance() {
    let ready = with_condition(vmi("Running"), conditions::READY, ConditionStatus::True, "");
    let ready = with_condition(ready, conditions::LIVE_MIGRATABLE, ConditionStatus::True, "");
    let after = status_after(&world(vm("Always"), Some(ready.clone())));
    let status = after.status.clone().unwrap();
    assert_eq!((status.created, status.ready), (Some(true), Some(true)));
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(3)));
    assert_eq!(status.run_strategy, Some("Always".into()));
    assert!(after.condition(conditions::READY).unwrap().is_true());
    assert!(after.condition(conditions::LIVE_MIGRATABLE).unwrap().is_true());

    let paused = with_condition(vmi("Running"), conditions::PAUSED, ConditionStatus::True, reasons::PAUSED_BY_USER);
    let after = status_after(&world(after, Some(paused)));
    assert_eq!(after.condition(conditions::LIVE_MIGRATABLE), None, "what the instance dropped goes here too");
    assert!(after.condition(conditions::PAUSED).is_some());
    assert_eq!(after.condition(conditions::READY).unwrap().reason(), reasons::VMI_CONDITION_MISSING);
}

#[test]
fn a_new_message_of_the_instance_reaches_the_machine() {
    let mut vmi = vmi("Scheduling");
    let condition = |message: &str| {
        Condition::new(conditions::POD_SCHEDULED, ConditionStatus::False, reasons::UNSCHEDULABLE, message, time(0))
    };
    vmi.status_mut().conditions = vec![condition("no memory")];
    let after = status_after(&world(vm("Always"), Some(vmi.clone())));
    vmi.status_mut().conditions = vec![condition("no CPU")];
    let after = status_after(&world(after, Some(vmi)));
    assert_eq!(after.condition(conditions::POD_SCHEDULED).unwrap().message(), "no CPU");
}

#[test]
fn a_stopped_machine_forgets_its_instance() {
    let running = status_after(&world(vm("Manual"), Some(vmi("Running"))));
    let after = status_after(&world(running, None));
    let status = after.status.clone().unwrap();
    assert_eq!((status.created, status.ready, status.observed_generation), (None, None, None));
    assert_eq!(after.condition(conditions::READY).unwrap().reason(), reasons::VMI_NOT_EXISTS);
    assert_eq!(status.run_strategy, Some("Manual".into()), "an instance has existed");
    assert_eq!(status_after(&world(vm("Manual"), None)).status.unwrap().run_strategy, None, "none has existed yet");
}

#[test]
fn an_ended_instance_is_let_go_after_its_outcome_is_on_record() {
    let actions = decide(&world(vm("Once"), Some(vmi("Succeeded"))));
    let [Action::ReplaceStatus(Object::Vm(recorded)), Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. }] =
        actions.as_slice()
    else {
        panic!("{actions:#?}")
    };
    assert_eq!(patched(&vmi("Succeeded"), patch).metadata.finalizers, None);
    let cached = world((**recorded).clone(), Some(vmi("Succeeded")));
    let later = decide(&cached);
    let [Action::Confirm { look: look @ Look::SameMachine, then }] = later.as_slice() else { panic!("{later:#?}") };
    assert_eq!(then.as_slice(), &actions[1..], "the same, if the record is still there");
    let stored = (**recorded).clone();
    let mut newer = stored.clone();
    newer.metadata.resource_version = Some("newer".to_owned());
    assert!(look.holds(&cached, &[stored.into()]));
    assert!(!look.holds(&cached, &[newer.into()]), "it may show a running guest");
    assert!(!look.holds(&cached, &[]));
    let mut gone = vmi("Succeeded");
    gone.metadata.finalizers = None;
    assert_eq!(decide(&world((**recorded).clone(), Some(gone))), [], "settled");
}

#[test]
fn a_deleted_machine_takes_its_instance_along_and_goes_after_it() {
    let mut going = vm("Always");
    going.metadata.deletion_timestamp = Some(time(1));
    assert!(deletes(&decide(&world(going.clone(), Some(vmi("Running"))))));
    let waiting = decide(&world(going.clone(), Some(deleting(vmi("Running")))));
    assert!(waiting.iter().all(|action| matches!(action, Action::ReplaceStatus(_))), "{waiting:#?}");
    let last = decide(&world(going.clone(), None));
    let [Action::Confirm { look: Look::NoInstance, then }] = last.as_slice() else { panic!("{last:#?}") };
    let [Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. }] = then.as_slice() else {
        panic!("{then:#?}")
    };
    assert_eq!(patched(&going, patch).metadata.finalizers, None);

    going.metadata.finalizers.as_mut().unwrap().push("orphan".into());
    let orphaning = decide(&world(going.clone(), Some(vmi("Running"))));
    let [Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. }] = orphaning.as_slice() else {
        panic!("{orphaning:#?}")
    };
    assert_eq!(patched(&going, patch).metadata.finalizers.unwrap(), ["orphan"], "the instance stays");
}

#[test]
fn a_deleted_machine_is_not_prepared_again() {
    let mut going = vm("Always");
    going.metadata.deletion_timestamp = Some(time(1));
    going.metadata.finalizers = Some(vec!["somebody.else/finalizer".into()]);
    going.metadata.annotations = None;
    let actions = decide(&world(going, None));
    assert!(!actions.iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vm, .. })), "{actions:#?}");
}

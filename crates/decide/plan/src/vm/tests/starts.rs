use api::{annotations, conditions, finalizers, reasons};

use super::*;
use crate::SyncError;
use crate::effect::{Doubt, Query};
use crate::object::Typed;

#[test]
fn a_new_machine_is_prepared_in_one_write() {
    let mut bare = vm("Always");
    bare.metadata.finalizers = None;
    bare.metadata.annotations = None;
    bare.spec.template.spec.domain.firmware = None;
    let w = world(bare, None);
    let actions = decide(&w);
    let [Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. }] = actions.as_slice() else {
        panic!("{actions:#?}")
    };
    let ready = patched(&*w.vm, patch);
    assert_eq!(ready.metadata.finalizers.clone().unwrap(), [finalizers::VIRTUAL_MACHINE_CONTROLLER]);
    assert_eq!(ready.metadata.annotations.clone().unwrap()[annotations::LATEST_OBSERVED_API_VERSION], "v1");
    let uuid = ready.spec.template.spec.domain.firmware.clone().unwrap().uuid;
    assert_eq!(uuid.as_deref(), Some(firmware_uuid("vm").as_str()));
    assert!(creates(&decide(&world(ready, None))).is_some());
}

#[test]
fn a_firmware_uuid_that_the_owner_chose_stays() {
    let mut named = vm("Always");
    named.spec.template.spec.domain.firmware.as_mut().unwrap().uuid = Some("chosen".into());
    let actions = decide(&world(named, None));
    assert!(!actions.iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vm, .. })));
    assert_eq!(creates(&actions).unwrap().spec.domain.firmware.clone().unwrap().uuid.as_deref(), Some("chosen"));
}

#[test]
fn the_instance_is_made_from_the_template_and_bound_to_its_machine() {
    let w = world(vm("Always"), None);
    let actions = decide(&w);
    let made = creates(&actions).unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("vm"));
    assert_eq!(made.metadata.labels.clone().unwrap(), [("app".to_owned(), "web".to_owned())].into());
    let noted = made.metadata.annotations.clone().unwrap();
    assert_eq!((noted["note"].as_str(), noted[annotations::VM_GENERATION].as_str()), ("kept", "3"));
    assert_eq!(made.metadata.finalizers.clone().unwrap(), [finalizers::VIRTUAL_MACHINE_CONTROLLER]);
    assert!(machinery::meta::is_controlled_by(&made.metadata, "vm-uid"));
    assert_eq!(made.status.clone().unwrap().virtual_machine_revision_name.unwrap(), "revision-start-vm-vm-uid-3");
    assert_eq!(made.spec.domain.devices.disks[0].name, "root", "a volume without a disk becomes one");
    assert!(matches!(actions.last(), Some(Action::Note(note)) if note.reason == reasons::SUCCESSFUL_CREATE));
}

#[test]
fn a_paused_start_is_a_paused_start() {
    let requests = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let actions = decide(&world(with_requests(vm("Manual"), requests), None));
    assert_eq!(creates(&actions).unwrap().spec.start_strategy.as_deref(), Some("Paused"));
}

#[test]
fn each_start_keeps_its_own_spec_and_earlier_ones_go_once_it_shows() {
    let mut w = world(vm("Always"), None);
    let mut old = revision(&w.vm);
    (old.metadata.name, old.revision) = (Some("revision-start-vm-vm-uid-2".into()), 2);
    let mut other = revision(&w.vm);
    (other.metadata.name, other.revision) = (Some("vm-instancetype-1".into()), 0);
    w.revisions = vec![Arc::new(old), Arc::new(other)];
    let actions = decide(&w);
    let Action::Create { object: Object::Revision(kept), .. } = &actions[0] else { panic!("{actions:#?}") };
    assert_eq!(kept.metadata.name.as_deref(), Some("revision-start-vm-vm-uid-3"));
    assert_eq!(kept.revision, 3);
    assert_eq!(kept.data.as_ref().unwrap().0["spec"], serde_json::to_value(&w.vm.spec).unwrap());
    assert!(machinery::meta::is_controlled_by(&kept.metadata, "vm-uid"));
    assert!(matches!(&actions[1], Action::Create { object: Object::Vmi(_), .. }), "{actions:#?}");

    w.revisions.push(Arc::new((**kept).clone()));
    assert!(matches!(&decide(&w)[0], Action::Create { object: Object::Vmi(_), .. }), "kept already");
    w.vmi = Some(Arc::new(vmi("Pending")));
    let dropped: Vec<_> = decide(&w)
        .into_iter()
        .filter_map(|action| match action {
            Action::Delete { kind: Kind::Revision, name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, ["revision-start-vm-vm-uid-2"]);
}

#[test]
fn an_instance_that_lags_behind_does_not_drop_what_its_successor_was_started_from() {
    let mut w = world(vm("Always"), Some(vmi("Running")));
    let mut later = revision(&w.vm);
    (later.metadata.name, later.revision) = (Some("revision-start-vm-vm-uid-4".into()), 4);
    w.revisions.push(Arc::new(later));
    assert!(!decide(&w).iter().any(|action| matches!(action, Action::Delete { kind: Kind::Revision, .. })));
}

#[test]
fn an_ownerless_instance_of_our_name_is_adopted_and_a_foreign_one_is_not() {
    let mut orphan = vmi("Running");
    orphan.metadata.owner_references = None;
    let actions = decide(&world(vm("Always"), Some(orphan.clone())));
    let [adoption] = actions.as_slice() else { panic!("{actions:#?}") };
    let (kind, _, set) = adopts(adoption).unwrap();
    let [owner] = set["ownerReferences"].as_array().unwrap().as_slice() else { panic!("{set}") };
    assert_eq!((kind, &set["uid"], &owner["uid"]), (Kind::Vmi, &json!("vmi-uid"), &json!("vm-uid")));
    assert_eq!(owner["controller"], true);
    let actions = decide(&world(vm("Always"), Some(deleting(orphan))));
    assert!(!actions.iter().any(|action| adopts(action).is_some()), "not while it goes");

    let mut foreign = vmi("Running");
    foreign.metadata.owner_references.as_mut().unwrap()[0].uid = "somebody".into();
    let w = world(vm("Always"), Some(foreign));
    assert!(creates(&decide(&w)).is_none() && !deletes(&decide(&w)));
    let after = status_after(&w);
    assert!(after.condition(conditions::FAILURE).unwrap().message().contains("belongs to VirtualMachine vm"));
    assert_eq!(after.status.unwrap().created, None);
}

#[test]
fn a_failed_attempt_shows_as_failure_and_stays_until_one_succeeds() {
    let failed = Some(SyncError::new(reasons::FAILED_CREATE, "the API says no"));
    let w = World { failed, ..world(vm("Always"), None) };
    assert!(creates(&decide(&w)).is_none(), "one attempt per pass");
    let shown = status_after(&w);
    let failure = shown.condition(conditions::FAILURE).unwrap();
    assert_eq!((failure.is_true(), failure.message()), (true, "the API says no"));
    let retry = world(shown.clone(), None);
    assert!(!decide(&retry).iter().any(|action| matches!(action, Action::ReplaceStatus(_))), "not cleared in advance");
    assert_eq!(status_after(&world(shown, Some(vmi("Pending")))).condition(conditions::FAILURE), None);
}

#[test]
fn a_change_outside_the_template_is_noted_on_the_instance_and_one_inside_is_not() {
    let started = vm("Manual");
    let mut changed = started.clone();
    changed.metadata.generation = Some(4);
    let mut w = world(changed.clone(), Some(vmi("Running")));
    w.revisions = vec![Arc::new(revision(&started))];
    let patch = decide(&w).into_iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } => Some(patch),
        _ => None,
    });
    let bumped = patched(&vmi("Running"), &patch.unwrap());
    assert_eq!(bumped.metadata.annotations.unwrap()[annotations::VM_GENERATION], "4");
    assert_eq!(status_after(&w).condition(conditions::RESTART_REQUIRED), None);

    changed.spec.template.spec.domain.cpu.as_mut().unwrap().cores = Some(2);
    let mut w = world(changed, Some(vmi("Running")));
    w.revisions = vec![Arc::new(revision(&started))];
    assert!(!decide(&w).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. })));
    let after = status_after(&w);
    assert!(after.condition(conditions::RESTART_REQUIRED).unwrap().is_true());
    let status = after.status.clone().unwrap();
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(4)));
    let stopped = status_after(&world(after, None));
    assert_eq!(stopped.condition(conditions::RESTART_REQUIRED), None, "the next start brings the change");
}

#[test]
fn a_firmware_uuid_written_after_the_start_asks_for_no_restart() {
    let mut before = vm("Manual");
    before.spec.template.spec.domain.firmware = None;
    let mut w = world(vm("Manual"), Some(vmi("Running")));
    w.revisions = vec![Arc::new(revision(&before))];
    assert_eq!(status_after(&w).condition(conditions::RESTART_REQUIRED), None);
}

#[test]
fn a_generation_is_read_from_the_revisions_name_where_it_was_never_noted() {
    let mut old = vmi("Running");
    old.metadata.annotations = None;
    let mut w = world(vm("Manual"), Some(old));
    w.revisions = vec![];
    assert_eq!(status_after(&w).status.unwrap().observed_generation, Some(3));
}

#[test]
fn nothing_is_adopted_by_a_machine_that_goes_or_is_another_by_now() {
    let w = world(vm("Always"), None);
    let of = |uid: &str| {
        let mut found = vm("Always");
        found.metadata.uid = Some(uid.into());
        found
    };
    let mut going = of("vm-uid");
    going.metadata.deletion_timestamp = Some(time(1));
    let cases = [(None, false), (Some(of("vm-uid")), true), (Some(of("another")), false), (Some(going), false)];
    for (found, alive) in cases {
        let found: Vec<Object> = found.into_iter().map(Typed::into_object).collect();
        assert_eq!(Look::OwnerAlive.holds(&w, &found), alive, "{found:#?}");
    }
    let query = Query::get(Kind::Vm, "ns", "vm");
    assert_eq!(Look::OwnerAlive.queries(&w), [query]);
    assert_eq!(Action::confirm(Look::OwnerAlive, vec![]).on_failure(), Some(api::reasons::FAILED_CREATE));
}

use super::*;
use crate::vm::Live;
use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};

const PINNED: &str = "vm-small-v1beta1-it-uid-1";
const PREFERRED: &str = "vm-linux-v1beta1-p-uid-2";

fn instancetype() -> Live<VirtualMachineInstancetypeSpec> {
    Live {
        kind: "VirtualMachineClusterInstancetype".into(),
        metadata: serde_json::from_value(json!({"name": "small", "uid": "it-uid", "generation": 1})).unwrap(),
        spec: serde_json::from_value(json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}})).unwrap(),
    }
}

fn preference() -> Live<VirtualMachinePreferenceSpec> {
    let devices = json!({"preferredAutoattachInputDevice": true, "preferredInputBus": "virtio",
                         "preferredInputType": "tablet", "preferredInterfaceModel": "e1000", "preferredDiskBus": "sata"});
    Live {
        kind: "VirtualMachinePreference".into(),
        metadata: serde_json::from_value(json!({"name": "linux", "namespace": "ns", "uid": "p-uid", "generation": 2}))
            .unwrap(),
        spec: serde_json::from_value(json!({"devices": devices})).unwrap(),
    }
}

fn typed(strategy: &str) -> VirtualMachine {
    let change = json!({"spec": {"instancetype": {"name": "small"},
                                 "preference": {"name": "linux", "kind": "VirtualMachinePreference"},
                                 "template": {"spec": {"domain": {"cpu": null}}}}});
    with(vm(strategy), change)
}

fn typed_world(strategy: &str) -> World {
    World {
        instancetype: Some(instancetype()),
        preference: Some(preference()),
        config: config(json!({"network": {"defaultNetworkInterface": "masquerade"}})),
        revisions: vec![],
        ..world(typed(strategy), None)
    }
}

/// With both on record, as revisions and in the status.
fn pinned(strategy: &str) -> World {
    let w = typed_world(strategy);
    let revisions = decide(&w).into_iter().filter_map(|action| match action {
        Action::Create { object: Object::Revision(revision), .. } => Some(Arc::new(*revision)),
        _ => None,
    });
    World { revisions: revisions.collect(), vm: Arc::new(status_after(&w)), ..w }
}

#[test]
fn both_are_captured_and_recorded_before_anything_starts() {
    let w = typed_world("Always");
    let actions = decide(&w);
    assert!(creates(&actions).is_none());
    let [
        Action::Create { object: Object::Revision(first), .. },
        Action::Create { object: Object::Revision(second), .. },
        Action::ReplaceStatus(Object::Vm(recorded)),
    ] = actions.as_slice()
    else {
        panic!("{actions:#?}")
    };
    assert_eq!(first.metadata.name.as_deref(), Some(PINNED));
    assert_eq!(second.metadata.name.as_deref(), Some(PREFERRED));
    let status = recorded.status.clone().unwrap();
    let (one, other) = (status.instancetype_ref.unwrap(), status.preference_ref.unwrap());
    assert_eq!((one.name.as_deref(), one.kind), (Some("small"), None));
    assert_eq!(one.controller_revision_ref.unwrap().name.as_deref(), Some(PINNED));
    assert_eq!(other.kind.as_deref(), Some("VirtualMachinePreference"));
    assert_eq!(other.controller_revision_ref.unwrap().name.as_deref(), Some(PREFERRED));
}

#[test]
fn an_instance_is_sized_and_equipped_and_says_by_what() {
    let w = pinned("Always");
    let actions = decide(&w);
    let made = creates(&actions).unwrap();
    let domain = &made.spec.domain;
    assert_eq!(domain.cpu.as_ref().unwrap().sockets, Some(2));
    assert_eq!(domain.memory.as_ref().unwrap().guest.as_ref().unwrap().0, "1Gi");
    let input = &domain.devices.inputs[0];
    assert_eq!(
        (input.name.as_str(), input.bus.as_deref(), input.type_.as_str()),
        ("default-0", Some("virtio"), "tablet")
    );
    assert_eq!(domain.devices.interfaces[0].model.as_deref(), Some("e1000"), "the default interface is there in time");
    assert_eq!(domain.devices.interfaces[0].bound_by(), api::v1::Binding::Masquerade);
    assert_eq!(domain.devices.disks[0].device().bus(), Some("sata"));
    let noted = made.metadata.annotations.clone().unwrap();
    assert_eq!(noted["kubevirt.io/cluster-instancetype-name"], "small");
    assert_eq!(noted["kubevirt.io/preference-name"], "linux");
    let Action::Create { object: Object::Revision(kept), .. } = &actions[0] else { panic!("{actions:#?}") };
    let spec = &kept.data.as_ref().unwrap().0["spec"];
    assert_eq!(
        (&spec["instancetype"]["revisionName"], &spec["preference"]["revisionName"]),
        (&json!(PINNED), &json!(PREFERRED))
    );
}

#[test]
fn a_revision_that_does_not_show_yet_is_what_it_was_captured_from() {
    let w = World { revisions: vec![], ..pinned("Always") };
    assert!(creates(&decide(&w)).is_some());
    let gone = World { revisions: vec![], instancetype: None, ..pinned("Always") };
    let (reason, message) = failure(&gone).unwrap();
    assert_eq!(reason, "FailedFindInstancetype");
    assert!(message.contains(PINNED), "{message}");
}

#[test]
fn a_later_change_of_the_object_does_not_reach_the_machine() {
    let mut w = pinned("Always");
    w.instancetype.as_mut().unwrap().spec.cpu.guest = 8;
    w.instancetype.as_mut().unwrap().metadata.generation = Some(2);
    let actions = decide(&w);
    assert_eq!(creates(&actions).unwrap().spec.domain.cpu.as_ref().unwrap().sockets, Some(2));
}

#[test]
fn what_does_not_exist_is_named_and_looked_for_again() {
    let rows: [(World, &str, &str); 2] = [
        (World { instancetype: None, ..typed_world("Always") }, "FailedFindInstancetype", "small"),
        (World { preference: None, ..typed_world("Always") }, "FailedFindPreference", "linux"),
    ];
    for (w, reason, name) in rows {
        let (shown, message) = failure(&w).unwrap();
        assert_eq!(shown, reason);
        assert!(message.contains(name), "{message}");
        assert!(waits_for(&w).contains("Failure"), "{}", waits_for(&w));
        assert!(decide(&w).iter().any(|action| matches!(action, Action::RequeueAfter(_))));
        let again = World { vm: Arc::new(status_after(&w)), ..w };
        assert!(decide(&again).iter().all(|action| matches!(action, Action::RequeueAfter(_))), "told once");
    }
}

#[test]
fn a_conflict_names_the_fields_to_clear() {
    let mut w = typed_world("Always");
    w.vm = Arc::new(with((*w.vm).clone(), json!({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 4}}}}}})));
    let (reason, message) = failure(&w).unwrap();
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("spec.template.spec.domain.cpu.cores"), "{message}");
    assert!(
        !decide(&w).iter().any(|action| matches!(action, Action::Create { object: Object::Revision(_), .. })),
        "nothing is captured"
    );
}

#[test]
fn another_name_means_another_revision_and_a_named_revision_is_taken_as_it_is() {
    let mut w = pinned("Manual");
    w.vm = Arc::new(with((*w.vm).clone(), json!({"spec": {"instancetype": {"name": "large"}}})));
    let live = w.instancetype.as_mut().unwrap();
    (live.metadata.name, live.metadata.uid) = (Some("large".into()), Some("big".into()));
    let after = status_after(&w).status.unwrap().instancetype_ref.unwrap();
    assert_eq!(after.name.as_deref(), Some("large"));
    assert_eq!(after.controller_revision_ref.unwrap().name.as_deref(), Some("vm-large-v1beta1-big-1"));

    let mut w = pinned("Manual");
    let mut chosen = (*w.revisions[0]).clone();
    chosen.metadata.name = Some("chosen".into());
    w.revisions.push(Arc::new(chosen));
    w.vm = Arc::new(with((*w.vm).clone(), json!({"spec": {"instancetype": {"revisionName": "chosen"}}})));
    let after = status_after(&w).status.unwrap().instancetype_ref.unwrap();
    assert_eq!(after.controller_revision_ref.unwrap().name.as_deref(), Some("chosen"));
}

#[test]
fn a_revision_of_the_same_name_that_holds_something_else_is_refused() {
    let mut w = typed_world("Always");
    let mut other = instancetype();
    other.spec.cpu.guest = 64;
    w.revisions = vec![Arc::new(::instancetype::capture(&w.vm, &other))];
    assert!(failure(&w).unwrap().1.contains("exists with different content"));
}

#[test]
fn a_revision_of_an_old_version_is_replaced() {
    let mut w = pinned("Manual");
    let old = Arc::make_mut(&mut w.revisions[0]);
    old.metadata.name = Some("old".into());
    old.metadata.uid = Some("old-uid".into());
    old.metadata.labels.as_mut().unwrap().insert("instancetype.kubevirt.io/object-version".into(), "v1alpha2".into());
    let recorded = json!({"status": {"instancetypeRef": {"controllerRevisionRef": {"name": "old"}}}});
    w.vm = Arc::new(with((*w.vm).clone(), recorded));
    let actions = decide(&w);
    let [
        Action::Create { object: Object::Revision(new), .. },
        Action::ReplaceStatus(_),
        Action::Delete { kind: Kind::Revision, name, .. },
    ] = actions.as_slice()
    else {
        panic!("{actions:#?}")
    };
    assert_eq!((new.metadata.name.as_deref(), name.as_str()), (Some(PINNED), "old"));
    let after = status_after(&w).status.unwrap().instancetype_ref.unwrap();
    assert_eq!(after.controller_revision_ref.unwrap().name.as_deref(), Some(PINNED));
}

#[test]
fn by_policy_a_machine_takes_over_what_its_objects_say_and_forgets_them() {
    let network = json!({"defaultNetworkInterface": "masquerade"});
    let policy = |policy: &str| config(json!({"instancetype": {"referencePolicy": policy}, "network": network}));
    for name in ["expand", "expandAll"] {
        let w = World { config: policy(name), ..typed_world("Always") };
        let expanded = machine_after(&w).unwrap();
        assert_eq!((expanded.spec.instancetype.as_ref(), expanded.spec.preference.as_ref()), (None, None));
        let spec = &expanded.spec.template.spec;
        assert_eq!(spec.domain.cpu.as_ref().unwrap().sockets, Some(2));
        assert_eq!(spec.domain.devices.disks[0].device().bus(), Some("sata"));
        let started = World { vm: Arc::new(expanded), instancetype: None, preference: None, ..w };
        assert!(creates(&decide(&started)).is_some());
    }
    let kept = World { config: policy("expand"), ..pinned("Always") };
    assert!(machine_after(&kept).is_none() && creates(&decide(&kept)).is_some(), "what is pinned stays pinned");
    let all = World { config: policy("expandAll"), ..pinned("Always") };
    let forgetting = World { vm: Arc::new(machine_after(&all).unwrap()), ..all };
    let actions = decide(&forgetting);
    let [
        Action::ReplaceStatus(_),
        Action::Delete { kind: Kind::Revision, name: a, .. },
        Action::Delete { kind: Kind::Revision, name: b, .. },
    ] = actions.as_slice()
    else {
        panic!("{actions:#?}")
    };
    assert_eq!((a.as_str(), b.as_str()), (PINNED, PREFERRED));
    let status = status_after(&forgetting).status.unwrap();
    assert_eq!((status.instancetype_ref, status.preference_ref), (None, None));
}

#[test]
fn matchers_lead_to_the_objects_to_look_up() {
    let wanted = crate::vm::wanted(&pinned("Always").vm, None, &BTreeMap::new());
    let instancetype = wanted.instancetype.unwrap();
    assert_eq!((instancetype.cluster, instancetype.name.as_str()), (true, "small"));
    assert!(!wanted.preference.unwrap().cluster);
    assert_eq!(wanted.revisions, [PREFERRED.to_owned(), PINNED.to_owned()].into());
}

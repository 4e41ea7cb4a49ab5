use api::instancetype::VirtualMachineInstancetypeSpec;
use api::v1::VirtualMachine;
use instancetype::{Live, apply_autoattach, capture, instancetype_of, preference_of, upgrade};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::json;

fn vm() -> VirtualMachine {
    serde_json::from_value(json!({"metadata": {"name": "vm", "namespace": "ns", "uid": "vm-uid"}}))
        .expect("an object written here")
}

fn live() -> Live<VirtualMachineInstancetypeSpec> {
    Live {
        kind: "VirtualMachineClusterInstancetype".into(),
        metadata: serde_json::from_value(json!({"name": "small", "uid": "it-uid", "generation": 4}))
            .expect("an object written here"),
        spec: serde_json::from_value(json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}))
            .expect("an object written here"),
    }
}

#[test]
fn a_capture_says_in_its_name_and_labels_what_it_holds_and_gives_it_back() {
    let revision = capture(&vm(), &live());
    assert_eq!(revision.metadata.name.as_deref(), Some("vm-small-v1beta1-it-uid-4"));
    assert_eq!(revision, capture(&vm(), &live()), "the same object, the same revision");
    let labels = revision.metadata.labels.clone().unwrap();
    assert_eq!(labels["instancetype.kubevirt.io/object-generation"], "4");
    assert_eq!(labels["instancetype.kubevirt.io/object-kind"], "VirtualMachineClusterInstancetype");
    assert_eq!(labels["instancetype.kubevirt.io/object-name"], "small");
    assert_eq!(labels["instancetype.kubevirt.io/object-uid"], "it-uid");
    assert_eq!(labels["instancetype.kubevirt.io/object-version"], "v1beta1");
    assert!(machinery::meta::is_controlled_by(&revision.metadata, "vm-uid"));
    assert_eq!(instancetype_of(&revision).unwrap(), live().spec);
    assert_eq!(upgrade(&vm(), &revision).unwrap(), None, "it is of the present version");
}

#[test]
fn long_names_still_make_a_revision_of_a_legal_name() {
    let mut long = live();
    long.metadata.name = Some("x".repeat(250));
    let name = capture(&vm(), &long).metadata.name.unwrap();
    assert!(name.len() <= 253 && name.ends_with("v1beta1-it-uid-4"), "{name}");
}

#[test]
fn an_old_revision_is_captured_anew_in_the_present_version() {
    for (kind, spec) in [
        ("VirtualMachineInstancetype", json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}})),
        ("VirtualMachinePreference", json!({"preferredSubdomain": "here"})),
    ] {
        let old: ControllerRevision = serde_json::from_value(json!({
            "metadata": {"name": "old", "labels": {"instancetype.kubevirt.io/object-version": "v1alpha2"}},
            "revision": 0,
            "data": {"apiVersion": "instancetype.kubevirt.io/v1alpha2", "kind": kind, "spec": spec,
                     "metadata": {"name": "small", "namespace": "ns", "uid": "u", "generation": 1}},
        }))
        .unwrap();
        let new = upgrade(&vm(), &old).unwrap().unwrap();
        assert_eq!(new.metadata.name.as_deref(), Some("vm-small-v1beta1-u-1"));
        assert_eq!(new.data.as_ref().unwrap().0["apiVersion"], "instancetype.kubevirt.io/v1beta1");
        assert!(instancetype_of(&new).is_ok() || preference_of(&new).is_ok());
        assert_eq!(upgrade(&vm(), &new).unwrap(), None);
    }
    let empty = ControllerRevision::default();
    assert!(upgrade(&vm(), &empty).is_err());
}

#[test]
fn only_the_choice_of_unlisted_devices_is_applied_early() {
    let preference = serde_json::from_value(json!({"devices": {
        "preferredAutoattachPodInterface": false, "preferredAutoattachInputDevice": true, "preferredDiskBus": "sata"}}));
    let mut spec = serde_json::from_value(json!({"domain": {"devices": {
        "autoattachPodInterface": true, "disks": [{"name": "a", "disk": {}}]}}}))
    .unwrap();
    apply_autoattach(&preference.unwrap(), &mut spec);
    let devices = &spec.domain.devices;
    assert_eq!(devices.autoattach_pod_interface, Some(true), "the owner's word stands");
    assert_eq!(devices.autoattach_input_device, Some(true));
    assert_eq!(devices.disks[0].device().bus(), None);
}

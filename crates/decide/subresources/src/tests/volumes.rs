use api::config::ClusterConfig;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use json_patch::Patch;
use serde_json::{Value, json};

use super::{merge, vm, vmi};
use crate::lifecycle::Step;
use crate::{Refusal, VolumeChange};

fn config(on: &[&str], off: &[&str]) -> ClusterConfig {
    let configuration = json!({ "developerConfiguration": { "featureGates": on, "disabledFeatureGates": off } });
    ClusterConfig { configuration: serde_json::from_value(configuration).expect("it decodes"), ..Default::default() }
}

fn declared() -> ClusterConfig {
    config(&[], &[])
}

fn requested() -> ClusterConfig {
    config(&["HotplugVolumes"], &[])
}

/// A spec with a disk of the start and a plugged one.
fn spec() -> Value {
    json!({
        "domain": { "devices": { "disks": [{ "name": "root", "disk": {} }, { "name": "data", "disk": { "bus": "scsi" } }] } },
        "volumes": [
            { "name": "root", "persistentVolumeClaim": { "claimName": "root-claim" } },
            { "name": "data", "dataVolume": { "name": "data-dv", "hotpluggable": true } },
        ],
    })
}

fn machine(status: Value) -> VirtualMachine {
    vm(json!({
        "metadata": { "resourceVersion": "7" }, "spec": { "template": { "spec": spec() } }, "status": status,
    }))
}

fn instance(over: Value) -> VirtualMachineInstance {
    let mut base = json!({ "metadata": { "resourceVersion": "7" }, "spec": spec(), "status": { "phase": "Running" } });
    merge(&mut base, over);
    vmi(base)
}

fn adding(name: &str, source: Value) -> VolumeChange {
    let body =
        json!({ "name": name, "disk": { "name": "ignored", "disk": { "bus": "scsi" } }, "volumeSource": source });
    VolumeChange::add(body.to_string().as_bytes()).expect("a request")
}

fn claim(name: &str) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": name } })
}

fn removing(name: &str) -> VolumeChange {
    VolumeChange::remove(json!({ "name": name }).to_string().as_bytes()).expect("a request")
}

/// What a patch leaves behind, applied to the object.
fn applied(object: impl serde::Serialize, patch: &Patch) -> Value {
    let mut object = serde_json::to_value(object).expect("it encodes");
    json_patch::patch(&mut object, patch).expect("it applies");
    object
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

fn code(result: Result<Step, Refusal>) -> (u16, String) {
    let refusal = result.expect_err("it is refused");
    (refusal.code(), refusal.message().to_owned())
}

#[test]
fn a_body_has_to_say_what_is_asked() {
    let disk = json!({ "disk": {} });
    for (body, expected) in [
        (json!(null), "cannot be read"),
        (json!({}), "requires name"),
        (json!({ "name": "a" }), "requires disk"),
        (json!({ "name": "a", "disk": disk }), "requires volumeSource"),
        (json!({ "name": "a", "disk": disk, "volumeSource": {} }), "requires volumeSource"),
    ] {
        let refusal = VolumeChange::add(body.to_string().as_bytes()).expect_err("it is refused");
        assert_eq!(refusal.code(), 400);
        assert!(refusal.message().contains(expected) || body.is_null(), "{body}: {refusal}");
    }
    let refused = |result: Result<VolumeChange, Refusal>| result.expect_err("it is refused").code();
    assert_eq!((refused(VolumeChange::add(b"")), refused(VolumeChange::remove(b" "))), (400, 400));
    assert_eq!(refused(VolumeChange::remove(b"{}")), 400);
    assert!(VolumeChange::remove(b"name: a\ndryRun: [All]\n").expect("YAML").is_dry_run().expect("known"));
    assert!(!removing("a").is_dry_run().expect("known"));
}

#[test]
fn a_machines_template_follows() {
    let vm = machine(json!({}));
    let Step::Vm(patch) = adding("new", claim("c")).of_machine(&vm, &declared()).expect("a step") else { panic!() };
    let spec = applied(&vm, &patch)["spec"]["template"]["spec"].clone();
    assert_eq!(names(&spec["volumes"]), ["root", "data", "new"]);
    let expected = json!({ "name": "new", "persistentVolumeClaim": { "claimName": "c", "hotpluggable": true } });
    assert_eq!(spec["volumes"][2], expected);
    assert_eq!(spec["domain"]["devices"]["disks"][2], json!({ "name": "new", "disk": { "bus": "scsi" } }));
    assert!(patch.to_string().contains("/metadata/resourceVersion"), "it applies to this version only: {patch}");

    for name in ["data", "data-dv"] {
        let Step::Vm(patch) = removing(name).of_machine(&vm, &declared()).expect("a step") else { panic!() };
        let spec = applied(&vm, &patch)["spec"]["template"]["spec"].clone();
        assert_eq!((names(&spec["volumes"]), names(&spec["domain"]["devices"]["disks"])), (vec!["root"], vec!["root"]));
    }
}

#[test]
fn a_drive_keeps_its_place_when_its_medium_comes_and_goes() {
    let mut vm = machine(json!({}));
    let drive = json!({ "name": "drive", "cdrom": { "bus": "sata" } });
    vm.spec.template.spec.domain.devices.disks.push(serde_json::from_value(drive).expect("a disk"));
    let Step::Vm(patch) = adding("drive", claim("iso")).of_machine(&vm, &declared()).expect("a step") else { panic!() };
    let inserted = applied(&vm, &patch);
    let spec = &inserted["spec"]["template"]["spec"];
    assert_eq!(names(&spec["domain"]["devices"]["disks"]), ["root", "data", "drive"]);
    let vm: VirtualMachine = serde_json::from_value(inserted).expect("a VM");
    let Step::Vm(patch) = removing("drive").of_machine(&vm, &declared()).expect("a step") else { panic!() };
    let spec = applied(&vm, &patch)["spec"]["template"]["spec"].clone();
    assert_eq!(names(&spec["domain"]["devices"]["disks"]), ["root", "data", "drive"]);
    assert_eq!(names(&spec["volumes"]), ["root", "data"]);
}

#[test]
fn what_does_not_fit_is_a_conflict() {
    let vm = machine(json!({}));
    for (change, expected) in [
        (adding("data", claim("c")), "Unable to add volume [data] because volume with that name already exists"),
        (adding("new", claim("data-dv")), "Unable to add volume source [data-dv] because it already exists"),
        (adding("new", json!({ "dataVolume": { "name": "root-claim" } })), "Unable to add volume source [root-claim]"),
        (removing("root"), "Unable to remove volume [root] because it is not hotpluggable"),
        (removing("other"), "Unable to remove volume [other] because it does not exist"),
    ] {
        for config in [declared(), requested()] {
            let (code, message) = code(change.of_machine(&vm, &config));
            assert!(code == 409 && message.contains(expected), "{code} {message}");
        }
        let (code, message) = code(change.of_instance(&instance(json!({})), &declared()));
        assert!(code == 409 && message.contains(expected), "{code} {message}");
    }
}

#[test]
fn requests_are_noted_for_the_controller_one_per_volume() {
    let patched = |status: Value, change: &VolumeChange| {
        let vm = machine(status);
        match change.of_machine(&vm, &requested()) {
            Ok(Step::VmStatus(patch)) => Ok(applied(&vm, &patch)["status"]["volumeRequests"].clone()),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.message().to_owned()),
        }
    };
    let (add, remove) = (adding("new", claim("c")), removing("data-dv"));
    let pending = patched(json!({}), &add).expect("noted");
    assert_eq!(pending[0]["addVolumeOptions"]["disk"]["name"], "new");
    let with = |requests: &Value| json!({ "created": true, "volumeRequests": requests });
    let both = patched(with(&pending), &remove).expect("noted");
    assert_eq!(both[1]["removeVolumeOptions"]["name"], "data", "by the volume's own name");
    assert_eq!(both.as_array().expect("a list").len(), 2);
    assert!(patched(with(&pending), &add).expect_err("twice").contains("already exists"));
    assert!(patched(with(&both), &removing("data")).expect_err("twice").contains("already exists"));
    let removing_new = json!([{ "removeVolumeOptions": { "name": "new" } }]);
    assert!(patched(with(&removing_new), &add).expect_err("too early").contains("still being processed"));
    assert_eq!(patched(with(&pending), &removing("new")), Ok(json!([])), "it was never added");
}

#[test]
fn an_instance_of_a_machine_follows_the_machine() {
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "u", "controller": true },
    ] } });
    let change = adding("new", claim("c"));
    let (code_, message) = code(change.of_instance(&instance(owned.clone()), &declared()));
    assert!(code_ == 400 && message.contains("belongs to VirtualMachine vm"), "{message}");
    for (vmi, config) in [(instance(owned), requested()), (instance(json!({})), declared())] {
        let Step::Vmi(patch) = change.of_instance(&vmi, &config).expect("a step") else { panic!() };
        assert_eq!(names(&applied(&vmi, &patch)["spec"]["volumes"]), ["root", "data", "new"]);
    }
    let scheduled = instance(json!({ "status": { "phase": "Scheduled" } }));
    assert_eq!(
        code(change.of_instance(&scheduled, &declared())),
        (409, code(change.of_instance(&scheduled, &declared())).1)
    );
}

#[test]
fn without_a_gate_nothing_is_plugged() {
    let off = config(&[], &["DeclarativeHotplugVolumes"]);
    for change in [adding("new", claim("c")), removing("data")] {
        assert_eq!(code(change.of_machine(&machine(json!({})), &off)).0, 400);
        assert_eq!(code(change.of_instance(&instance(json!({})), &off)).0, 400);
    }
}

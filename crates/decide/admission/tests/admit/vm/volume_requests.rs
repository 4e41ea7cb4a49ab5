//! Volumes to be plugged and unplugged.

use serde_json::{Value, json};

use super::{causes_of, status, update};
use crate::{vm, vmi};

fn add(name: &str, disk: Value) -> Value {
    json!({ "addVolumeOptions": {
        "name": name, "disk": disk, "volumeSource": { "persistentVolumeClaim": { "claimName": "pvc" } },
    } })
}

fn plug(name: &str) -> Value {
    add(name, json!({ "name": name, "disk": { "bus": "scsi" } }))
}

fn unplug(name: &str) -> Value {
    json!({ "removeVolumeOptions": { "name": name } })
}

fn asks(over: Value, requests: Value) -> Value {
    let mut object = vm(over);
    object["status"] = json!({ "ready": true, "volumeRequests": requests });
    object
}

fn told(requests: Value) -> Vec<String> {
    causes_of(status(None, &asks(json!({}), requests), []))
}

fn refused() -> Vec<String> {
    vec!["FieldValueInvalid Status.volumeRequests".to_owned()]
}

#[test]
fn a_request_adds_or_removes_and_does_so_once() {
    let both = {
        let mut both = plug("a");
        machinery::patch::merge(&mut both, &unplug("a"));
        both
    };
    assert_eq!(told(json!([plug("a"), plug("b"), unplug("c")])), Vec::<String>::new());
    assert_eq!(told(json!([plug("a"), unplug("a")])), Vec::<String>::new());
    assert_eq!(told(json!([both])), refused());
    assert_eq!(told(json!([{}])), refused());
    assert_eq!(told(json!([plug("a"), plug("a")])), refused());
    assert_eq!(told(json!([unplug("a"), unplug("a")])), refused());
}

#[test]
fn a_plugged_disk_is_on_a_bus_that_takes_it() {
    let disk = |disk: Value| {
        let mut named = json!({ "name": "a" });
        machinery::patch::merge(&mut named, &disk);
        told(json!([add("a", named)]))
    };
    let fine = [
        json!({ "disk": { "bus": "scsi" } }),
        json!({ "disk": { "bus": "virtio" } }),
        json!({ "lun": { "bus": "scsi" } }),
        json!({ "disk": { "bus": "virtio" }, "dedicatedIOThread": true }),
        json!({ "disk": { "bus": "scsi" }, "bootOrder": 3 }),
    ];
    for good in fine {
        assert_eq!(disk(good.clone()), Vec::<String>::new(), "{good}");
    }
    let broken = [
        json!({ "disk": { "bus": "sata" } }),
        json!({ "disk": {} }),
        json!({ "lun": { "bus": "virtio" } }),
        json!({ "cdrom": { "bus": "sata" } }),
        json!({}),
        json!({ "disk": { "bus": "scsi" }, "dedicatedIOThread": true }),
    ];
    for bad in broken {
        assert_eq!(disk(bad.clone()), refused(), "{bad}");
    }
    let order = disk(json!({ "disk": { "bus": "scsi" }, "bootOrder": 0 }));
    assert_eq!(order.len(), 1, "{order:?}");
}

#[test]
fn a_volume_that_is_there_is_the_same_one() {
    let volume = |claim: &str| {
        json!([
            { "name": "root", "containerDisk": { "image": "registry.example/guest:1" } },
            { "name": "a", "persistentVolumeClaim": { "claimName": claim } },
        ])
    };
    let disks = json!([{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "a", "disk": { "bus": "scsi" } }]);
    let with = |claim: &str| json!({ "spec": { "template": { "spec": { "volumes": volume(claim), "domain": { "devices": { "disks": disks } } } } } });
    let told = |over: Value, world: Vec<Value>| causes_of(status(None, &asks(over, json!([plug("a")])), world));
    assert_eq!(told(with("pvc"), vec![]), Vec::<String>::new());
    assert_eq!(told(with("other"), vec![]), refused());
    let instance = |claim: &str| {
        let mut instance = vmi(with(claim)["spec"]["template"].clone());
        instance["metadata"]["name"] = json!("testvm");
        instance
    };
    assert_eq!(told(json!({}), vec![instance("pvc")]), Vec::<String>::new());
    assert_eq!(told(json!({}), vec![instance("other")]), refused());
    // An instance that goes is not looked at, nor is one of a machine that is not ready.
    let mut going = instance("other");
    going["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:20Z");
    assert_eq!(told(json!({}), vec![going]), Vec::<String>::new());
    let mut not_ready = asks(json!({}), json!([plug("a")]));
    not_ready["status"]["ready"] = json!(false);
    assert_eq!(causes_of(status(None, &not_ready, [instance("other")])), Vec::<String>::new());
}

#[test]
fn what_comes_out_is_judged() {
    // The name of a volume, which becomes the name of a disk.
    let path = "spec.template.spec.domain.devices.disks[1].name";
    assert_eq!(told(json!([plug("not.a.label")])), [format!("FieldValueInvalid {path}")]);
}

#[test]
fn nothing_is_plugged_while_the_guest_moves() {
    let instance = |state: Value| {
        let mut instance = vmi(json!({ "metadata": { "name": "testvm" } }));
        instance["status"] = json!({ "migrationState": state });
        instance
    };
    let told = |state: Value| {
        let object = asks(json!({}), json!([plug("a")]));
        causes_of(status(None, &object, [instance(state)]))
    };
    let start = json!("2023-11-14T22:00:00Z");
    assert_eq!(told(json!({ "startTimestamp": start })), ["FieldValueNotSupported spec"]);
    assert_eq!(told(json!({ "startTimestamp": start, "endTimestamp": start })), Vec::<String>::new());
    assert_eq!(told(json!({ "startTimestamp": "2030-01-01T00:00:00Z" })), Vec::<String>::new());
    assert_eq!(told(json!({})), Vec::<String>::new());
}

#[test]
fn requests_are_looked_at_with_every_change() {
    let mut changed = asks(json!({ "spec": { "runStrategy": "Always" } }), json!([{}]));
    assert_eq!(causes_of(update(&vm(json!({})), &changed, [])), refused());
    changed["status"]["volumeRequests"] = json!([]);
    assert_eq!(causes_of(update(&vm(json!({})), &changed, [])), Vec::<String>::new());
}

//! Changes the system's own components make to instances.

use admission::{Refusal, User, World};
use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{closed, component, config, gated, validity, vmi};

/// A running instance with one disk it was started with and one that was plugged in.
fn running() -> Value {
    vmi(json!({
        "metadata": { "uid": "u" },
        "spec": {
            "volumes": [
                { "name": "root", "containerDisk": { "image": "i:1" } },
                { "name": "data", "persistentVolumeClaim": { "claimName": "c" } },
            ],
            "domain": {
                "cpu": { "sockets": 1, "maxSockets": 4 },
                "memory": { "guest": "1Gi", "maxGuest": "4Gi" },
                "devices": { "disks": [
                    { "name": "root", "disk": { "bus": "virtio" } },
                    { "name": "data", "disk": { "bus": "scsi" } },
                ] },
            },
        },
        "status": {
            "phase": "Running", "nodeName": "n1",
            "volumeStatus": [{ "name": "root", "target": "vda" }, { "name": "data", "target": "sda", "hotplugVolume": {} }],
        },
    }))
}

fn changed(over: Value) -> Value {
    let mut object = running();
    machinery::patch::merge(&mut object, &over);
    object
}

fn update(new: &Value, config: &ClusterConfig) -> Vec<String> {
    let controller: User = component("kubevirt-controller");
    let world = World::default();
    let causes = match validity("virtualmachineinstances", &controller, Some(&running()), new, config, &world) {
        Ok(judged) => judged.causes,
        Err(Refusal::Invalid(causes)) => causes,
        Err(Refusal::BadRequest(message)) => panic!("{message}"),
    };
    causes.iter().map(|e| format!("{} {}", e.cause.as_str().trim_start_matches("FieldValue"), e.field)).collect()
}

fn check(rule: &str, broken: Value, error: &str, fine: Value) {
    assert_eq!(update(&fine, &config()), Vec::<String>::new(), "{rule}: the neighbour passes");
    assert_eq!(update(&broken, &config()), [error], "{rule}");
}

fn domain(domain: Value) -> Value {
    changed(json!({ "spec": { "domain": domain } }))
}

/// The volumes and disks the instance has, after a change to their lists.
fn storage(change: impl FnOnce(&mut Vec<Value>, &mut Vec<Value>)) -> Value {
    let mut object = running();
    let list =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().expect("a list");
    let mut volumes = list(&object, "/spec/volumes");
    let mut disks = list(&object, "/spec/domain/devices/disks");
    change(&mut volumes, &mut disks);
    object["spec"]["volumes"] = volumes.into();
    object["spec"]["domain"]["devices"]["disks"] = disks.into();
    object
}

/// A further volume with this source and a further disk, if any.
fn plugged(source: Value, disk: Option<Value>) -> Value {
    storage(|volumes, disks| {
        let named = |over: &Value| {
            let mut named = json!({ "name": "new" });
            machinery::patch::merge(&mut named, over);
            named
        };
        volumes.push(named(&source));
        disks.extend(disk.iter().map(named));
    })
}

fn claim() -> Value {
    json!({ "persistentVolumeClaim": { "claimName": "n" } })
}

fn scsi() -> Option<Value> {
    Some(json!({ "disk": { "bus": "scsi" } }))
}

#[test]
fn a_guest_grows_up_to_what_it_was_started_with() {
    check(
        "sockets",
        domain(json!({ "cpu": { "maxSockets": 8 } })),
        "Invalid spec.domain.cpu.maxSockets",
        domain(json!({ "cpu": { "sockets": 2 } })),
    );
    check(
        "memory",
        domain(json!({ "memory": { "maxGuest": "8Gi" } })),
        "Invalid spec.domain.memory.maxGuest",
        domain(json!({ "memory": { "guest": "2Gi", "maxGuest": "4096Mi" } })),
    );
    let given_up = domain(json!({ "memory": { "maxGuest": null } }));
    assert_eq!(update(&given_up, &config()), Vec::<String>::new(), "only when both are set");
}

#[test]
fn utility_volumes_are_behind_a_gate() {
    let with = |volumes: Value| changed(json!({ "spec": { "utilityVolumes": volumes } }));
    let one = with(json!([{ "name": "u", "claimName": "c" }]));
    assert_eq!(update(&one, &config()), ["Invalid spec.utilityVolumes"]);
    let open = gated(&["UtilityVolumes"]);
    assert_eq!(update(&one, &open), Vec::<String>::new());
    let refused = [
        (json!([{ "name": "", "claimName": "c" }]), "Required spec.utilityVolumes[0].name"),
        (json!([{ "name": "u", "claimName": "" }]), "Required spec.utilityVolumes[0].claimName"),
        (
            json!([{ "name": "u", "claimName": "c" }, { "name": "u", "claimName": "d" }]),
            // The schema tells first.
            "Duplicate spec.utilityVolumes[1]",
        ),
        (json!([{ "name": "data", "claimName": "c" }]), "Duplicate spec.utilityVolumes[0].name"),
    ];
    for (volumes, error) in refused {
        assert_eq!(update(&with(volumes), &open), [error]);
    }
    let permanent = update(&with(json!([{ "name": "root", "claimName": "c" }])), &open);
    assert_eq!(permanent, ["Duplicate spec.utilityVolumes[0].name", "Invalid spec.utilityVolumes[0]"]);
}

#[test]
fn a_utility_volume_does_not_change() {
    let with = |claim: &str| changed(json!({ "spec": { "utilityVolumes": [{ "name": "u", "claimName": claim }] } }));
    let controller = component("kubevirt-controller");
    let world = World::default();
    let open = gated(&["UtilityVolumes"]);
    let update = |new: &Value| {
        let judged = validity("virtualmachineinstances", &controller, Some(&with("c")), new, &open, &world);
        judged.expect("it is read").causes.iter().map(|error| error.field.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(update(&with("d")), ["spec.utilityVolumes[0]"]);
    let mut kept = with("c");
    kept["spec"]["terminationGracePeriodSeconds"] = 5.into();
    assert_eq!(update(&kept), Vec::<String>::new());
}

#[test]
fn each_volume_is_used_once() {
    check("a volume more", plugged(claim(), None), "Invalid spec.volumes", plugged(claim(), scsi()));
    check(
        "a disk more",
        storage(|_, disks| disks.push(json!({ "name": "new", "disk": { "bus": "scsi" } }))),
        "Invalid spec.volumes",
        storage(|_, disks| disks.push(json!({ "name": "new", "cdrom": { "bus": "sata" } }))),
    );
    let drive = storage(|_, disks| disks.push(json!({ "name": "new", "cdrom": { "bus": "sata" } })));
    assert_eq!(update(&drive, &closed(&["DeclarativeHotplugVolumes"])), ["Invalid spec.volumes"]);
    let dump = plugged(json!({ "memoryDump": { "claimName": "n" } }), None);
    assert_eq!(update(&dump, &config()), Vec::<String>::new(), "a memory dump needs no disk");
}

#[test]
fn what_the_guest_was_started_with_stays() {
    let same = changed(json!({ "spec": { "terminationGracePeriodSeconds": 5 } }));
    check(
        "the volumes",
        storage(|volumes, disks| {
            volumes.remove(0);
            disks.remove(0);
        }),
        "Invalid spec.volumes",
        storage(|volumes, disks| {
            volumes.remove(1);
            disks.remove(1);
        }),
    );
    check(
        "their sources",
        storage(|volumes, _| volumes[0]["containerDisk"]["image"] = "i:2".into()),
        "Invalid spec.volumes[0]",
        same.clone(),
    );
    check(
        "their disks",
        storage(|_, disks| disks[0]["disk"]["bus"] = "scsi".into()),
        "Invalid spec.domain.devices.disks[0]",
        same,
    );
    let moved = json!({ "status": { "migratedVolumes": [{ "volumeName": "root" }] } });
    let mut object = storage(|volumes, _| volumes[0]["containerDisk"]["image"] = "i:2".into());
    machinery::patch::merge(&mut object, &moved);
    assert_eq!(update(&object, &config()), Vec::<String>::new(), "unless it is on its way elsewhere");
}

#[test]
fn what_was_plugged_in_stays_as_it_is() {
    let other = storage(|volumes, _| volumes[1]["persistentVolumeClaim"]["claimName"] = "d".into());
    let same = changed(json!({ "spec": { "terminationGracePeriodSeconds": 5 } }));
    check("the volume", other.clone(), "Invalid spec.volumes[1]", same.clone());
    let mut moved = other;
    machinery::patch::merge(&mut moved, &json!({ "status": { "migratedVolumes": [{ "volumeName": "data" }] } }));
    assert_eq!(update(&moved, &config()), Vec::<String>::new(), "unless it is on its way elsewhere");
    check(
        "the disk",
        storage(|_, disks| disks[1]["serial"] = "s".into()),
        "Invalid spec.domain.devices.disks[1]",
        same,
    );
    let renamed = storage(|_, disks| disks[1]["name"] = "other".into());
    assert_eq!(update(&renamed, &config()), ["Invalid spec.volumes[1]"], "its disk is gone");
}

#[test]
fn what_is_plugged_in_can_be() {
    let at = "Invalid spec.domain.devices.disks[2]";
    let fine = || plugged(claim(), scsi());
    let with = |disk: Value| plugged(claim(), Some(disk));
    check(
        "a claim, a DataVolume or a memory dump",
        plugged(json!({ "emptyDisk": { "capacity": "1Gi" } }), scsi()),
        "Invalid spec.volumes[2]",
        plugged(json!({ "dataVolume": { "name": "d" } }), scsi()),
    );
    check(
        "with a disk",
        storage(|volumes, disks| {
            volumes.push(json!({ "name": "new", "persistentVolumeClaim": { "claimName": "n" } }));
            disks.push(json!({ "name": "other", "disk": { "bus": "scsi" } }));
        }),
        "Invalid spec.volumes[2]",
        fine(),
    );
    check(
        "on scsi or virtio",
        with(json!({ "disk": { "bus": "sata" } })),
        at,
        with(json!({ "disk": { "bus": "virtio" } })),
    );
    check("a LUN on scsi", with(json!({ "lun": { "bus": "virtio" } })), at, with(json!({ "lun": { "bus": "scsi" } })));
    check("not a CD-ROM", with(json!({ "cdrom": { "bus": "scsi" } })), at, fine());
    check(
        "a thread of its own on virtio",
        with(json!({ "disk": { "bus": "scsi" }, "dedicatedIOThread": true })),
        at,
        with(json!({ "disk": { "bus": "virtio" }, "dedicatedIOThread": true })),
    );
    check(
        "an order from 1",
        with(json!({ "disk": { "bus": "scsi" }, "bootOrder": 0 })),
        "Invalid spec.domain.devices.disks[2].bootOrder",
        with(json!({ "disk": { "bus": "scsi" }, "bootOrder": 1 })),
    );
}

#[test]
fn an_empty_drive_can_be_filled() {
    let old = storage(|_, disks| disks.push(json!({ "name": "cd", "cdrom": { "bus": "sata" } })));
    let mut new = old.clone();
    let volumes = new["spec"]["volumes"].as_array_mut().expect("a list");
    volumes.push(json!({ "name": "cd", "persistentVolumeClaim": { "claimName": "n" } }));
    let controller = component("kubevirt-controller");
    let judged = validity("virtualmachineinstances", &controller, Some(&old), &new, &config(), &World::default());
    assert_eq!(judged.expect("it is read").causes, []);
}

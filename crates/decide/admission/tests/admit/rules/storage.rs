//! Volumes and disks.

use serde_json::{Value, json};

use super::{both, causes, check, devices, disk, gate, interface, row, spec, volume};
use crate::{closed, config, gated, someone, validity, vmi};

fn cloud_init(source: Value) -> Value {
    volume(json!({ "cloudInitNoCloud": source }))
}

fn two_volumes(one: Value, other: Value) -> Value {
    let named = |name: &str, source: &Value| {
        let mut volume = json!({ "name": name });
        machinery::patch::merge(&mut volume, source);
        volume
    };
    let volumes = json!([named("a", &one), named("b", &other)]);
    both(devices(json!({ "disks": null })), spec(json!({ "volumes": volumes })))
}

#[test]
fn volumes() {
    let empty = json!({ "emptyDisk": { "capacity": "1Gi" } });
    let named = |names: [&str; 2]| {
        let volume = |name: &str| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } });
        let disks = if names[0] == names[1] { vec![names[0]] } else { names.to_vec() };
        let disks: Vec<Value> = disks.iter().map(|name| json!({ "name": name })).collect();
        spec(json!({ "volumes": names.map(volume), "domain": { "devices": { "disks": disks } } }))
    };
    let account = |name: &str| json!({ "serviceAccount": { "serviceAccountName": name } });
    let dump = json!({ "memoryDump": { "claimName": "c" } });
    check([
        row("names are unique", named(["a", "a"]), "Invalid spec.volumes[1].name", named(["a", "b"])),
        row("exactly one source, not none", volume(json!({})), "Invalid spec.volumes[0]", volume(empty.clone())),
        row(
            "exactly one source, not two",
            volume(json!({ "emptyDisk": { "capacity": "1Gi" }, "containerDisk": { "image": "i:1" } })),
            "Invalid spec.volumes[0]",
            volume(json!({ "containerDisk": { "image": "i:1" } })),
        ),
        row(
            "a DataVolume is named",
            volume(json!({ "dataVolume": { "name": "" } })),
            "Required spec.volumes[0].dataVolume.name",
            volume(json!({ "dataVolume": { "name": "d" } })),
        ),
        row(
            "a ConfigMap is named",
            volume(json!({ "configMap": {} })),
            "Invalid spec.volumes[0].configMap.name",
            volume(json!({ "configMap": { "name": "c" } })),
        ),
        row(
            "a Secret is named",
            volume(json!({ "secret": {} })),
            "Invalid spec.volumes[0].secret.secretName",
            volume(json!({ "secret": { "secretName": "s" } })),
        ),
        row(
            "a service account is named",
            volume(json!({ "serviceAccount": {} })),
            "Invalid spec.volumes[0].serviceAccount.serviceAccountName",
            volume(account("me")),
        ),
        row(
            "one service account",
            two_volumes(account("me"), account("me")),
            "Invalid spec.volumes",
            two_volumes(account("me"), empty.clone()),
        ),
        row(
            "one memory dump",
            two_volumes(dump.clone(), dump.clone()),
            "Invalid spec.volumes",
            two_volumes(dump, empty),
        ),
        row(
            "no utility volumes from the start",
            spec(json!({ "utilityVolumes": [{ "name": "u", "claimName": "c" }] })),
            "Invalid spec.utilityVolumes",
            spec(json!({ "utilityVolumes": [] })),
        ),
    ]);
}

#[test]
fn paths() {
    let image = |path: &str| volume(json!({ "containerDisk": { "image": "i:1", "path": path } }));
    let at = "Invalid spec.volumes[0].containerDisk.path";
    let shared = |path: &str, disks: Value| {
        let filesystems = json!([{ "name": "root", "virtiofs": {} }]);
        both(
            devices(json!({ "disks": disks, "filesystems": filesystems })),
            volume(json!({ "containerPath": { "path": path } })),
        )
    };
    let on_disk = json!([{ "name": "root" }]);
    let only_disk = both(volume(json!({ "containerPath": { "path": "/data" } })), devices(json!({ "disks": on_disk })));
    check([
        row("a disk's file is not /", image("/"), at, image("/d.img")),
        row("its path is absolute", image("d.img"), at, image("/a/d.img")),
        row("and clean", image("/../d.img"), at, image("/a..b/d.img")),
        row("without empty parts", image("/a//d.img"), at, image("/a/d.img/")),
        row(
            "a path of the container is a file system",
            only_disk,
            "Invalid spec.volumes[0]",
            shared("/data", Value::Null),
        ),
        row(
            "and not a disk as well",
            shared("/data", on_disk),
            "Invalid spec.volumes[0]",
            shared("/data", Value::Null),
        ),
        row(
            "and not KubeVirt's",
            shared("/var/run/kubevirt/sockets", Value::Null),
            "Invalid spec.volumes[0].containerPath.path",
            shared("/var/run/secrets", Value::Null),
        ),
        row(
            "nor libvirt's",
            shared("/var/run/libvirt", Value::Null),
            "Invalid spec.volumes[0].containerPath.path",
            shared("/var/lib", Value::Null),
        ),
    ]);
}

#[test]
fn a_volume_nothing_uses_gets_a_disk_before_it_could_be_refused() {
    let unused = devices(json!({ "disks": [] }));
    assert_eq!(causes(&unused, &config()), Vec::<String>::new());
}

#[test]
fn host_disks_and_metrics() {
    let host = |disk: Value| volume(json!({ "hostDisk": disk }));
    let fine = host(json!({ "path": "/d.img", "type": "DiskOrCreate", "capacity": "1Gi" }));
    let metrics = json!({ "downwardMetrics": {} });
    let metrics_on = |target: Value| both(volume(metrics.clone()), devices(json!({ "disks": [target] })));
    let metrics_disk = json!({ "name": "root", "disk": { "bus": "virtio" } });
    let gates = ["HostDisk", "DownwardMetrics"];
    let two = |other: Value| {
        let disks = json!([{ "name": "a", "disk": { "bus": "virtio" } }, { "name": "b", "disk": { "bus": "virtio" } }]);
        both(two_volumes(metrics.clone(), other), devices(json!({ "disks": disks })))
    };
    check([
        gate("HostDisk", fine.clone(), "Invalid spec.volumes[0]"),
        row(
            "a disk on the node has a path",
            host(json!({ "path": "", "type": "Disk" })),
            "NotFound spec.volumes[0].hostDisk.path",
            host(json!({ "path": "/d.img", "type": "Disk" })),
        )
        .behind(&gates),
        row(
            "and a type",
            host(json!({ "path": "/d.img", "type": "Directory" })),
            "Invalid spec.volumes[0].hostDisk.type",
            fine.clone(),
        )
        .behind(&gates),
        row(
            "and no capacity if it exists",
            host(json!({ "path": "/d.img", "type": "Disk", "capacity": "1Gi" })),
            "Invalid spec.volumes[0].hostDisk.capacity",
            fine,
        )
        .behind(&gates),
        gate("DownwardMetrics", volume(metrics.clone()), "Invalid spec.volumes[0]"),
        row(
            "metrics are on one disk only",
            two(metrics.clone()),
            "Invalid spec.volumes",
            two(json!({ "emptyDisk": { "capacity": "1Gi" } })),
        )
        .behind(&gates),
        row(
            "which is a disk",
            metrics_on(json!({ "name": "root", "cdrom": {} })),
            "Required spec.domain.devices.disks[0].disk",
            metrics_on(metrics_disk.clone()),
        )
        .behind(&gates),
        row(
            "on virtio",
            metrics_on(json!({ "name": "root", "disk": { "bus": "scsi" } })),
            "Invalid spec.domain.devices.disks[0].disk.bus",
            metrics_on(metrics_disk),
        )
        .behind(&gates),
    ]);
}

#[test]
fn cloud_init_data() {
    let at = "Invalid spec.volumes[0].cloudInitNoCloud";
    let long = "x".repeat(2049);
    // 2046 bytes become 2728 characters; 2049 bytes become 2732.
    let encoded_long = "eHh4".repeat(683);
    let encoded = "eHh4".repeat(682);
    let secret = json!({ "name": "s" });
    let some = cloud_init(json!({ "userData": "a" }));
    check([
        row(
            "one source of user data",
            cloud_init(json!({ "userData": "a", "userDataBase64": "YQ==" })),
            at,
            some.clone(),
        ),
        row(
            "a Secret is a source",
            cloud_init(json!({ "userData": "a", "secretRef": secret })),
            at,
            cloud_init(json!({ "secretRef": secret })),
        ),
        row(
            "one source of network data",
            cloud_init(json!({ "networkData": "a", "networkDataBase64": "YQ==" })),
            at,
            cloud_init(json!({ "networkData": "a", "userDataBase64": "YQ==" })),
        ),
        row("some data", cloud_init(json!({ "secretRef": { "name": "" } })), at, some.clone()),
        row(
            "base64",
            cloud_init(json!({ "userDataBase64": "?" })),
            "Invalid spec.volumes[0].cloudInitNoCloud.userDataBase64",
            cloud_init(json!({ "userDataBase64": "YQ\n==\n" })),
        ),
        row(
            "base64 of network data",
            cloud_init(json!({ "networkDataBase64": "?" })),
            "Invalid spec.volumes[0].cloudInitNoCloud.networkDataBase64",
            cloud_init(json!({ "networkDataBase64": "YQ==" })),
        ),
        row(
            "size of user data",
            cloud_init(json!({ "userData": long })),
            at,
            cloud_init(json!({ "userData": long[1..] })),
        ),
        row(
            "size of encoded user data, decoded",
            cloud_init(json!({ "userDataBase64": encoded_long })),
            at,
            cloud_init(json!({ "userDataBase64": encoded })),
        ),
        row(
            "size of network data",
            cloud_init(json!({ "networkData": long })),
            at,
            cloud_init(json!({ "networkData": long[1..] })),
        ),
        row(
            "the other layout has the same rules",
            volume(json!({ "cloudInitConfigDrive": {} })),
            "Invalid spec.volumes[0].cloudInitConfigDrive",
            volume(json!({ "cloudInitConfigDrive": { "userData": "a" } })),
        ),
    ]);
}

#[test]
fn cloud_init_data_is_not_repeated_in_messages() {
    let secret = "hunter2".repeat(300);
    let object = vmi(cloud_init(json!({ "userData": secret })));
    let world = admission::World::default();
    let judged = validity("virtualmachineinstances", &someone(), None, &object, &config(), &world).expect("it is read");
    assert!(!judged.causes[0].to_string().contains("hunter2"));
}

#[test]
fn disks() {
    let two = |names: [&str; 2]| {
        let disks = names.map(|name| json!({ "name": name, "disk": { "bus": "virtio" } }));
        let volumes = ["root", "data"].map(|name| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } }));
        spec(json!({ "volumes": volumes, "domain": { "devices": { "disks": disks } } }))
    };
    let name = |name: &str| {
        let volumes = json!([{ "name": name, "emptyDisk": { "capacity": "1Gi" } }]);
        both(spec(json!({ "volumes": volumes })), devices(json!({ "disks": [{ "name": name }] })))
    };
    let address = |bus: &str, address: &str| disk(json!({ "disk": { "bus": bus, "pciAddress": address } }));
    let pci = "Invalid spec.domain.devices.disks[0].disk.pciAddress";
    let cdrom = |bus: &str| disk(json!({ "disk": null, "cdrom": { "bus": bus } }));
    let lun = |source: Value| both(volume(source), disk(json!({ "disk": null, "lun": { "bus": "scsi" } })));
    check([
        row(
            "names are unique",
            two(["root", "root"]),
            "Invalid spec.domain.devices.disks[1].name",
            two(["root", "data"]),
        ),
        row("names are labels", name("My_Disk"), "Invalid spec.domain.devices.disks[0].name", name("my-disk")),
        row(
            "a disk has a volume",
            two(["root", "other"]),
            "Invalid spec.domain.devices.disks[1].name",
            two(["data", "root"]),
        ),
        row(
            "one target",
            disk(json!({ "cdrom": { "bus": "sata" } })),
            "Invalid spec.domain.devices.disks[0]",
            cdrom("sata"),
        ),
        row("a PCI address is virtio's", address("scsi", "0000:81:01.0"), pci, address("virtio", "0000:81:01.0")),
        row("and has a form", address("virtio", "0000:81:1.0"), pci, address("virtio", "0000:81:01.7")),
        row(
            "a bus is known",
            disk(json!({ "disk": { "bus": "pata" } })),
            "Invalid spec.domain.devices.disks[0].disk.bus",
            disk(json!({ "disk": { "bus": "usb" } })),
        ),
        row(
            "ide is gone",
            disk(json!({ "disk": { "bus": "ide" } })),
            "Invalid spec.domain.devices.disks[0].disk.bus",
            disk(json!({ "disk": { "bus": "sata" } })),
        ),
        row(
            "a CD-ROM is not on virtio",
            cdrom("virtio"),
            "Invalid spec.domain.devices.disks[0].cdrom.bus",
            cdrom("scsi"),
        ),
        row(
            "a read-only disk is not on sata",
            disk(json!({ "disk": { "bus": "sata", "readonly": true } })),
            "Invalid spec.domain.devices.disks[0].disk.bus",
            disk(json!({ "disk": { "bus": "scsi", "readonly": true } })),
        ),
        row(
            "a thread of its own is virtio's",
            disk(json!({ "disk": { "bus": "sata" }, "dedicatedIOThread": true })),
            "NotSupported spec.domain.devices.disks[0].dedicatedIOThread",
            disk(json!({ "dedicatedIOThread": true })),
        ),
        row(
            "a LUN is a claim's",
            lun(json!({ "emptyDisk": { "capacity": "1Gi" } })),
            "Invalid spec.domain.devices.disks[0].lun",
            lun(json!({ "persistentVolumeClaim": { "claimName": "c" } })),
        ),
    ]);
}

#[test]
fn an_empty_drive_is_a_cdrom_behind_a_gate() {
    let drives = json!([{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "cd", "cdrom": {} }]);
    let empty = devices(json!({ "disks": drives }));
    assert_eq!(causes(&empty, &config()), Vec::<String>::new());
    let refused = causes(&empty, &closed(&["DeclarativeHotplugVolumes"]));
    assert_eq!(refused, ["Invalid spec.domain.devices.disks[1].name"]);
}

#[test]
fn disk_options() {
    let reservation = both(
        volume(json!({ "persistentVolumeClaim": { "claimName": "c" } })),
        disk(json!({ "disk": null, "lun": { "bus": "scsi", "reservation": true } })),
    );
    let mut reserving = config();
    let configuration = &mut reserving.configuration;
    configuration.persistent_reservation_configuration.get_or_insert_default().enabled = Some(true);
    let refused = causes(&reservation, &config());
    assert_eq!(refused, ["Invalid spec.domain.devices.disks[0].lun.reservation"]);
    assert_eq!(causes(&reservation, &reserving), Vec::<String>::new());
    check([
        row(
            "serial number",
            disk(json!({ "serial": "a/b" })),
            "Invalid spec.domain.devices.disks[0].serial",
            disk(json!({ "serial": "A_b.1+2-3" })),
        ),
        row(
            "length of the serial number",
            disk(json!({ "serial": "s".repeat(257) })),
            "Invalid spec.domain.devices.disks[0].serial",
            disk(json!({ "serial": "s".repeat(256) })),
        ),
        row(
            "cache mode",
            disk(json!({ "cache": "sometimes" })),
            "Invalid spec.domain.devices.disks[0].cache",
            disk(json!({ "cache": "writeback" })),
        ),
        row(
            "IO mode",
            disk(json!({ "io": "fast" })),
            "NotSupported spec.domain.devices.disks[0].io",
            disk(json!({ "io": "threads" })),
        ),
        row(
            "error policy",
            disk(json!({ "errorPolicy": "cry" })),
            "Invalid spec.domain.devices.disks[0].errorPolicy",
            disk(json!({ "errorPolicy": "report" })),
        ),
    ]);
}

#[test]
fn block_sizes() {
    let size = |size: Value| disk(json!({ "blockSize": size }));
    let custom = |logical: u64, physical: u64| size(json!({ "custom": { "logical": logical, "physical": physical } }));
    let sata = |logical: u64| {
        let custom = json!({ "logical": logical, "physical": 4096 });
        disk(json!({ "disk": { "bus": "sata" }, "blockSize": { "custom": custom } }))
    };
    let discard = |granularity: u64| {
        size(json!({ "custom": { "logical": 512, "physical": 512, "discardGranularity": granularity } }))
    };
    let logical = "Invalid spec.domain.devices.disks[0].blockSize.custom.logical";
    let physical = "Invalid spec.domain.devices.disks[0].blockSize.custom.physical";
    let both_kinds = |enabled: bool| {
        let custom = json!({ "logical": 512, "physical": 512 });
        size(json!({ "custom": custom, "matchVolume": { "enabled": enabled } }))
    };
    check([
        row("one kind", both_kinds(true), "Invalid spec.domain.devices.disks[0].blockSize", both_kinds(false)),
        row("logical is not above physical", custom(4096, 512), logical, custom(512, 4096)),
        row("sata knows 512", sata(1024), logical, sata(512)),
        row(
            "what is discarded is whole blocks",
            discard(1000),
            "Invalid spec.domain.devices.disks[0].blockSize.custom.discardGranularity",
            discard(1024),
        ),
        row("not below 512", custom(256, 512), logical, custom(512, 512)),
        row("not above 2 MiB", custom(512, 4_194_304), physical, custom(512, 2_097_152)),
        row("powers of two", custom(512, 1536), physical, custom(1024, 2048)),
    ]);
}

#[test]
fn boot_order() {
    let orders = |disk_order: u64, interface_order: u64| {
        both(disk(json!({ "bootOrder": disk_order })), interface(json!({ "bootOrder": interface_order })))
    };
    check([
        row("from 1", orders(0, 1), "Invalid spec.domain.devices.disks[0].bootOrder", orders(1, 2)),
        row("interfaces too", orders(1, 0), "Invalid spec.domain.devices.interfaces[0].bootOrder", orders(1, 2)),
        row("once", orders(1, 1), "Invalid spec.domain.devices.interfaces[0].bootOrder", orders(2, 1)),
    ]);
}

#[test]
fn file_systems_of_claims() {
    let filesystems = json!([{ "name": "root", "virtiofs": {} }]);
    let shared = |source: Value| both(devices(json!({ "disks": null, "filesystems": filesystems })), volume(source));
    check([gate(
        "EnableVirtioFsStorageVolumes",
        shared(json!({ "dataVolume": { "name": "d" } })),
        "Invalid spec.domain.devices.filesystems",
    )]);
    let secret = shared(json!({ "secret": { "secretName": "s" } }));
    assert_eq!(causes(&secret, &gated(&[])), Vec::<String>::new());
}

//! Volumes, disks, networks, interfaces and the kernel.

use serde_json::{Value, json};

use super::{check, disk, domain, interface, row, spec, volume};
use crate::{create_vmi, told, vmi};

fn cloud_init(source: Value) -> Value {
    volume(json!({ "cloudInitNoCloud": source }))
}

fn kernel(boot: Value) -> Value {
    domain(json!({ "firmware": { "kernelBoot": boot } }))
}

#[test]
fn volumes() {
    let named = |names: [&str; 2]| {
        let volume = |name: &str| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } });
        let disks = if names[0] == names[1] { vec![names[0]] } else { names.to_vec() };
        let disks: Vec<Value> = disks.iter().map(|name| json!({ "name": name })).collect();
        spec(json!({ "volumes": names.map(volume), "domain": { "devices": { "disks": disks } } }))
    };
    let image = |path: &str| volume(json!({ "containerDisk": { "image": "i:1", "path": path } }));
    check([
        row("names are unique", named(["a", "a"]), "FieldValueInvalid spec.volumes[1].name", named(["a", "b"])),
        row(
            "exactly one source, not none",
            volume(json!({})),
            "FieldValueInvalid spec.volumes[0]",
            volume(json!({ "emptyDisk": { "capacity": "1Gi" } })),
        ),
        row(
            "exactly one source, not two",
            volume(json!({ "emptyDisk": { "capacity": "1Gi" }, "containerDisk": { "image": "i:1" } })),
            "FieldValueInvalid spec.volumes[0]",
            volume(json!({ "containerDisk": { "image": "i:1" } })),
        ),
        row(
            "a container disk has an image",
            volume(json!({ "containerDisk": { "image": "" } })),
            "FieldValueRequired spec.volumes[0].containerDisk.image",
            volume(json!({ "containerDisk": { "image": "i" } })),
        ),
        row(
            "a disk's file is not /",
            image("/"),
            "FieldValueInvalid spec.volumes[0].containerDisk.path",
            image("/d.img"),
        ),
        row(
            "its path is absolute",
            image("d.img"),
            "FieldValueInvalid spec.volumes[0].containerDisk.path",
            image("/a/d.img"),
        ),
        row(
            "and clean",
            image("/../d.img"),
            "FieldValueInvalid spec.volumes[0].containerDisk.path",
            image("/a..b/d.img"),
        ),
        row(
            "an empty disk has a size",
            volume(json!({ "emptyDisk": { "capacity": "0" } })),
            "FieldValueInvalid spec.volumes[0].emptyDisk.capacity",
            volume(json!({ "emptyDisk": { "capacity": 1_000_000 } })),
        ),
    ]);
}

#[test]
fn cloud_init_data() {
    let long = "x".repeat(2049);
    // 2046 bytes become 2728 characters; 2049 bytes become 2732.
    let encoded_long = "eHh4".repeat(683);
    let encoded = "eHh4".repeat(682);
    check([
        row(
            "one source of user data",
            cloud_init(json!({ "userData": "a", "userDataBase64": "YQ==" })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud",
            cloud_init(json!({ "userData": "a", "networkDataBase64": "YQ==" })),
        ),
        row(
            "one source of network data",
            cloud_init(json!({ "networkData": "a", "networkDataBase64": "YQ==" })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud",
            cloud_init(json!({ "networkData": "a" })),
        ),
        row(
            "some data",
            cloud_init(json!({})),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud",
            cloud_init(json!({ "userData": "a" })),
        ),
        row(
            "base64",
            cloud_init(json!({ "userDataBase64": "?" })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud.userDataBase64",
            cloud_init(json!({ "userDataBase64": "YQ==" })),
        ),
        row(
            "size of user data",
            cloud_init(json!({ "userData": long })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud.userData",
            cloud_init(json!({ "userData": long[1..] })),
        ),
        row(
            "size of encoded user data, decoded",
            cloud_init(json!({ "userDataBase64": encoded_long })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud.userDataBase64",
            cloud_init(json!({ "userDataBase64": encoded })),
        ),
        row(
            "size of network data",
            cloud_init(json!({ "networkData": long })),
            "FieldValueInvalid spec.volumes[0].cloudInitNoCloud.networkData",
            cloud_init(json!({ "networkData": long[1..] })),
        ),
    ]);
}

#[test]
fn cloud_init_data_is_not_repeated_in_messages() {
    let secret = "hunter2".repeat(300);
    let errors = create_vmi(&vmi(cloud_init(json!({ "userData": secret })))).expect_err("too long");
    assert!(!errors[0].to_string().contains("hunter2"));
}

#[test]
fn disks() {
    let two = |names: [&str; 2]| {
        let disks = names.map(|name| json!({ "name": name, "disk": { "bus": "virtio" } }));
        let volumes = ["root", "data"].map(|name| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } }));
        spec(json!({ "volumes": volumes, "domain": { "devices": { "disks": disks } } }))
    };
    check([
        row(
            "names are unique",
            two(["root", "root"]),
            "FieldValueInvalid spec.domain.devices.disks[1].name",
            two(["root", "data"]),
        ),
        row(
            "a disk has a volume",
            two(["root", "other"]),
            "FieldValueInvalid spec.domain.devices.disks[1].name",
            two(["data", "root"]),
        ),
        row(
            "one target",
            disk(json!({ "cdrom": { "bus": "sata" } })),
            "FieldValueInvalid spec.domain.devices.disks[0]",
            disk(json!({ "disk": null, "cdrom": { "bus": "sata" } })),
        ),
        row(
            "ide is gone",
            disk(json!({ "disk": { "bus": "ide" } })),
            "FieldValueInvalid spec.domain.devices.disks[0].disk.bus",
            disk(json!({ "disk": { "bus": "sata" } })),
        ),
        row(
            "a CD-ROM is not on virtio",
            disk(json!({ "disk": null, "cdrom": { "bus": "virtio" } })),
            "FieldValueInvalid spec.domain.devices.disks[0].cdrom.bus",
            disk(json!({ "disk": null, "cdrom": { "bus": "scsi" } })),
        ),
        row(
            "a read-only disk is not on sata",
            disk(json!({ "disk": { "bus": "sata", "readonly": true } })),
            "FieldValueInvalid spec.domain.devices.disks[0].disk.bus",
            disk(json!({ "disk": { "bus": "scsi", "readonly": true } })),
        ),
        row(
            "serial number",
            disk(json!({ "serial": "a/b" })),
            "FieldValueInvalid spec.domain.devices.disks[0].serial",
            disk(json!({ "serial": "A_b.1+2-3" })),
        ),
        row(
            "length of the serial number",
            disk(json!({ "serial": "s".repeat(257) })),
            "FieldValueInvalid spec.domain.devices.disks[0].serial",
            disk(json!({ "serial": "s".repeat(256) })),
        ),
        row(
            "cache mode",
            disk(json!({ "cache": "sometimes" })),
            "FieldValueInvalid spec.domain.devices.disks[0].cache",
            disk(json!({ "cache": "writeback" })),
        ),
        row(
            "IO mode",
            disk(json!({ "io": "fast" })),
            "FieldValueNotSupported spec.domain.devices.disks[0].io",
            disk(json!({ "io": "threads" })),
        ),
        row(
            "error policy",
            disk(json!({ "errorPolicy": "cry" })),
            "FieldValueInvalid spec.domain.devices.disks[0].errorPolicy",
            disk(json!({ "errorPolicy": "report" })),
        ),
    ]);
}

#[test]
fn boot_order() {
    let orders = |disk_order: u64, interface_order: u64| {
        let mut both = disk(json!({ "bootOrder": disk_order }));
        machinery::patch::merge(&mut both, &interface(json!({ "bootOrder": interface_order })));
        both
    };
    check([
        row("from 1", orders(0, 1), "FieldValueInvalid spec.domain.devices.disks[0].bootOrder", orders(1, 2)),
        row(
            "to the end of QEMU's numbers",
            orders(1, 1 << 31),
            "FieldValueInvalid spec.domain.devices.interfaces[0].bootOrder",
            orders(1, (1 << 31) - 1),
        ),
        row("once", orders(1, 1), "FieldValueInvalid spec.domain.devices.interfaces[0].bootOrder", orders(2, 1)),
    ]);
}

#[test]
fn direct_kernel_boot() {
    let in_image = |container: Value| kernel(json!({ "kernelArgs": "quiet", "container": container }));
    let fine = in_image(json!({ "image": "i", "kernelPath": "/vmlinuz", "initrdPath": "/boot/initrd" }));
    check([
        row(
            "arguments need a kernel",
            kernel(json!({ "kernelArgs": "quiet" })),
            "FieldValueInvalid spec.domain.firmware.kernelBoot.kernelArgs",
            kernel(json!({})),
        ),
        row(
            "arguments need a kernel in the image",
            in_image(json!({ "image": "i", "initrdPath": "/initrd" })),
            "FieldValueInvalid spec.domain.firmware.kernelBoot.kernelArgs",
            kernel(json!({ "container": { "image": "i", "initrdPath": "/initrd" } })),
        ),
        row(
            "an image",
            in_image(json!({ "image": "", "kernelPath": "/vmlinuz" })),
            "FieldValueRequired spec.domain.firmware.kernelBoot.container.image",
            fine.clone(),
        ),
        row(
            "something to boot",
            kernel(json!({ "container": { "image": "i" } })),
            "FieldValueRequired spec.domain.firmware.kernelBoot.container",
            fine.clone(),
        ),
        row(
            "absolute kernel path",
            in_image(json!({ "image": "i", "kernelPath": "vmlinuz" })),
            "FieldValueInvalid spec.domain.firmware.kernelBoot.container.kernelPath",
            fine.clone(),
        ),
        row(
            "clean initrd path",
            in_image(json!({ "image": "i", "kernelPath": "/vmlinuz", "initrdPath": "/boot/../initrd" })),
            "FieldValueInvalid spec.domain.firmware.kernelBoot.container.initrdPath",
            fine,
        ),
    ]);
}

#[test]
fn networks_and_interfaces() {
    let plugged = |networks: Value, interfaces: Value| {
        spec(json!({ "networks": networks, "domain": { "devices": { "interfaces": interfaces } } }))
    };
    let one = || plugged(json!([{ "name": "a", "pod": {} }]), json!([{ "name": "a", "masquerade": {} }]));
    check([
        row(
            "the guest's network",
            spec(json!({ "networks": [{ "name": "default", "pod": { "vmNetworkCIDR": "10.0.2.0/31" } }] })),
            "FieldValueInvalid spec.networks[0].pod.vmNetworkCIDR",
            spec(json!({ "networks": [{ "name": "default", "pod": { "vmNetworkCIDR": "10.0.2.0/30" } }] })),
        ),
        row(
            "the guest's IPv6 network",
            spec(json!({ "networks": [{ "name": "default", "pod": { "vmIPv6NetworkCIDR": "10.0.2.0/24" } }] })),
            "FieldValueInvalid spec.networks[0].pod.vmIPv6NetworkCIDR",
            spec(json!({ "networks": [{ "name": "default", "pod": { "vmIPv6NetworkCIDR": "fd00::/64" } }] })),
        ),
        row(
            "an interface is bound once",
            interface(json!({ "masquerade": null })),
            "FieldValueInvalid spec.domain.devices.interfaces[0]",
            interface(json!({})),
        ),
        row(
            "state",
            interface(json!({ "state": "sideways" })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].state",
            interface(json!({ "state": "down" })),
        ),
        row(
            "an interface on the Pod network stays",
            interface(json!({ "state": "absent" })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].state",
            interface(json!({ "state": "up" })),
        ),
        row(
            "name",
            plugged(json!([{ "name": "a.b", "pod": {} }]), json!([{ "name": "a.b", "masquerade": {} }])),
            "FieldValueInvalid spec.domain.devices.interfaces[0].name",
            one(),
        ),
        row(
            "model",
            interface(json!({ "model": "carrier-pigeon" })),
            "FieldValueNotSupported spec.domain.devices.interfaces[0].model",
            interface(json!({ "model": "e1000e" })),
        ),
        row(
            "MAC address",
            interface(json!({ "macAddress": "02:42:ac:11:00" })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].macAddress",
            interface(json!({ "macAddress": "02-42-AC-11-00-02" })),
        ),
        row(
            "the Pod's MAC address",
            interface(json!({ "macAddress": "02:00:00:00:00:00" })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].macAddress",
            interface(json!({ "macAddress": "02:00:00:00:00:01" })),
        ),
        row(
            "the Pod's MAC address with dashes",
            interface(json!({ "macAddress": "02-00-00-00-00-00" })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].macAddress",
            interface(json!({ "macAddress": "02-00-00-00-00-01" })),
        ),
    ]);
}

#[test]
fn networks_and_interfaces_belong_together() {
    let plugged = |networks: Value, interfaces: Value| {
        let spec = json!({ "networks": networks, "domain": { "devices": { "interfaces": interfaces } } });
        told(create_vmi(&vmi(json!({ "spec": spec }))))
    };
    let pod = |name: &str| json!({ "name": name, "pod": {} });
    let nic = |name: &str| json!({ "name": name, "masquerade": {} });
    assert_eq!(
        plugged(json!([pod("a"), pod("b")]), json!([nic("a"), nic("b")])),
        ["FieldValueDuplicate spec.networks"],
        "one Pod network"
    );
    assert_eq!(
        plugged(json!([pod("a"), pod("a")]), json!([nic("a")])),
        ["FieldValueDuplicate spec.networks", "FieldValueDuplicate spec.networks[1].name"],
        "a network's name is its own"
    );
    assert_eq!(
        plugged(json!([pod("a")]), json!([nic("a"), nic("a")])),
        ["FieldValueDuplicate spec.domain.devices.interfaces[1].name"],
        "an interface's name is its own"
    );
    assert_eq!(
        plugged(json!([pod("a")]), json!([nic("b")])),
        ["FieldValueRequired spec.networks[0].name", "FieldValueInvalid spec.domain.devices.interfaces[0].name"],
        "both ends of the wire have the same name"
    );
    assert_eq!(
        plugged(json!([{ "name": "a" }]), json!([nic("a")])),
        ["FieldValueRequired spec.networks[0]", "FieldValueInvalid spec.domain.devices.interfaces[0].name"],
        "a network is of some kind, and masquerade works on the Pod's only"
    );
    assert_eq!(plugged(json!([pod("a")]), json!([nic("a")])), Vec::<String>::new());
}

#[test]
fn ports_and_dhcp() {
    let ports = |ports: Value| interface(json!({ "ports": ports }));
    let dhcp = |options: Value| interface(json!({ "dhcpOptions": options }));
    check([
        row(
            "a port is named once",
            ports(json!([{ "name": "http", "port": 80 }, { "name": "http", "port": 81 }])),
            "FieldValueDuplicate spec.domain.devices.interfaces[0].ports[1].name",
            ports(json!([{ "name": "http", "port": 80 }, { "port": 81 }])),
        ),
        row(
            "a port's name",
            ports(json!([{ "name": "this-is-rather-long", "port": 80 }])),
            "FieldValueInvalid spec.domain.devices.interfaces[0].ports[0].name",
            ports(json!([{ "name": "http-1", "port": 80 }])),
        ),
        row(
            "a port has a number",
            ports(json!([{ "name": "http", "port": 0 }])),
            "FieldValueRequired spec.domain.devices.interfaces[0].ports[0].port",
            ports(json!([{ "port": 1 }])),
        ),
        row(
            "of sixteen bits",
            ports(json!([{ "port": 65536 }])),
            "FieldValueInvalid spec.domain.devices.interfaces[0].ports[0].port",
            ports(json!([{ "port": 65535 }])),
        ),
        row(
            "and a protocol",
            ports(json!([{ "port": 80, "protocol": "SCTP" }])),
            "FieldValueInvalid spec.domain.devices.interfaces[0].ports[0].protocol",
            ports(json!([{ "port": 80, "protocol": "UDP" }])),
        ),
        row(
            "private DHCP options are private",
            dhcp(json!({ "privateOptions": [{ "option": 6, "value": "x" }] })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option",
            dhcp(json!({ "privateOptions": [{ "option": 224, "value": "x" }] })),
        ),
        row(
            "and given once",
            dhcp(json!({ "privateOptions": [{ "option": 240, "value": "x" }, { "option": 240, "value": "y" }] })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[1].option",
            dhcp(json!({ "privateOptions": [{ "option": 240, "value": "x" }, { "option": 254, "value": "y" }] })),
        ),
        row(
            "time servers are addresses",
            dhcp(json!({ "ntpServers": ["time.example"] })),
            "FieldValueInvalid spec.domain.devices.interfaces[0].dhcpOptions.ntpServers[0]",
            dhcp(json!({ "ntpServers": ["192.0.2.1"] })),
        ),
    ]);
}

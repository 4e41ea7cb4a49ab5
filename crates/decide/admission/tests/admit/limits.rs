//! What is valid and no guest of this build could run with.

use serde_json::{Value, json};

use crate::{config, create_vmi, someone, told, validity, vmi};

/// Valid, not supported for this reason, and its nearest neighbour that is.
fn limit(rule: &str, broken: Value, error: &str, fine: Value) {
    let broken = vmi(broken);
    let world = admission::World::default();
    let judged = validity("virtualmachineinstances", &someone(), None, &broken, &config(), &world).expect("it is read");
    assert_eq!(judged.causes, [], "{rule}: it is valid");
    assert_eq!(told(create_vmi(&broken)), [error], "{rule}");
    assert_eq!(told(create_vmi(&vmi(fine))), Vec::<String>::new(), "{rule}: the neighbour passes");
}

fn domain(domain: Value) -> Value {
    json!({ "spec": { "domain": domain } })
}

fn devices(devices: Value) -> Value {
    domain(json!({ "devices": devices }))
}

fn volume(source: Value) -> Value {
    let mut volume = json!({ "name": "root" });
    machinery::patch::merge(&mut volume, &source);
    json!({ "spec": { "volumes": [volume] } })
}

fn network(pod: Value) -> Value {
    json!({ "spec": { "networks": [{ "name": "default", "pod": pod }] } })
}

#[test]
fn a_guest_may_ask_for_more_cpus_than_any_node_has() {
    // As much as the schema's 32 bits take.
    let most = i32::MAX;
    for cpu in [
        json!({ "sockets": 1_000_000 }),
        json!({ "cores": 1_000_000 }),
        json!({ "sockets": most, "cores": most, "threads": most }),
    ] {
        let judged = told(create_vmi(&vmi(domain(json!({ "cpu": cpu.clone() })))));
        assert_eq!(judged, Vec::<String>::new(), "{cpu}");
    }
}

#[test]
fn amounts_and_names_that_nothing_can_run_with() {
    let order =
        |order: u64| devices(json!({ "interfaces": [{ "name": "default", "masquerade": {}, "bootOrder": order }] }));
    let mac =
        |mac: &str| devices(json!({ "interfaces": [{ "name": "default", "masquerade": {}, "macAddress": mac }] }));
    limit(
        "the guest's memory has a unit",
        domain(json!({ "memory": { "guest": "128" } })),
        "FieldValueInvalid spec.domain.memory.guest",
        domain(json!({ "memory": { "guest": "1Mi" } })),
    );
    limit(
        "the topology leaves room for what could exist",
        domain(json!({ "cpu": { "sockets": 1, "cores": 4, "maxSockets": 1025 } })),
        "FieldValueInvalid spec.domain.cpu.maxSockets",
        domain(json!({ "cpu": { "sockets": 1, "cores": 4, "maxSockets": 1024 } })),
    );
    limit(
        "the guest's UUID",
        domain(json!({ "firmware": { "uuid": "mine" } })),
        "FieldValueInvalid spec.domain.firmware.uuid",
        domain(json!({ "firmware": { "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223" } })),
    );
    limit(
        "the grace period",
        json!({ "spec": { "terminationGracePeriodSeconds": -1 } }),
        "FieldValueInvalid spec.terminationGracePeriodSeconds",
        json!({ "spec": { "terminationGracePeriodSeconds": 0 } }),
    );
    limit(
        "a node selector's key",
        json!({ "spec": { "nodeSelector": { "a b": "c" } } }),
        "FieldValueInvalid spec.nodeSelector[a b]",
        json!({ "spec": { "nodeSelector": { "example.com/a": "c" } } }),
    );
    limit(
        "the end of QEMU's numbers",
        order(1 << 31),
        "FieldValueInvalid spec.domain.devices.interfaces[0].bootOrder",
        order((1 << 31) - 1),
    );
    limit(
        "a MAC address as libvirt writes it",
        mac("0242.ac11.0002"),
        "FieldValueInvalid spec.domain.devices.interfaces[0].macAddress",
        mac("02-42-ac-11-00-02"),
    );
}

#[test]
fn networks_without_room_for_both_ends() {
    limit(
        "the guest's network",
        network(json!({ "vmNetworkCIDR": "10.0.2.0/31" })),
        "FieldValueInvalid spec.networks[0].pod.vmNetworkCIDR",
        network(json!({ "vmNetworkCIDR": "10.0.2.0/30" })),
    );
    limit(
        "the guest's IPv6 network",
        network(json!({ "vmIPv6NetworkCIDR": "10.0.2.0/24" })),
        "FieldValueInvalid spec.networks[0].pod.vmIPv6NetworkCIDR",
        network(json!({ "vmIPv6NetworkCIDR": "fd00::/64" })),
    );
}

#[test]
fn disks_and_kernels_that_are_not_there() {
    let boot = |boot: Value| domain(json!({ "firmware": { "kernelBoot": boot } }));
    limit(
        "an image has a name",
        volume(json!({ "containerDisk": { "image": "" } })),
        "FieldValueRequired spec.volumes[0].containerDisk.image",
        volume(json!({ "containerDisk": { "image": "i" } })),
    );
    limit(
        "an empty disk has a size",
        volume(json!({ "emptyDisk": { "capacity": "0" } })),
        "FieldValueInvalid spec.volumes[0].emptyDisk.capacity",
        volume(json!({ "emptyDisk": { "capacity": 1_000_000 } })),
    );
    limit(
        "arguments are for a kernel",
        boot(json!({ "kernelArgs": "quiet", "container": { "image": "i", "initrdPath": "/initrd" } })),
        "FieldValueInvalid spec.domain.firmware.kernelBoot.kernelArgs",
        boot(json!({ "container": { "image": "i", "initrdPath": "/initrd" } })),
    );
    let drive = json!([{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "cd", "cdrom": {} }]);
    limit(
        "a drive has a medium",
        devices(json!({ "disks": drive })),
        "FieldNotSupportedByThisBuild spec.domain.devices.disks[1]",
        devices(json!({ "disks": [{ "name": "root", "disk": { "bus": "virtio" } }] })),
    );
    let seeds = |other: Value| {
        json!({ "spec": {
            "volumes": [{ "name": "a", "cloudInitNoCloud": { "userData": "a" } }, other],
            "domain": { "devices": { "disks": null } },
        } })
    };
    limit(
        "one set of cloud-init data",
        seeds(json!({ "name": "b", "cloudInitNoCloud": { "userData": "b" } })),
        "FieldNotSupportedByThisBuild spec.volumes[1]",
        seeds(json!({ "name": "b", "emptyDisk": { "capacity": "1Gi" } })),
    );
}

#[test]
fn what_this_build_cannot_do_is_refused_where_it_is_asked_for() {
    let refused = |over: Value| told(create_vmi(&vmi(over)));
    let not = |field: &str| vec![format!("FieldNotSupportedByThisBuild {field}")];
    assert_eq!(refused(devices(json!({ "tpm": {} }))), not("spec.domain.devices.tpm"));
    assert_eq!(
        refused(volume(json!({ "serviceAccount": { "serviceAccountName": "a" } }))),
        not("spec.volumes[0].serviceAccount")
    );
    let probe = json!({ "spec": { "livenessProbe": { "tcpSocket": { "port": 80 } } } });
    assert_eq!(refused(probe), not("spec.livenessProbe"));
}

//! One row per rule: what breaks it, what is said, and the nearest thing that passes.

use serde_json::{Value, json};

use crate::{create_vmi, told, vmi};

struct Row {
    rule: &'static str,
    broken: Value,
    error: &'static str,
    fine: Value,
}

fn check(rows: impl IntoIterator<Item = Row>) {
    for Row { rule, broken, error, fine } in rows {
        assert_eq!(told(create_vmi(&vmi(fine))), Vec::<String>::new(), "{rule}: the neighbour passes");
        assert_eq!(told(create_vmi(&vmi(broken))), [error], "{rule}");
    }
}

fn row(rule: &'static str, broken: Value, error: &'static str, fine: Value) -> Row {
    Row { rule, broken, error, fine }
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

fn domain(domain: Value) -> Value {
    spec(json!({ "domain": domain }))
}

/// The one disk, changed.
fn disk(over: Value) -> Value {
    let mut disk = json!({ "name": "root", "disk": { "bus": "virtio" } });
    machinery::patch::merge(&mut disk, &over);
    domain(json!({ "devices": { "disks": [disk] } }))
}

/// The one interface, changed.
fn interface(over: Value) -> Value {
    let mut interface = json!({ "name": "default", "masquerade": {} });
    machinery::patch::merge(&mut interface, &over);
    domain(json!({ "devices": { "interfaces": [interface] } }))
}

/// The one volume, of this source.
fn volume(source: Value) -> Value {
    let mut volume = json!({ "name": "root" });
    machinery::patch::merge(&mut volume, &source);
    spec(json!({ "volumes": [volume] }))
}

fn cloud_init(source: Value) -> Value {
    volume(json!({ "cloudInitNoCloud": source }))
}

fn kernel(boot: Value) -> Value {
    domain(json!({ "firmware": { "kernelBoot": boot } }))
}

#[test]
fn names() {
    check([
        row(
            "host name",
            spec(json!({ "hostname": "a.b" })),
            "FieldValueInvalid spec.hostname",
            spec(json!({ "hostname": "a-b" })),
        ),
        row(
            "subdomain",
            spec(json!({ "subdomain": "a_b" })),
            "FieldValueInvalid spec.subdomain",
            spec(json!({ "subdomain": "a.b" })),
        ),
        row(
            "service account",
            spec(json!({ "serviceAccountName": "Me" })),
            "FieldValueInvalid spec.serviceAccountName",
            spec(json!({ "serviceAccountName": "me" })),
        ),
    ]);
}

#[test]
fn dns() {
    let searches: Vec<String> = (0..7).map(|i| format!("s{i}.example")).collect();
    let long = vec!["a".repeat(60); 5];
    check([
        row(
            "policy",
            spec(json!({ "dnsPolicy": "Sometimes" })),
            "FieldValueNotSupported spec.dnsPolicy",
            spec(json!({ "dnsPolicy": "Default" })),
        ),
        row(
            "policy None without configuration",
            spec(json!({ "dnsPolicy": "None" })),
            "FieldValueRequired spec.dnsConfig",
            spec(json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["192.0.2.1"] } })),
        ),
        row(
            "policy None without name servers",
            spec(json!({ "dnsPolicy": "None", "dnsConfig": {} })),
            "FieldValueRequired spec.dnsConfig.nameservers",
            spec(json!({ "dnsPolicy": "Default", "dnsConfig": {} })),
        ),
        row(
            "number of name servers",
            spec(json!({ "dnsConfig": { "nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] } })),
            "FieldValueInvalid spec.dnsConfig.nameservers",
            spec(json!({ "dnsConfig": { "nameservers": ["192.0.2.1", "192.0.2.2", "2001:db8::1"] } })),
        ),
        row(
            "a name server is an address",
            spec(json!({ "dnsConfig": { "nameservers": ["dns.example"] } })),
            "FieldValueInvalid spec.dnsConfig.nameservers[0]",
            spec(json!({ "dnsConfig": { "nameservers": ["192.0.2.1"] } })),
        ),
        row(
            "number of searches",
            spec(json!({ "dnsConfig": { "searches": searches } })),
            "FieldValueInvalid spec.dnsConfig.searches",
            spec(json!({ "dnsConfig": { "searches": searches[..6] } })),
        ),
        row(
            "length of searches",
            spec(json!({ "dnsConfig": { "searches": long } })),
            "FieldValueInvalid spec.dnsConfig.searches",
            spec(json!({ "dnsConfig": { "searches": long[..4] } })),
        ),
        row(
            "a search is a domain",
            spec(json!({ "dnsConfig": { "searches": ["a b"] } })),
            "FieldValueInvalid spec.dnsConfig.searches[0]",
            spec(json!({ "dnsConfig": { "searches": ["a.b"] } })),
        ),
        row(
            "an option has a name",
            spec(json!({ "dnsConfig": { "options": [{ "value": "2" }] } })),
            "FieldValueInvalid spec.dnsConfig.options[0].name",
            spec(json!({ "dnsConfig": { "options": [{ "name": "ndots", "value": "2" }] } })),
        ),
    ]);
}

#[test]
fn resources_and_memory() {
    let requests = |name: &str, amount: &str| domain(json!({ "resources": { "requests": { name: amount } } }));
    let both = |name: &str, request: &str, limit: &str| {
        domain(json!({ "resources": { "requests": { name: request }, "limits": { name: limit } } }))
    };
    check([
        row(
            "a request is not negative",
            requests("memory", "-64Mi"),
            "FieldValueInvalid spec.domain.resources.requests.memory",
            requests("memory", "64Mi"),
        ),
        row(
            "a memory request has a unit",
            requests("memory", "64"),
            "FieldValueInvalid spec.domain.resources.requests.memory",
            requests("memory", "1M"),
        ),
        row(
            "a limit is not negative",
            domain(json!({ "resources": { "limits": { "memory": "-1Gi" } } })),
            "FieldValueInvalid spec.domain.resources.limits.memory",
            domain(json!({ "resources": { "limits": { "memory": "1Gi" } } })),
        ),
        row(
            "memory requested is within its limit",
            both("memory", "2Gi", "1Gi"),
            "FieldValueInvalid spec.domain.resources.requests.memory",
            both("memory", "1Gi", "1Gi"),
        ),
        row(
            "a CPU request is not negative",
            requests("cpu", "-1"),
            "FieldValueInvalid spec.domain.resources.requests.cpu",
            requests("cpu", "1"),
        ),
        row(
            "CPU requested is within its limit",
            both("cpu", "2", "1500m"),
            "FieldValueInvalid spec.domain.resources.requests.cpu",
            both("cpu", "1500m", "1500m"),
        ),
        row(
            "the guest fits into the memory limit",
            domain(json!({ "memory": { "guest": "256Mi" }, "resources": { "limits": { "memory": "128Mi" } } })),
            "FieldValueInvalid spec.domain.memory.guest",
            domain(json!({ "memory": { "guest": "128Mi" }, "resources": { "limits": { "memory": "128Mi" } } })),
        ),
        row(
            "the guest has memory",
            domain(json!({ "memory": null })),
            "FieldValueRequired spec.domain.memory.guest",
            domain(json!({ "memory": null, "resources": { "requests": { "memory": "64Mi" } } })),
        ),
        row(
            "the guest's memory has a unit",
            domain(json!({ "memory": { "guest": "128" } })),
            "FieldValueInvalid spec.domain.memory.guest",
            domain(json!({ "memory": { "guest": "1Mi" } })),
        ),
        row(
            "the topology is of this world",
            domain(json!({ "cpu": { "sockets": 64, "cores": 64 } })),
            "FieldValueInvalid spec.domain.cpu",
            domain(json!({ "cpu": { "sockets": 64, "cores": 8 } })),
        ),
    ]);
}

#[test]
fn machine_and_life_cycle() {
    check([
        row(
            "machine type",
            domain(json!({ "machine": { "type": "pc-i440fx-7.2" } })),
            "FieldValueInvalid spec.domain.machine.type",
            domain(json!({ "machine": { "type": "pc-q35-7.2" } })),
        ),
        row(
            "start strategy",
            spec(json!({ "startStrategy": "Later" })),
            "FieldValueInvalid spec.startStrategy",
            spec(json!({ "startStrategy": "Paused" })),
        ),
        row(
            "eviction strategy",
            spec(json!({ "evictionStrategy": "Perhaps" })),
            "FieldValueInvalid spec.evictionStrategy",
            spec(json!({ "evictionStrategy": "LiveMigrateIfPossible" })),
        ),
        row(
            "grace period",
            spec(json!({ "terminationGracePeriodSeconds": -1 })),
            "FieldValueInvalid spec.terminationGracePeriodSeconds",
            spec(json!({ "terminationGracePeriodSeconds": 0 })),
        ),
        row(
            "a graphics card needs a display",
            domain(json!({ "devices": { "video": { "type": "vga" }, "autoattachGraphicsDevice": false } })),
            "FieldValueInvalid spec.domain.devices.video",
            domain(json!({ "devices": { "video": { "type": "vga" } } })),
        ),
        row(
            "the guest's UUID",
            domain(json!({ "firmware": { "uuid": "mine" } })),
            "FieldValueInvalid spec.domain.firmware.uuid",
            domain(json!({ "firmware": { "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223" } })),
        ),
    ]);
}

#[test]
fn placement() {
    let node = |expression: Value| {
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
        spec(json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } }))
    };
    let required = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let at = |cause: &str, rest: &str| -> &'static str { format!("{cause} {required}{rest}").leak() };
    let preferred = |weight: i32| {
        let term =
            json!({ "weight": weight, "preference": { "matchExpressions": [{ "key": "a", "operator": "Exists" }] } });
        spec(json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [term] } } }))
    };
    let anti = |key: &str| {
        let term = json!({ "topologyKey": key, "labelSelector": {} });
        spec(json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } }))
    };
    let spread = |skew: i32, when: &str| {
        let constraint = json!({ "maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": when });
        spec(json!({ "topologySpreadConstraints": [constraint] }))
    };
    let exists = json!({ "key": "disk", "operator": "Exists" });
    check([
        row(
            "a node selector's key",
            spec(json!({ "nodeSelector": { "a b": "c" } })),
            "FieldValueInvalid spec.nodeSelector[a b]",
            spec(json!({ "nodeSelector": { "example.com/a": "c" } })),
        ),
        row(
            "In needs values",
            node(json!({ "key": "disk", "operator": "In" })),
            at("FieldValueRequired", "[0].matchExpressions[0].values"),
            node(json!({ "key": "disk", "operator": "In", "values": ["ssd"] })),
        ),
        row(
            "Exists takes no values",
            node(json!({ "key": "disk", "operator": "Exists", "values": ["ssd"] })),
            at("FieldValueForbidden", "[0].matchExpressions[0].values"),
            node(exists.clone()),
        ),
        row(
            "Gt takes one value",
            node(json!({ "key": "disks", "operator": "Gt", "values": ["1", "2"] })),
            at("FieldValueRequired", "[0].matchExpressions[0].values"),
            node(json!({ "key": "disks", "operator": "Gt", "values": ["1"] })),
        ),
        row(
            "operators are known",
            node(json!({ "key": "disk", "operator": "Near" })),
            at("FieldValueInvalid", "[0].matchExpressions[0].operator"),
            node(exists),
        ),
        row(
            "weights are 1 to 100",
            preferred(0),
            "FieldValueInvalid spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            preferred(100),
        ),
        row(
            "Pods are near or far in some topology",
            anti(""),
            "FieldValueRequired spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
            anti("kubernetes.io/hostname"),
        ),
        row(
            "skew",
            spread(0, "DoNotSchedule"),
            "FieldValueInvalid spec.topologySpreadConstraints[0].maxSkew",
            spread(1, "DoNotSchedule"),
        ),
        row(
            "what to do about skew",
            spread(1, "Panic"),
            "FieldValueNotSupported spec.topologySpreadConstraints[0].whenUnsatisfiable",
            spread(1, "ScheduleAnyway"),
        ),
    ]);
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
    let orders = |disk_order: i32, interface_order: i32| {
        let mut both = disk(json!({ "bootOrder": disk_order }));
        machinery::patch::merge(&mut both, &interface(json!({ "bootOrder": interface_order })));
        both
    };
    check([
        row("from 1", orders(0, 1), "FieldValueInvalid spec.domain.devices.disks[0].bootOrder", orders(1, 2)),
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

#[test]
fn what_this_build_cannot_do_is_refused_where_it_is_asked_for() {
    let refused = |over: Value| told(create_vmi(&vmi(over)));
    let not = |field: &str| vec![format!("FieldNotSupportedByThisBuild {field}")];
    assert_eq!(refused(disk(json!({ "disk": { "bus": "usb" } }))), not("spec.domain.devices.disks[0].disk.bus"));
    assert_eq!(refused(interface(json!({ "model": "igb" }))), not("spec.domain.devices.interfaces[0].model"));
    assert_eq!(refused(domain(json!({ "devices": { "tpm": {} } }))), not("spec.domain.devices.tpm"));
    assert_eq!(refused(spec(json!({ "evictionStrategy": "LiveMigrate" }))), not("spec.evictionStrategy"));
    assert_eq!(
        refused(volume(json!({ "persistentVolumeClaim": { "claimName": "c" } }))),
        not("spec.volumes[0].persistentVolumeClaim")
    );
    assert_eq!(refused(spec(json!({ "livenessProbe": { "tcpSocket": { "port": 80 } } }))), not("spec.livenessProbe"));
    let sidecar = json!({ "metadata": { "annotations": { "hooks.kubevirt.io/hookSidecars": "[]" } } });
    assert_eq!(refused(sidecar), not("metadata.annotations[hooks.kubevirt.io/hookSidecars]"));
    let drives = spec(json!({
        "volumes": [{ "name": "a", "cloudInitNoCloud": { "userData": "a" } }, { "name": "b", "cloudInitNoCloud": { "userData": "b" } }],
        "domain": { "devices": { "disks": null } },
    }));
    assert_eq!(refused(drives), not("spec.volumes[1]"));
    let empty = spec(
        json!({ "domain": { "devices": { "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "cd", "cdrom": {} }] } } }),
    );
    assert_eq!(refused(empty), not("spec.domain.devices.disks[1]"));
}

#[test]
fn unknown_fields_and_wrong_types_are_refused_with_their_path() {
    let refused = |over: Value| told(create_vmi(&vmi(over)));
    assert_eq!(refused(domain(json!({ "colour": "red" }))), ["FieldValueInvalid spec.domain.colour"]);
    assert_eq!(
        refused(spec(json!({ "terminationGracePeriodSeconds": "soon" }))),
        ["FieldValueTypeInvalid spec.terminationGracePeriodSeconds"]
    );
    assert_eq!(
        refused(disk(json!({ "bootOrder": -1 }))),
        ["FieldValueTypeInvalid spec.domain.devices.disks[0].bootOrder"]
    );
}

#[test]
fn every_error_is_reported_not_only_the_first() {
    let wrong = json!({
        "hostname": "a.b",
        "networks": [{ "name": "default", "pod": {} }],
        "domain": { "memory": { "guest": "1" }, "devices": { "gpus": [{ "name": "g" }] } },
    });
    assert_eq!(
        told(create_vmi(&vmi(spec(wrong)))),
        [
            "FieldNotSupportedByThisBuild spec.domain.devices.gpus",
            "FieldValueInvalid spec.hostname",
            "FieldValueInvalid spec.domain.memory.guest",
        ]
    );
}

//! One row per rule: what breaks it, what is said, and the nearest thing that passes.

mod devices;

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

//! Properties that hold for any object.

use api::v1::VirtualMachineInstance;
use domain::HostFacts;
use netplan::{MacAddr, Observed, ObservedLink, PodLink, PodNet};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{component, config, create_vmi, judge, someone, vmi};

/// Pieces an instance may have, good, bad and unsupported alike. Later ones overrule earlier ones.
fn pieces() -> Vec<Value> {
    let domain = |domain: Value| json!({ "spec": { "domain": domain } });
    let devices = |devices: Value| json!({ "spec": { "domain": { "devices": devices } } });
    let volumes = |volumes: Value| json!({ "spec": { "volumes": volumes } });
    vec![
        domain(json!({ "cpu": { "cores": 2 } })),
        domain(json!({ "cpu": { "sockets": 3, "threads": 2, "model": "host-passthrough" } })),
        domain(json!({ "cpu": { "model": "Haswell" } })),
        domain(json!({ "memory": null, "resources": { "requests": { "memory": "256Mi", "cpu": "1500m" } } })),
        domain(json!({ "resources": { "limits": { "cpu": 3, "memory": "1Gi" } } })),
        domain(json!({ "memory": { "guest": "3.5Gi" } })),
        domain(json!({ "machine": { "type": "pc-q35-7.2" } })),
        domain(json!({ "clock": { "timezone": "Europe/Berlin", "timer": { "pit": { "tickPolicy": "delay" } } } })),
        domain(json!({ "features": { "acpi": { "enabled": false }, "smm": {} } })),
        domain(json!({ "chassis": { "serial": "c" }, "rebootPolicy": "Terminate" })),
        domain(json!({ "firmware": { "serial": "s", "bootloader": { "bios": { "useSerial": true } } } })),
        domain(
            json!({ "firmware": { "kernelBoot": { "kernelArgs": "quiet", "container": { "image": "i", "kernelPath": "/k" } } } }),
        ),
        domain(json!({ "firmware": { "bootloader": { "efi": {} } } })),
        devices(json!({ "disks": null })),
        devices(json!({ "disks": [{ "name": "root", "cdrom": {} }] })),
        devices(
            json!({ "disks": [{ "name": "root", "disk": { "bus": "scsi", "readonly": true }, "serial": "a.b", "bootOrder": 1 }] }),
        ),
        devices(
            json!({ "disks": [{ "name": "root", "disk": { "bus": "sata" }, "cache": "writeback", "io": "threads" }] }),
        ),
        devices(json!({ "disks": [{ "name": "root", "lun": {} }] })),
        devices(json!({ "rng": {}, "video": { "type": "virtio" }, "useVirtioTransitional": true })),
        devices(json!({ "autoattachGraphicsDevice": false, "autoattachSerialConsole": false })),
        devices(json!({ "autoattachMemBalloon": false, "disableHotplug": true, "tpm": {} })),
        devices(
            json!({ "interfaces": [{ "name": "default", "masquerade": {}, "model": "e1000e", "macAddress": "02:00:00:00:00:07", "state": "down" }] }),
        ),
        devices(json!({ "interfaces": [{ "name": "default", "bridge": {} }] })),
        json!({ "spec": {
            "networks": [{ "name": "default", "pod": {} }, { "name": "blue", "multus": { "networkName": "second" } }],
            "domain": { "devices": { "interfaces": [{ "name": "default", "masquerade": {} }, { "name": "blue", "bridge": {} }] } },
        } }),
        json!({ "spec": { "networks": null, "domain": { "devices": { "interfaces": null } } } }),
        json!({ "spec": { "networks": [{ "name": "default", "pod": { "vmNetworkCIDR": "10.11.12.0/24" } }] } }),
        devices(
            json!({ "interfaces": [{ "name": "default", "masquerade": {}, "ports": [{ "port": 80, "name": "http" }], "dhcpOptions": { "ntpServers": ["192.0.2.1"], "privateOptions": [{ "option": 240, "value": "x" }] } }] }),
        ),
        volumes(json!([{ "name": "root", "emptyDisk": { "capacity": "1Gi" } }])),
        volumes(json!([{ "name": "root", "cloudInitNoCloud": { "userData": "#cloud-config" } }])),
        volumes(json!([
            { "name": "root", "containerDisk": { "image": "i", "path": "/disk/d.img" } },
            { "name": "data", "emptyDisk": { "capacity": 5_000_000 } },
        ])),
        json!({ "spec": { "startStrategy": "Paused", "terminationGracePeriodSeconds": 0, "hostname": "web" } }),
        json!({ "spec": { "nodeSelector": { "a": "b" }, "tolerations": [{ "operator": "Exists" }] } }),
        json!({ "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" } } }),
    ]
}

fn any_vmi() -> impl Strategy<Value = Value> {
    let pieces = pieces();
    let count = pieces.len();
    prop::sample::subsequence(pieces, 0..=count.min(8)).prop_map(|chosen| {
        let mut object = vmi(json!({}));
        chosen.iter().for_each(|piece| machinery::patch::merge(&mut object, piece));
        object
    })
}

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9/.:*-]{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[0-9]{1,30}[EPTGMKkmi]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof!["name", "pod", "disk", "bus", "port", "image", "guest", "[a-z]{1,6}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Pointers to every field of a schema, items of lists as the first one.
fn pointers(schema: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        pointers(field, &format!("{at}/{name}"), found);
    }
    if schema["items"].is_object() {
        pointers(&schema["items"], &format!("{at}/0"), found);
    }
}

/// Puts a value at a pointer, making the way to it.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut target = object;
    for part in pointer.split('/').skip(1) {
        target = if part == "0" {
            if !target.is_array() {
                *target = json!([null]);
            }
            let items = target.as_array_mut().expect("it was made one");
            if items.is_empty() {
                items.push(Value::Null);
            }
            &mut items[0]
        } else {
            if !target.is_object() {
                *target = json!({});
            }
            let fields = target.as_object_mut().expect("it was made one");
            fields.entry(part.to_owned()).or_insert(Value::Null)
        };
    }
    *target = value;
}

fn fields_of(kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    pointers(&api::schema::openapi(kind).expect("the kind is ours"), "", &mut found);
    found.retain(|pointer| !pointer.is_empty());
    found
}

/// The Pod's link to the network `blue`.
const BLUE: &str = "pod16477688c0e";

/// Objects of a kind with a few fields replaced by anything.
pub(crate) fn mangled(kind: &'static str, base: Value) -> impl Strategy<Value = Value> {
    let field = prop::sample::select(fields_of(kind));
    prop::collection::vec((field, any_json()), 1..4).prop_map(move |changes| {
        let mut object = base.clone();
        changes.into_iter().for_each(|(pointer, value)| put(&mut object, &pointer, value));
        object
    })
}

/// A Pod's network as the node agent finds it.
fn pod_links() -> Observed {
    let address = "10.244.1.5/24".parse().expect("an address");
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 5]));
    let eth0 = ObservedLink {
        index: 2,
        name: "eth0".to_owned(),
        kind: None,
        mac,
        mtu: 1450,
        up: true,
        master: None,
        addresses: vec![address],
    };
    let blue = ObservedLink { index: 3, name: BLUE.to_owned(), addresses: vec![], ..eth0.clone() };
    Observed { links: vec![eth0, blue], routes: vec![] }
}

/// The same as the launcher finds it.
fn pod_net() -> PodNet {
    let eth0 = PodLink { mtu: 1450, mac: MacAddr([2, 0, 0, 0, 0, 5]) };
    let links = ["eth0", BLUE].map(|name| (name.parse().expect("a name"), eth0)).into();
    PodNet { links, resolv_conf: String::new(), hostname: "web".to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn defaulting_twice_is_defaulting_once(object in any_vmi()) {
        if let Ok(once) = create_vmi(&object) {
            // As the controller, which may bring a status, and so is not given a new one.
            let controller = component("kubevirt-controller");
            let twice = judge("virtualmachineinstances", &controller, None, &once.object, &config());
            prop_assert_eq!(twice.map(|admitted| admitted.object), Ok(once.object));
        }
    }

    #[test]
    fn what_is_admitted_becomes_a_pod_a_network_and_a_domain(object in any_vmi()) {
        if let Ok(admitted) = create_vmi(&object) {
            let mut vmi: VirtualMachineInstance = serde_json::from_value(admitted.object).expect("it decodes");
            vmi.metadata.uid = Some("5d307ca9-b3ef-428c-8861-06e72d69f223".to_owned());
            let pod = render::launcher_pod(&vmi, &config(), &Default::default());
            prop_assert!(pod.is_ok(), "{:?}", pod.err());
            let plan = netplan::phase1(&vmi, &pod_links());
            prop_assert!(plan.is_ok(), "{:?}", plan.err());
            let dhcp = netplan::dhcp::config(&vmi, &pod_net(), &[]);
            prop_assert!(dhcp.is_ok(), "{:?}", dhcp.err());
            let interfaces = netplan::domain_interfaces(&vmi, &pod_net());
            prop_assert!(interfaces.is_ok(), "{:?}", interfaces.err());
            let domain = domain::convert(&vmi, &HostFacts::example(&vmi));
            prop_assert!(domain.is_ok(), "{:?}", domain.err());
        }
    }

    #[test]
    fn no_instance_makes_admission_panic(object in mangled("VirtualMachineInstance", vmi(json!({})))) {
        let _ = create_vmi(&object);
        let _ = judge("virtualmachineinstances", &someone(), Some(&object), &vmi(json!({})), &config());
        let _ = judge("virtualmachineinstances", &component("kubevirt-handler"), Some(&vmi(json!({}))), &object, &config());
    }

    #[test]
    fn no_machine_makes_admission_panic(object in mangled("VirtualMachine", crate::vm(json!({})))) {
        let _ = judge("virtualmachines", &someone(), None, &object, &config());
        let _ = judge("virtualmachines", &someone(), Some(&object), &object, &config());
    }

    #[test]
    fn no_other_object_makes_admission_panic(
        migration in mangled("VirtualMachineInstanceMigration", json!({ "metadata": { "name": "m" }, "spec": {} })),
        kubevirt in mangled("KubeVirt", json!({ "metadata": { "name": "k" }, "spec": {} })),
    ) {
        let _ = judge("virtualmachineinstancemigrations", &someone(), Some(&migration), &migration, &config());
        let _ = judge("kubevirts", &someone(), None, &kubevirt, &config());
    }
}

#[test]
fn the_pieces_make_instances_that_pass_and_instances_that_do_not() {
    let passes = pieces().into_iter().filter(|piece| create_vmi(&vmi(piece.clone())).is_ok()).count();
    assert!(passes >= 20, "only {passes} pieces pass on their own");
    assert!(passes < pieces().len(), "some pieces must be refused");
}

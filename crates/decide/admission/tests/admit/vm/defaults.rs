//! What a machine gets before it is stored.

use serde_json::{Value, json};

use super::{causes_of, cluster_preference, create, update};
use crate::vm;

fn template(object: &Value, world: Vec<Value>) -> Value {
    create(object, world).expect("it is stored").object["spec"]["template"].clone()
}

fn prefers(over: Value) -> Value {
    let mut object = vm(json!({ "spec": { "preference": { "name": "p" } } }));
    machinery::patch::merge(&mut object, &over);
    object
}

#[test]
fn the_preference_decides_on_the_platform() {
    let world = || {
        vec![cluster_preference(
            "p",
            json!({ "preferredArchitecture": "arm64", "machine": { "preferredMachineType": "virt-9.0" } }),
        )]
    };
    let stored = template(&prefers(json!({})), world());
    assert_eq!(stored["spec"]["architecture"], "arm64");
    assert_eq!(stored["spec"]["domain"]["machine"]["type"], "virt-9.0");
    let chosen = json!({ "architecture": "amd64", "domain": { "machine": { "type": "q35" } } });
    let stored = template(&prefers(json!({ "spec": { "template": { "spec": chosen } } })), world());
    assert_eq!(stored["spec"]["architecture"], "amd64");
    assert_eq!(stored["spec"]["domain"]["machine"]["type"], "q35");
    // The machine type of the cluster, for the architecture of the preference.
    let stored =
        template(&prefers(json!({})), vec![cluster_preference("p", json!({ "preferredArchitecture": "arm64" }))]);
    assert_eq!(stored["spec"]["domain"]["machine"]["type"], "virt");
}

#[test]
fn nothing_else_of_a_preference_or_an_instance_type_is_stored() {
    let preference =
        cluster_preference("p", json!({ "devices": { "preferredDiskBus": "scsi" }, "preferredSubdomain": "s" }));
    let stored = template(&prefers(json!({})), vec![preference]);
    let plain = template(&vm(json!({})), vec![]);
    assert_eq!(stored, plain);
}

#[test]
fn a_preference_that_is_not_there_changes_nothing() {
    let stored = template(&prefers(json!({})), vec![]);
    assert_eq!(stored["spec"]["architecture"], "amd64");
}

#[test]
fn the_preferred_storage_class_is_for_new_volumes_without_one() {
    let class = |section: &str, storage: Value| {
        let source = json!({ "blank": {} });
        let object = prefers(json!({ "spec": { "dataVolumeTemplates": [
            { "metadata": { "name": "dv" }, "spec": { "source": source, section: storage } },
        ] } }));
        let preference = cluster_preference("p", json!({ "volumes": { "preferredStorageClassName": "fast" } }));
        let judged = create(&object, vec![preference]).expect("it is stored");
        judged.object["spec"]["dataVolumeTemplates"][0]["spec"][section]["storageClassName"].clone()
    };
    for section in ["pvc", "storage"] {
        assert_eq!(class(section, json!({})), "fast", "{section}");
        assert_eq!(class(section, json!({ "storageClassName": "slow" })), "slow", "{section}");
        assert_eq!(class(section, json!({ "storageClassName": "" })), "", "{section}: none at all is a choice");
    }
}

#[test]
fn identity_is_given_once() {
    let firmware = template(&vm(json!({})), vec![])["spec"]["domain"]["firmware"].clone();
    assert!(firmware["uuid"].is_string() && firmware["serial"].is_string(), "{firmware}");
    let own = json!({ "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "s" });
    let object = vm(json!({ "spec": { "template": { "spec": { "domain": { "firmware": own } } } } }));
    assert_eq!(template(&object, vec![])["spec"]["domain"]["firmware"], own);
    let changed = update(&vm(json!({})), &vm(json!({ "metadata": { "labels": { "a": "b" } } })), []);
    let changed = changed.expect("it is stored").object;
    assert_eq!(changed["spec"]["template"]["spec"]["domain"]["firmware"], Value::Null);
}

/// A DataSource with an architecture's name on it.
fn source(namespace: &str, name: &str, architecture: Option<&str>, spec: Value) -> Value {
    let labels = architecture.map(|architecture| json!({ "template.kubevirt.io/architecture": architecture }));
    json!({
        "kind": "DataSource", "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "spec": { "source": spec },
    })
}

#[test]
fn the_architecture_of_the_image_counts() {
    let from = |references: Vec<Value>| {
        let templates: Vec<Value> = references
            .into_iter()
            .map(|reference| json!({ "metadata": { "name": "d" }, "spec": { "storage": {}, "sourceRef": reference } }))
            .collect();
        vm(json!({ "spec": { "dataVolumeTemplates": templates } }))
    };
    let reference = |name: &str| json!({ "kind": "DataSource", "name": name });
    let to_other = json!({ "dataSource": { "namespace": "images", "name": "other" } });
    let world = || {
        vec![
            source("ns", "arm", Some("arm64"), json!({})),
            source("ns", "mainframe", Some("s390x"), json!({})),
            source("ns", "odd", Some("vax"), json!({})),
            source("ns", "silent", None, json!({})),
            source("ns", "pointer", Some("amd64"), to_other.clone()),
            source(
                "ns",
                "pointer-to-pointer",
                None,
                json!({ "dataSource": { "namespace": "images", "name": "again" } }),
            ),
            source("images", "other", Some("arm64"), json!({})),
            source("images", "again", None, json!({ "dataSource": { "namespace": "images", "name": "other" } })),
        ]
    };
    // References of the DataVolume templates, and the architecture.
    let cases = [
        (vec![reference("arm")], "arm64"),
        (vec![json!({ "kind": "datasource", "name": "arm" })], "arm64"),
        (vec![json!({ "kind": "Elsewhere", "name": "arm" })], "amd64"),
        (vec![reference("mainframe")], "s390x"),
        (vec![reference("odd")], "amd64"),
        (vec![reference("odd"), reference("arm")], "arm64"),
        (vec![reference("silent"), reference("gone"), reference("mainframe"), reference("arm")], "s390x"),
        // What a pointer points to speaks, not the pointer, and pointers are followed once.
        (vec![reference("pointer")], "arm64"),
        (vec![reference("pointer-to-pointer")], "amd64"),
        (vec![json!({ "kind": "DataSource", "namespace": "images", "name": "other" })], "arm64"),
        (vec![], "amd64"),
    ];
    for (references, expected) in cases {
        let stored = template(&from(references.clone()), world());
        assert_eq!(stored["spec"]["architecture"], expected, "{references:?}");
    }
    let mut chosen = from(vec![reference("arm")]);
    chosen["spec"]["template"]["spec"]["architecture"] = json!("amd64");
    assert_eq!(template(&chosen, world())["spec"]["architecture"], "amd64");
}

#[test]
fn machines_with_pci_express_get_its_layout_once() {
    let layout = |over: Value| {
        let key = "kubevirt.io/pci-topology-version";
        template(&vm(json!({ "spec": { "template": over } })), vec![])["metadata"]["annotations"][key].clone()
    };
    let machine = |architecture: &str, type_: &str| {
        layout(json!({ "spec": { "architecture": architecture, "domain": { "machine": { "type": type_ } } } }))
    };
    assert_eq!(layout(json!({})), "v3");
    assert_eq!(machine("amd64", "pc-q35-9.0"), "v3");
    assert_eq!(machine("arm64", "virt"), "v3");
    assert_eq!(machine("s390x", "s390-ccw-virtio"), Value::Null);
    assert_eq!(machine("amd64", "pc"), Value::Null);
    assert_eq!(layout(json!({ "metadata": { "annotations": { "kubevirt.io/pci-topology-version": "v2" } } })), "v2");
    let changed = update(&vm(json!({})), &vm(json!({ "metadata": { "labels": { "a": "b" } } })), []);
    assert_eq!(changed.expect("it is stored").object["spec"]["template"]["metadata"], Value::Null);
}

#[test]
fn a_machine_on_its_way_out_gets_nothing() {
    let going = vm(json!({
        "metadata": { "deletionTimestamp": "2023-11-14T22:13:20Z" },
        "spec": { "instancetype": {}, "runStrategy": null },
    }));
    let judged = update(&going, &going, []).expect("it passes");
    assert_eq!(judged.causes, []);
    assert_eq!(judged.object["spec"]["template"]["spec"]["architecture"], Value::Null);
    assert_eq!(causes_of(Ok(judged)), Vec::<String>::new());
}

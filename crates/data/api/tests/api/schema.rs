//! The schema tables against the Rust types, and what the checks find.

use std::any::TypeId;

use api::resources::{of_any_name, of_kind, of_plural};
use api::schema::{KINDS, check, openapi, prune, unknown_fields};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::{ClusterResourceScope, Resource};
use serde_json::{Value, json};

/// Calls a macro with all our types.
macro_rules! with_types {
    ($callback:ident) => {
        $callback! {
            v1::VirtualMachine, v1::VirtualMachineInstance, v1::VirtualMachineInstanceMigration,
            v1::VirtualMachineInstancePreset, v1::VirtualMachineInstanceReplicaSet, v1::KubeVirt,
            pool::VirtualMachinePool,
            snapshot::VirtualMachineSnapshot, snapshot::VirtualMachineSnapshotContent, snapshot::VirtualMachineRestore,
            export::VirtualMachineExport,
            clone::VirtualMachineClone,
            backup::VirtualMachineBackup, backup::VirtualMachineBackupTracker,
            instancetype::VirtualMachineInstancetype, instancetype::VirtualMachineClusterInstancetype,
            instancetype::VirtualMachinePreference, instancetype::VirtualMachineClusterPreference,
            migrations::MigrationPolicy,
            plugin::Plugin,
        }
    };
}

/// Reads an object into its type and writes it out again.
fn round_trip(kind: &str, object: &Value) -> Value {
    macro_rules! by_kind {
        ($($module:ident::$type:ident),+ $(,)?) => {
            match kind {
                $(stringify!($type) => {
                    serde_json::from_value::<api::$module::$type>(object.clone()).and_then(serde_json::to_value)
                })+
                other => panic!("no type for {other}"),
            }
        };
    }
    with_types!(by_kind).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

#[test]
fn types_say_the_same_about_themselves_as_the_table_of_resources() {
    let mut rows: Vec<&str> = KINDS.into();
    macro_rules! compare {
        ($($module:ident::$type:ident),+ $(,)?) => {
            $(
                let row = of_kind(api::$module::$type::GROUP, api::$module::$type::KIND).expect(stringify!($type));
                assert_eq!(row.plural, api::$module::$type::URL_PATH_SEGMENT);
                assert_eq!(row.singular, row.kind.to_lowercase());
                assert!(row.serves(api::$module::$type::API_VERSION), "{row:?}");
                let cluster = TypeId::of::<<api::$module::$type as Resource>::Scope>() == TypeId::of::<ClusterResourceScope>();
                assert_eq!(row.namespaced, !cluster, "{}", row.kind);
                rows.retain(|kind| *kind != row.kind);
                let preset = row.kind == "VirtualMachineInstancePreset";
                assert_eq!(row.api_version() == api::$module::$type::API_VERSION, !preset, "stored in an old version");
            )+
        };
    }
    with_types!(compare);
    assert!(rows.is_empty(), "no types for {rows:?}");
}

#[test]
fn resources_are_found_by_whatever_a_person_types() {
    let cases = [("vm", "VirtualMachine"), ("VMIs", "VirtualMachineInstance"), ("kubevirt", "KubeVirt")];
    for (name, kind) in cases {
        assert_eq!(of_any_name(name).map(|resource| resource.kind), Some(kind), "{name}");
    }
    assert_eq!(
        of_any_name("virtualmachinepools.pool.kubevirt.io"),
        of_plural("pool.kubevirt.io", "virtualmachinepools")
    );
    assert_eq!(of_any_name("pods"), None);
    assert_eq!(of_kind("snapshot.kubevirt.io", "VirtualMachine"), None, "a kind belongs to its group");
}

/// A value with every field the schema knows.
fn sample(schema: &Value) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("2");
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => json!("2008-01-01T01:01:01Z"),
        // The one other pattern is that of a fraction.
        Some("string") if schema["pattern"].as_str().is_some_and(|pattern| !pattern.contains('A')) => json!("0.5"),
        Some("string") => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("Text")),
        Some("boolean") => json!(true),
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(1)),
        Some("number") => json!(1.5),
        Some("array") => json!([sample(&schema["items"])]),
        Some("object") => match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(fields), _) => fields.iter().map(|(name, field)| (name.clone(), sample(field))).collect(),
            (_, Value::Object(entry)) => json!({ "key": sample(&Value::Object(entry.clone())) }),
            _ => json!({}),
        },
        other => panic!("a schema of type {other:?}"),
    }
}

fn full_object(kind: &str) -> Value {
    let mut object = sample(&openapi(kind).expect("one of our kinds"));
    object["apiVersion"] = written_version(kind);
    object["kind"] = json!(kind);
    object
}

/// The version a kind's type writes.
fn written_version(kind: &str) -> Value {
    round_trip(kind, &json!({}))["apiVersion"].clone()
}

#[test]
fn every_field_of_the_schema_survives_the_rust_types() {
    for kind in KINDS {
        let object = full_object(kind);
        assert_eq!(round_trip(kind, &object), object, "{kind}");
        assert_eq!(check(kind, &object), [], "{kind}");
        assert_eq!(unknown_fields(kind, &object), [], "{kind}");
    }
}

#[test]
fn no_rust_type_invents_a_field() {
    for kind in KINDS {
        let written = round_trip(kind, &json!({ "kind": kind }));
        assert_eq!(unknown_fields(kind, &written), [], "{kind}");
    }
}

fn vm(domain: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": "vm" },
        "spec": { "runStrategy": "Always", "template": { "spec": { "domain": domain } } },
    })
}

#[test]
fn a_misspelled_field_is_found_at_its_path_and_pruned() {
    let mut object = vm(json!({
        "devices": { "disks": [{ "name": "a" }, { "name": "b", "buss": "virtio" }], "rng": { "speed": 5 } },
        "cpus": { "cores": 1 },
        "cpu": { "cores": { "real": 2 }, "features": { "name": "a" }, "numa": [{ "nodes": [] }] },
    }));
    object["metadata"]["lables"] = json!({});
    object["spec"]["template"]["metadata"] = json!({ "anything": "goes" });
    object["stats"] = json!({});
    let want = [
        "metadata.lables",
        "spec.template.spec.domain.cpu.cores.real",
        "spec.template.spec.domain.cpu.features.name",
        "spec.template.spec.domain.cpu.numa[0].nodes",
        "spec.template.spec.domain.cpus",
        "spec.template.spec.domain.devices.disks[1].buss",
        "spec.template.spec.domain.devices.rng.speed",
        "stats",
    ];
    let found: Vec<String> = unknown_fields("VirtualMachine", &object).iter().map(ToString::to_string).collect();
    assert_eq!(found, want);
    assert_eq!(prune("VirtualMachine", &mut object).len(), want.len());
    assert_eq!(unknown_fields("VirtualMachine", &object), []);
    assert_eq!(object["spec"]["template"]["spec"]["domain"]["devices"]["disks"][1], json!({ "name": "b" }));
    assert_eq!(unknown_fields("Pod", &json!({ "whatever": 1 })), [], "kinds that are not ours");
}

#[test]
fn a_wrong_value_is_told_with_its_path() {
    let found = |domain: Value| -> Vec<String> {
        check("VirtualMachine", &vm(domain)).iter().map(ToString::to_string).collect()
    };
    let cores = "spec.template.spec.domain.cpu.cores";
    assert_eq!(
        found(json!({ "devices": {}, "cpu": { "cores": "2" } })),
        [format!("{cores}: Invalid value: \"string\": {cores} in body must be of type integer: \"string\"")]
    );
    assert_eq!(found(json!({})), ["spec.template.spec.domain.devices: Required value"]);
    // Kubernetes' pattern for quantities lets this through, and then nobody can read it.
    assert_eq!(
        found(json!({ "devices": {}, "memory": { "guest": "1e1.5" } })),
        [
            "spec.template.spec.domain.memory.guest: Invalid value: \"1e1.5\": \"1e1.5\" is not a quantity: write a number with an optional suffix, such as 500m, 1.5 or 2Gi"
        ]
    );
    assert_eq!(found(json!({ "devices": {}, "memory": { "guest": 1024 } })), Vec::<String>::new());
}

#[test]
fn keyed_lists_hold_each_key_once() {
    let mut object = vm(json!({ "devices": {} }));
    object["spec"]["template"]["spec"]["resourceClaims"] = json!([{ "name": "a" }, { "name": "b" }, { "name": "a" }]);
    let errors: Vec<String> = check("VirtualMachine", &object).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.template.spec.resourceClaims[2]: Duplicate value: {\"name\":\"a\"}"]);
}

#[test]
fn definitions_are_what_kubernetes_expects() {
    let names: Vec<String> = api::crds()
        .into_iter()
        .map(|definition| {
            let read: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
            assert!(read.spec.versions.iter().all(|version| version.schema.is_some() && version.served));
            assert_eq!(read.spec.versions.iter().filter(|version| version.storage).count(), 1);
            read.metadata.name.unwrap()
        })
        .collect();
    assert_eq!(names.len(), 20);
    assert!(names.contains(&"virtualmachines.kubevirt.io".to_owned()), "{names:?}");
}

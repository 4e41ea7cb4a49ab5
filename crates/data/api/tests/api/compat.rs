//! Against KubeVirt's own definitions, objects and example manifests, where they are at hand: `FERROVIRT_SHARED` names
//! the directory that holds `data/kubevirt-crds`, `data/kubevirt-objects` and `data/kubevirt-examples`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "this test reads KubeVirt's own objects where they are given"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use api::resources::of_kind;
use api::schema::{check, unknown_fields};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Skips in CI, too, where there is none: the data are not part of the project.
fn data(folder: &str) -> Option<PathBuf> {
    let Some(shared) = std::env::var_os("FERROVIRT_SHARED") else {
        println!("skipped: FERROVIRT_SHARED is not set, so there is nothing to compare with");
        return None;
    };
    Some(PathBuf::from(shared).join("data").join(folder))
}

fn read(path: PathBuf) -> Value {
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What differs on purpose: the path of the definition, and what only theirs has there.
const ALLOWED: [(&str, &str); 2] = [
    // The API server fills in both when they are missing.
    ("/spec/conversion", r#"{"strategy":"None"}"#),
    ("/spec/names/listKind", r#""PluginList""#),
];

#[test]
fn our_definitions_equal_kubevirts() {
    let Some(folder) = data("kubevirt-crds") else { return };
    let mut differences = Vec::new();
    let mut ours: BTreeMap<String, Value> = api::crds()
        .into_iter()
        .map(|definition| (format!("{}.json", definition["metadata"]["name"].as_str().unwrap()), definition))
        .collect();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match ours.remove(&name) {
            Some(ours) => {
                let mut found = Vec::new();
                compare("", &ours, &read(path), &mut found);
                let allowed: Vec<String> =
                    ALLOWED.iter().map(|(at, what)| format!("{at}: ours null, theirs {what}")).collect();
                found.retain(|difference| !allowed.contains(difference));
                differences.extend(found.into_iter().map(|difference| format!("{name} {difference}")));
            }
            None => differences.push(format!("{name}: we do not define it")),
        }
    }
    differences.extend(ours.into_keys().map(|name| format!("{name}: only we define it")));
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_comparison_of_definitions_tells_each_difference_by_path() {
    let ours = serde_json::json!({ "a": [{ "type": "string" }], "same": 1, "ours": true });
    let theirs = serde_json::json!({ "a": [{ "type": "integer" }], "same": 1.0, "theirs": [] });
    let mut differences = Vec::new();
    compare("", &ours, &theirs, &mut differences);
    let want = [
        r#"/a/0/type: ours "string", theirs "integer""#,
        "/ours: ours true, theirs null",
        "/theirs: ours null, theirs []",
    ];
    assert_eq!(differences, want);
}

fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                compare(&format!("{path}/{name}"), a, b, differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.for_each(|(index, (a, b))| compare(&format!("{path}/{index}"), a, b, differences));
        }
        // Go writes a whole floating-point number like an integer.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        (a, b) if a != b => differences.push(format!("{path}: ours {a}, theirs {b}")),
        _ => {}
    }
}

fn round_trips<T: Serialize + DeserializeOwned>(kind: &str) {
    let Some(folder) = data("kubevirt-objects") else { return };
    let object = read(folder.join(format!("kubevirt.io.v1.{kind}.json")));
    let unknown: Vec<String> = unknown_fields(kind, &object).iter().map(ToString::to_string).collect();
    assert!(unknown.is_empty(), "{kind} has unknown fields: {unknown:?}");
    let read: T = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{kind}: {e}"));
    let written = serde_json::to_value(read).unwrap_or_else(|e| panic!("{kind}: {e}"));
    let mut differences = Vec::new();
    compare("", &written, &object, &mut differences);
    assert!(differences.is_empty(), "{kind}:\n{}", differences.join("\n"));
}

#[test]
fn a_full_virtual_machine_round_trips() {
    round_trips::<VirtualMachine>("VirtualMachine");
}

#[test]
fn a_full_virtual_machine_instance_round_trips() {
    round_trips::<VirtualMachineInstance>("VirtualMachineInstance");
}

#[test]
fn a_full_kubevirt_round_trips() {
    round_trips::<KubeVirt>("KubeVirt");
}

#[test]
fn example_manifests_pass_the_schema() {
    let Some(folder) = data("kubevirt-examples") else { return };
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for object in documents {
            let kind = object["kind"].as_str().unwrap_or_default();
            let (group, _) = object["apiVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
            if of_kind(group, kind).is_some() {
                seen += 1;
                assert_eq!(unknown_fields(kind, &object), [], "{}", path.display());
                assert_eq!(check(kind, &object), [], "{}", path.display());
            }
        }
    }
    assert!(seen > 5, "only {seen} examples of our kinds were found");
}

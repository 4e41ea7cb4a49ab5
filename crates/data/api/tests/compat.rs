//! Against KubeVirt's own definitions, objects and example manifests, where they are at hand: `FERROVIRT_SHARED` names
//! the directory that holds `data/kubevirt-crds`, `data/kubevirt-objects` and `data/kubevirt-examples`.

use std::fs;
use std::path::PathBuf;

use api::schema::{KINDS, check, unknown_fields};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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

#[test]
fn our_definitions_equal_kubevirts() {
    let Some(folder) = data("kubevirt-crds") else { return };
    for ours in api::crds() {
        let name = ours["metadata"]["name"].as_str().unwrap();
        let theirs = read(folder.join(format!("{name}.json")));
        let mut differences = Vec::new();
        compare("", &ours, &theirs, &mut differences);
        assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
    }
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
            let ours = object["apiVersion"] == "kubevirt.io/v1" && KINDS.contains(&kind);
            if ours {
                seen += 1;
                assert_eq!(unknown_fields(kind, &object), [], "{}", path.display());
                assert_eq!(check(kind, &object), [], "{}", path.display());
            }
        }
    }
    assert!(seen > 5, "only {seen} examples of our kinds were found");
}

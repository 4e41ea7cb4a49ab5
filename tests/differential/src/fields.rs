//! Which fields of our schemas the judge's release knows.

use anyhow::Result;
use serde_json::{Value, json};

use crate::clusters::CLUSTERS;
use crate::generate::{Case, VM, VMI};
use crate::judge::Judge;

/// The fields of our specs that KubeVirt's schema refuses, by path. What is below such a field is left out.
pub fn unknown_to(judge: &mut Judge) -> Result<Vec<String>> {
    let mut cases = Vec::new();
    let spec = &VMI["properties"]["spec"];
    fields(spec, "", &mut |path, value| cases.push((path.to_owned(), vmi(value))));
    fields(&VM["properties"]["spec"], "", &mut |path, value| {
        if !path.starts_with("template") {
            cases.push((path.to_owned(), vm(value)));
        }
    });
    let asked: Vec<Case> =
        cases.iter().map(|(_, object)| Case { object: object.clone(), old: None, cluster: &CLUSTERS[0] }).collect();
    let answers = judge.ask(&asked)?;
    let mut unknown: Vec<String> = Vec::new();
    for ((path, _), answer) in cases.into_iter().zip(answers) {
        let refused = answer.schema.iter().any(|message| message.contains("forbidden property"));
        let below = unknown
            .iter()
            .any(|known| path.starts_with(&format!("{known}.")) || path.starts_with(&format!("{known}[")));
        if refused && !below && !unknown.contains(&path) {
            unknown.push(path);
        }
    }
    Ok(unknown)
}

fn vmi(spec: Value) -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "guest" }, "spec": spec })
}

fn vm(spec: Value) -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "guest" }, "spec": spec })
}

/// Calls with every field's path and an object that has this field and little else.
fn fields(schema: &Value, path: &str, found: &mut dyn FnMut(&str, Value)) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found(&path, json!({ name: least(field) }));
        let (below, path) = match field["items"].is_object() {
            true => (&field["items"], format!("{path}[]")),
            false => (field, path),
        };
        let list = field["items"].is_object();
        fields(below, &path, &mut |path, value| {
            found(path, json!({ name: if list { json!([value]) } else { value } }));
        });
    }
}

/// The least value of a schema.
fn least(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => json!({}),
        Some("array") => json!([]),
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(0),
        Some(_) => json!(""),
        None => json!("1"),
    }
}

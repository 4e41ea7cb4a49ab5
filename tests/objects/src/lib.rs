//! Objects made from the schemas alone: one with every field and one with as few as possible, for each kind.

use api::resources::Resource;
use serde_json::{Map, Value, json};

/// Values that the rules of a schema ask for.
const CHOSEN: &[(&str, &str, &str)] = &[
    ("VirtualMachineBackup", "/spec/pvcName", "text"),
    ("VirtualMachineBackup", "/spec/source/apiGroup", "kubevirt.io"),
    ("VirtualMachineBackup", "/spec/source/kind", "VirtualMachine"),
    ("VirtualMachineBackupTracker", "/spec/source/apiGroup", "kubevirt.io"),
    ("VirtualMachineBackupTracker", "/spec/source/kind", "VirtualMachine"),
];

/// An object of a kind with every field set, lists and maps with one entry each. It passes the schema; the rules beyond
/// the schema find much to say about it, as it has all alternatives at once.
pub fn full(resource: &Resource) -> Value {
    object(resource, |_, _| true)
}

/// An object of a kind with the fields that the schema and its rules require and no others.
pub fn least(resource: &Resource) -> Value {
    object(resource, |required, name| required.contains(&name))
}

/// Pointers to every field of a kind, each way spelled with the first item of a list and with `key` as the key of a map.
pub fn fields(resource: &Resource) -> Vec<String> {
    let mut found = Vec::new();
    pointers(&schema(resource), String::new(), &mut found);
    found
}

/// Puts a value where a pointer leads, making the way to it.
pub fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut target = object;
    for step in pointer.split('/').skip(1) {
        target = match step.parse::<usize>() {
            Ok(index) => {
                let items = as_list(target);
                if items.len() <= index {
                    items.push(Value::Null);
                }
                let last = items.len() - 1;
                &mut items[index.min(last)]
            }
            Err(_) => as_fields(target).entry(step).or_insert(Value::Null),
        };
    }
    *target = value;
}

fn as_list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was made one")
}

fn as_fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made one")
}

fn schema(resource: &Resource) -> Value {
    api::schema::openapi(resource.kind).unwrap_or_default()
}

fn object(resource: &Resource, keep: fn(&[&str], &str) -> bool) -> Value {
    let mut object = value("", &schema(resource), keep);
    let metadata = match resource.namespaced {
        true => json!({"name": "text", "namespace": "text"}),
        false => json!({"name": "text"}),
    };
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    object["metadata"] = metadata;
    for (kind, pointer, text) in CHOSEN {
        if *kind == resource.kind {
            put(&mut object, pointer, json!(text));
        }
    }
    object
}

/// A value that a schema allows. `keep` chooses among an object's fields, given those required.
fn value(name: &str, schema: &Value, keep: fn(&[&str], &str) -> bool) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") => match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(properties), _) => fields_of(schema, properties, keep),
            (_, each @ Value::Object(_)) => json!({ "key": value("key", each, keep) }),
            _ => json!({}),
        },
        Some("array") => json!([value(name, &schema["items"], keep)]),
        Some("integer") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("number") => schema.get("minimum").cloned().unwrap_or(json!(1.5)),
        Some("boolean") => json!(true),
        _ => text(name, schema),
    }
}

fn fields_of(schema: &Value, properties: &Map<String, Value>, keep: fn(&[&str], &str) -> bool) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let kept = properties.iter().filter(|(name, _)| keep(&required, name));
    Value::Object(kept.map(|(name, schema)| (name.clone(), value(name, schema, keep))).collect())
}

fn text(name: &str, schema: &Value) -> Value {
    match (schema["format"].as_str(), name) {
        (Some("date-time"), _) => json!("2001-02-03T04:05:06Z"),
        (Some("byte"), _) => json!("dGV4dA=="),
        // A rule of the schema wants it absolute.
        (_, "path") => json!("/text"),
        // The patterns are those of words, which begin with a letter, and of quantities, ratios and such.
        _ if schema["pattern"].as_str().is_some_and(|pattern| !pattern.starts_with("^[A-Za-z]")) => json!("1"),
        _ => json!("text"),
    }
}

fn pointers(schema: &Value, at: String, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        pointers(field, format!("{at}/{name}"), found);
    }
    if schema["items"].is_object() {
        pointers(&schema["items"], format!("{at}/0"), found);
    }
    if schema["additionalProperties"].is_object() {
        pointers(&schema["additionalProperties"], format!("{at}/key"), found);
    }
    if !at.is_empty() {
        found.push(at);
    }
}

#[cfg(test)]
mod tests {
    use api::resources::RESOURCES;
    use api::schema;

    use super::*;

    #[test]
    fn objects_pass_the_schemas_they_are_made_from() {
        let mut errors = Vec::new();
        for resource in RESOURCES {
            for object in [full(resource), least(resource)] {
                assert_eq!(schema::unknown_fields(resource.kind, &object), [], "{object:#}");
                let found = schema::validate(resource.kind, &object, None);
                errors.extend(found.iter().map(|error| format!("{}: {error}", resource.kind)));
            }
        }
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn a_full_object_has_every_field() {
        for resource in RESOURCES {
            let object = full(resource);
            let missing: Vec<String> = fields(resource)
                .into_iter()
                .filter(|field| !field.starts_with("/metadata/") && object.pointer(field).is_none())
                .collect();
            assert_eq!(missing, Vec::<String>::new(), "{}", resource.kind);
        }
    }

    #[test]
    fn a_value_is_put_where_nothing_was() {
        let mut object = json!({"spec": 1});
        put(&mut object, "/spec/disks/0/name", json!("a"));
        put(&mut object, "/spec/disks/7", json!({}));
        assert_eq!(object, json!({"spec": {"disks": [{"name": "a"}, {}]}}));
    }
}

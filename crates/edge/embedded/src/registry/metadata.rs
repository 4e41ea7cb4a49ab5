//! The metadata that the server owns.

use jiff::Timestamp;
use machinery::names::{check_label_value, check_qualified_name};
use rand::Rng as _;
use serde_json::{Map, Value, json};

use crate::errors::{FieldError, forbidden, invalid};

/// Set by the server only; values from clients are replaced.
const OWNED: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// Never stored: one is long gone from the API, the other belongs to server-side apply.
const DROPPED: &[&str] = &["selfLink", "managedFields"];

/// Without vowels and look-alike characters, so that no suffix spells a word.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_GENERATED: usize = 63;

/// RFC 3339 in whole seconds, like all times in metadata.
pub(crate) fn now() -> String {
    time(Timestamp::now())
}

pub(crate) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("metadata was made an object above")
}

/// Sets the identity of a new object.
pub(super) fn begin(object: &mut Value, namespace: &str, generation: bool) {
    let metadata = metadata(object);
    for field in DROPPED.iter().chain(&["deletionTimestamp", "deletionGracePeriodSeconds", "generation"]) {
        metadata.remove(*field);
    }
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".into(), json!(namespace));
    }
    metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".into(), json!(now()));
    if generation {
        metadata.insert("generation".into(), json!(1));
    }
}

/// `base` and five random characters.
pub(super) fn generate_name(base: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut rng = rand::rng();
    let suffix = (0..SUFFIX).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    base[..end].chars().chain(suffix).collect()
}

/// Copies the server-owned fields from the old version.
pub(super) fn carry_over(object: &mut Value, old: &Value) {
    let metadata = metadata(object);
    for field in DROPPED {
        metadata.remove(*field);
    }
    for field in OWNED {
        match old["metadata"].get(*field) {
            Some(value) => metadata.insert((*field).into(), value.clone()),
            None => metadata.remove(*field),
        };
    }
}

/// Increments the generation if the desired state changed: everything but metadata and, if separate, the status.
pub(super) fn count_generation(object: &mut Value, old: &Value, status_apart: bool) {
    let desired = |value: &Value| {
        let mut map = value.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        if status_apart {
            map.remove("status");
        }
        map
    };
    if desired(object) != desired(old) {
        raise_generation(object);
    }
}

pub(super) fn raise_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    object["metadata"]["generation"] = json!(generation + 1);
}

/// A terminating object may lose finalizers, but not gain new ones.
pub(super) fn validate_finalizers(object: &Value, old: &Value) -> Option<FieldError> {
    old["metadata"].get("deletionTimestamp")?;
    let before = old["metadata"]["finalizers"].as_array();
    let added: Vec<&str> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|name| !before.is_some_and(|before| before.contains(name)))
        .filter_map(Value::as_str)
        .collect();
    if added.is_empty() {
        return None;
    }
    let text = format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
    Some(forbidden("metadata.finalizers", &text))
}

/// Validates labels, annotations, finalizers and owner references. Custom resources have laxer rules for finalizers.
pub(super) fn validate(object: &Value, custom: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let entries = |field: &str| object["metadata"][field].as_object().into_iter().flatten();
    for (key, value) in entries("labels") {
        for detail in check_qualified_name(key) {
            errors.push(invalid("metadata.labels", &json!(key), &detail));
        }
        for detail in check_label_value(text(value)) {
            errors.push(invalid("metadata.labels", value, &detail));
        }
    }
    for (key, _) in entries("annotations") {
        for detail in check_qualified_name(&key.to_lowercase()) {
            errors.push(invalid("metadata.annotations", &json!(key), &detail));
        }
    }
    let list = |field: &str| object["metadata"][field].as_array().into_iter().flatten();
    for (index, finalizer) in list("finalizers").enumerate() {
        errors.extend(validate_finalizer(&format!("metadata.finalizers[{index}]"), finalizer, custom));
    }
    for owner in list("ownerReferences") {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(&owner[field]).is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                errors.push(invalid(&path, &owner[field], "must not be empty"));
            }
        }
    }
    let in_charge = list("ownerReferences").filter(|owner| owner["controller"] == true).count();
    if in_charge > 1 {
        let owners = &object["metadata"]["ownerReferences"];
        errors.push(invalid("metadata.ownerReferences", owners, "only one reference can have Controller set to true"));
    }
    errors
}

/// Finalizers of Kubernetes itself that predate the rule that each has a domain.
const OLD_FINALIZERS: &[&str] = &[super::FOREGROUND, super::ORPHAN, "kubernetes"];

fn validate_finalizer(path: &str, finalizer: &Value, custom: bool) -> Option<FieldError> {
    let name = text(finalizer);
    if let Some(detail) = check_qualified_name(name).first() {
        return Some(invalid(path, finalizer, detail));
    }
    if custom || name.contains('/') || OLD_FINALIZERS.contains(&name) {
        return None;
    }
    Some(invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_a_label_and_keep_their_base() {
        let name = generate_name("virt-launcher-");
        assert!(name.starts_with("virt-launcher-") && name.len() == "virt-launcher-".len() + 5, "{name}");
        assert_eq!(generate_name(&"a".repeat(80)).len(), 63);
    }

    #[test]
    fn an_update_cannot_change_what_the_server_owns() {
        let old = json!({"metadata": {"name": "x", "uid": "1", "generation": 2}});
        let mut new = json!({"metadata": {"name": "y", "uid": "2", "labels": {"a": "b"}, "deletionTimestamp": "now"}});
        carry_over(&mut new, &old);
        assert_eq!(new, json!({"metadata": {"name": "x", "uid": "1", "generation": 2, "labels": {"a": "b"}}}));
    }

    #[test]
    fn generation_counts_changes_of_the_desired_state() {
        let old = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"b": 1}});
        let after = |status_apart, change: fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new);
            count_generation(&mut new, &old, status_apart);
            new["metadata"]["generation"].as_i64().unwrap()
        };
        assert_eq!(after(true, |object| object["spec"]["a"] = json!(2)), 2);
        assert_eq!(after(true, |object| object["status"]["b"] = json!(2)), 1);
        assert_eq!(after(false, |object| object["status"]["b"] = json!(2)), 2);
        assert_eq!(after(false, |object| object["metadata"]["labels"] = json!({"x": "y"})), 1);
    }

    #[test]
    fn a_deleted_object_gets_no_new_finalizers() {
        let old = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a"]}});
        let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        assert!(validate_finalizers(&with(json!(["a"])), &old).is_none());
        assert!(validate_finalizers(&with(json!([])), &old).is_none());
        assert!(validate_finalizers(&with(json!(["a", "b"])), &old).is_some());
        assert!(validate_finalizers(&with(json!(["b"])), &json!({"metadata": {}})).is_none());
    }
}

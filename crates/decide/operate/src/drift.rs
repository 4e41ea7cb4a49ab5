//! Whether an object matches the desired state.
//!
//! Only the fields that we set are compared: the server adds defaults, and others may add labels. An annotation has the
//! hash of the applied object, so that fields that we no longer set are removed, too.

use serde_json::{Map, Value, json};
use sha1::{Digest as _, Sha1};

pub use install::names::HASH;
/// Annotation of Pod templates with the hash of the template.
pub(crate) const TEMPLATE_HASH: &str = "ferrovirt.io/template-hash";

/// Maps in which an additional key changes the meaning, and to which the server adds no defaults.
const EXACT: &[&str] = &["nodeSelector", "matchLabels", "selector", "requests", "limits"];

pub(crate) fn hash(value: &Value) -> String {
    Sha1::digest(value.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The object with its hash, as it is applied.
pub(crate) fn stamped(mut object: Value) -> Value {
    let hash = hash(&object);
    object["metadata"]["annotations"][HASH] = json!(hash);
    object
}

/// Why an object has to be applied, if it has to.
pub(crate) fn difference(desired: &Value, live: Option<&Value>) -> Option<String> {
    let Some(live) = live else { return Some("it is missing".to_owned()) };
    if live["metadata"]["annotations"][HASH] != desired["metadata"]["annotations"][HASH] {
        return Some("the desired state changed".to_owned());
    }
    first_difference(desired, live).map(|path| format!("{path} was changed"))
}

/// The difference that remains after an apply, as a merge patch: items that others own in lists with keys survive it.
pub fn left_over(desired: &Value, live: &Value) -> Option<Value> {
    let patch = merge_patch(desired, live);
    (!is_empty(&patch)).then_some(patch)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Where an object differs from the desired state. Only differences get a path: CRDs are large.
fn first_difference(desired: &Value, live: &Value) -> Option<String> {
    let path = differs("", desired, live)?.iter().rev().cloned().collect::<String>();
    Some(if path.is_empty() { "it".to_owned() } else { path })
}

/// The path to a difference, innermost part first. `field` is the name of the field that holds the values.
fn differs(field: &str, desired: &Value, live: &Value) -> Option<Vec<String>> {
    let below = |found: Option<Vec<String>>, part: &dyn Fn() -> String| {
        found.map(|mut path| {
            path.push(part());
            path
        })
    };
    match (desired, live) {
        // The server does not store what is empty.
        (desired, live) if is_empty(desired) && is_empty(live) => None,
        (Value::Object(desired), Value::Object(live)) => {
            if EXACT.contains(&field) && live.keys().any(|key| !desired.contains_key(key)) {
                return Some(vec![]);
            }
            desired.iter().find_map(|(name, value)| {
                below(differs(name, value, live.get(name).unwrap_or(&Value::Null)), &|| format!(".{name}"))
            })
        }
        (Value::Array(desired), Value::Array(live)) if desired.len() == live.len() => {
            let mut pairs = desired.iter().zip(live).enumerate();
            pairs.find_map(|(index, (desired, live))| below(differs("", desired, live), &|| format!("[{index}]")))
        }
        (desired, live) if desired == live => None,
        _ => Some(vec![]),
    }
}

fn merge_patch(desired: &Value, live: &Value) -> Value {
    let (Value::Object(desired), Value::Object(live)) = (desired, live) else { return desired.clone() };
    let mut patch = Map::new();
    for (name, value) in desired {
        let live = live.get(name).unwrap_or(&Value::Null);
        if differs(name, value, live).is_none() {
            continue;
        }
        let mut part = match (value, live) {
            (Value::Object(_), Value::Object(_)) => merge_patch(value, live),
            _ => value.clone(),
        };
        if EXACT.contains(&name.as_str())
            && let (Value::Object(part), Value::Object(live)) = (&mut part, live)
        {
            for key in live.keys().filter(|key| value.get(key.as_str()).is_none()) {
                part.insert(key.clone(), Value::Null);
            }
        }
        patch.insert(name.clone(), part);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_we_set_is_compared() {
        let desired = json!({"spec": {"replicas": 2, "empty": [], "selector": {"a": "b"}, "list": [{"name": "x"}]}});
        let table = [
            // What somebody or the server makes of it, and what differs.
            (
                json!({"spec": {"replicas": 2, "selector": {"a": "b"}, "list": [{"name": "x", "more": 1}], "more": 1}}),
                None,
            ),
            (json!({"spec": {"replicas": 3, "selector": {"a": "b"}, "list": [{"name": "x"}]}}), Some(".spec.replicas")),
            (json!({"spec": {"replicas": 2, "selector": {"a": "b"}, "list": []}}), Some(".spec.list")),
            (
                json!({"spec": {"replicas": 2, "selector": {"a": "b", "c": "d"}, "list": [{"name": "x"}]}}),
                Some(".spec.selector"),
            ),
            (
                json!({"spec": {"replicas": 2, "selector": {"a": "b"}, "list": [{"name": "y"}]}}),
                Some(".spec.list[0].name"),
            ),
        ];
        for (live, expected) in table {
            assert_eq!(first_difference(&desired, &live).as_deref(), expected, "{live}");
            let mut repaired = live.clone();
            if let Some(patch) = left_over(&desired, &live) {
                json_patch::merge(&mut repaired, &patch);
            }
            assert_eq!(first_difference(&desired, &repaired), None, "{live}");
        }
    }

    #[test]
    fn a_field_that_is_no_longer_set_makes_a_difference() {
        let before = stamped(json!({"metadata": {"name": "x"}, "spec": {"a": 1, "b": 2}}));
        let after = stamped(json!({"metadata": {"name": "x"}, "spec": {"a": 1}}));
        assert_eq!(difference(&before, Some(&before)), None);
        assert!(difference(&after, Some(&before)).is_some());
        assert!(difference(&after, None).is_some());
    }
}

//! The patch that `apply` sends: a three-way merge of the manifest, the last applied manifest and the live object.
//!
//! The result is a JSON merge patch. Fields that were removed from the manifest since the last time are removed; fields
//! that it never had belong to others (the server's defaults, controllers) and stay. A list is a single value, but one
//! that the server only extended with defaults is not sent again.

use serde_json::{Map, Value, json};

/// Annotation with the last applied manifest, shared with kubectl.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The last applied manifest, if the object has it.
pub(crate) fn last_applied(live: &Value) -> Option<Value> {
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Adds the manifest itself as annotation: byte for byte what kubectl would write, so that the two can be mixed without
/// either seeing a change. The manifest has a name and therefore metadata.
pub(crate) fn with_memory(manifest: &Value, namespace: Option<&str>) -> Value {
    let mut object = manifest.clone();
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    let memory = format!("{object}\n");
    object["metadata"]["annotations"][LAST_APPLIED] = memory.into();
    object
}

/// The merge patch from `live` to `wanted`, if they differ.
pub(crate) fn patch(original: Option<&Value>, wanted: &Value, live: &Value) -> Option<Value> {
    let (Value::Object(wanted), Value::Object(live)) = (wanted, live) else { return None };
    let nothing = Map::new();
    let original = original.and_then(Value::as_object).unwrap_or(&nothing);
    let patch = merge(original, wanted, live);
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn merge(original: &Map<String, Value>, wanted: &Map<String, Value>, live: &Map<String, Value>) -> Map<String, Value> {
    let nothing = Map::new();
    let mut patch = Map::new();
    for (key, value) in wanted {
        let before = original.get(key);
        match (value, live.get(key)) {
            (Value::Null, None) => {}
            (Value::Object(value), Some(Value::Object(live))) => {
                let before = before.and_then(Value::as_object).unwrap_or(&nothing);
                let below = merge(before, value, live);
                if !below.is_empty() {
                    patch.insert(key.clone(), Value::Object(below));
                }
            }
            (Value::Array(_), Some(live)) if before.is_none_or(|before| before == value) && covers(live, value) => {}
            (value, Some(live)) if value == live => {}
            (value, _) => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in original.keys().filter(|key| !wanted.contains_key(*key) && live.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

/// Whether `live` contains everything in `wanted`.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_manifest_changed_is_sent() {
        let cases = [
            ("nothing changed", json!({"a": 1}), json!({"a": 1}), json!({"a": 1}), None),
            ("a value changed", json!({"a": 1}), json!({"a": 2}), json!({"a": 1}), Some(json!({"a": 2}))),
            (
                "a dropped field goes",
                json!({"a": 1, "b": 1}),
                json!({"a": 1}),
                json!({"a": 1, "b": 1}),
                Some(json!({"b": null})),
            ),
            ("a dropped field that is gone already", json!({"b": 1}), json!({}), json!({}), None),
            (
                "others' fields stay",
                json!({"a": {"x": 1}}),
                json!({"a": {"x": 1}}),
                json!({"a": {"x": 1, "y": 2}, "b": 3}),
                None,
            ),
            (
                "drift is corrected",
                json!({"a": {"x": 1}}),
                json!({"a": {"x": 1}}),
                json!({"a": {"x": 9}}),
                Some(json!({"a": {"x": 1}})),
            ),
            ("an empty object is kept", json!({}), json!({"a": {}}), json!({}), Some(json!({"a": {}}))),
            ("an explicit null removes", json!({}), json!({"a": null}), json!({"a": 1}), Some(json!({"a": null}))),
            (
                "a list with defaults filled in is the same",
                json!({"l": [{"n": "a"}]}),
                json!({"l": [{"n": "a"}]}),
                json!({"l": [{"n": "a", "default": true}]}),
                None,
            ),
            (
                "a field dropped inside a list replaces it",
                json!({"l": [{"n": "a", "x": 1}]}),
                json!({"l": [{"n": "a"}]}),
                json!({"l": [{"n": "a", "x": 1}]}),
                Some(json!({"l": [{"n": "a"}]})),
            ),
            ("a longer list", json!({"l": [1]}), json!({"l": [1, 2]}), json!({"l": [1]}), Some(json!({"l": [1, 2]}))),
        ];
        for (name, original, wanted, live, want) in cases {
            assert_eq!(patch(Some(&original), &wanted, &live), want, "{name}");
        }
    }

    #[test]
    fn an_object_made_by_others_loses_nothing() {
        assert_eq!(patch(None, &json!({"a": 1}), &json!({"a": 2, "b": 3})), Some(json!({"a": 1})));
    }

    #[test]
    fn the_memory_is_the_manifest_without_its_memory() {
        let manifest = json!({"metadata": {"name": "x"}, "kind": "A"});
        let once = with_memory(&manifest, Some("n"));
        let want = "{\"kind\":\"A\",\"metadata\":{\"annotations\":{},\"name\":\"x\",\"namespace\":\"n\"}}\n";
        assert_eq!(once["metadata"]["annotations"][LAST_APPLIED], want);
        assert_eq!(with_memory(&once, Some("n")), once);
        assert!(patch(last_applied(&once).as_ref(), &once, &once).is_none());
    }
}

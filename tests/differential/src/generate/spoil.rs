//! Breaking an object in one place, so that its schema still holds.

use serde_json::{Value, json};

use super::grow::{Grower, fit};
use super::rng::Rng;
use super::words::words;
use crate::newer;

/// Changes one place below `value`. The path is that of the value, as the words know it.
pub(crate) fn spoil(value: &mut Value, schema: &Value, path: &str, rng: &mut Rng) {
    let go_on = rng.chance(if path.matches('.').count() < 2 { 95 } else { 70 });
    match value {
        Value::Object(fields) if !fields.is_empty() && go_on => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = rng.pick(&names);
            let below = match schema["properties"].get(name) {
                Some(below) => below,
                None => &schema["additionalProperties"],
            };
            let path = join(path, name);
            if rng.chance(12) {
                fields.remove(name);
            } else if let Some(field) = fields.get_mut(name) {
                spoil(field, below, &path, rng);
            }
        }
        Value::Array(items) if !items.is_empty() && go_on => {
            let index = rng.below(items.len());
            match rng.below(10) {
                0 => _ = items.remove(index),
                1 => items.push(items[index].clone()),
                2 => {
                    items.push(items[index].clone());
                    let last = items.len() - 1;
                    spoil(&mut items[last], &schema["items"], &format!("{path}[]"), rng);
                }
                3 => items.push(Grower { rng, density: 20, without: &[] }.grow(&schema["items"], &format!("{path}[]"))),
                _ => spoil(&mut items[index], &schema["items"], &format!("{path}[]"), rng),
            }
        }
        Value::Object(fields) => add(fields, schema, path, rng),
        leaf => *leaf = worse(leaf, schema, path, rng),
    }
}

fn join(path: &str, name: &str) -> String {
    // The template of a virtual machine speaks of its instance's spec as the instance does.
    match path {
        "" | "template.spec" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// Adds a field that is not there yet, and may exclude one that is.
fn add(fields: &mut serde_json::Map<String, Value>, schema: &Value, path: &str, rng: &mut Rng) {
    let known = schema["properties"].as_object().into_iter().flatten();
    let missing: Vec<(&String, &Value)> =
        known.filter(|(name, _)| !fields.contains_key(*name) && !newer::is_newer(&join(path, name))).collect();
    if missing.is_empty() {
        fields.clear();
        return;
    }
    let (name, below) = *rng.pick(&missing);
    let path = join(path, name);
    let mut value = Grower { rng, density: 15, without: &[] }.grow(below, &path);
    if !value.is_object() && !value.is_array() && rng.chance(60) {
        value = worse(&value, below, &path, rng);
    }
    fields.insert(name.clone(), value);
}

/// Something else for a single value: a bad word if there is one, or what sits on a border.
fn worse(leaf: &Value, schema: &Value, path: &str, rng: &mut Rng) -> Value {
    if let Some(words) = words(path)
        && rng.chance(85)
    {
        let all = if words.bad.is_empty() || rng.chance(15) { &words.good } else { &words.bad };
        return fit(schema, rng.pick(all).clone());
    }
    match (schema["type"].as_str(), leaf) {
        (Some("boolean"), Value::Bool(flag)) => json!(!flag),
        (Some("integer"), _) => json!(*rng.pick(&[0, 1, 2, 1000, 65_536])),
        (Some("string"), _) => json!(*rng.pick(&["", "x", "Not A Name", "a.b", "vol-0", "vol-1", "net-0"])),
        (None, _) => json!(*rng.pick(&["0", "1", "-1", "1Gi", "1.5", "100Mi", "3e9"])),
        _ => leaf.clone(),
    }
}

//! Breaking an object in one place, so that its schema still holds.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::grow::{Grower, VM, VMI, fit};
use super::rng::Rng;
use super::words::words;
use crate::newer;

/// Where the spec of a virtual machine holds that of its instance. The words speak of both as the instance does.
const TEMPLATE: &str = "template.spec.";

/// A field with words, as the steps that lead to it; `[]` enters a list.
type Target = Vec<String>;

/// The fields with words that break something, by kind.
static TARGETS: LazyLock<HashMap<&'static str, Vec<Target>>> = LazyLock::new(|| {
    let of = |schema: &Value| {
        let mut targets = Vec::new();
        collect(&schema["properties"]["spec"], &mut Vec::new(), &mut targets);
        targets
    };
    HashMap::from([("VirtualMachine", of(&VM)), ("VirtualMachineInstance", of(&VMI))])
});

fn collect(schema: &Value, steps: &mut Vec<String>, targets: &mut Vec<Target>) {
    let path = path_of(steps);
    if newer::is_newer(&path) {
        return;
    }
    if schema["properties"].is_null() && words(&path).is_some_and(|words| !words.bad.is_empty()) {
        targets.push(steps.clone());
    }
    let mut below = |step: &str, schema: &Value| {
        steps.push(step.to_owned());
        collect(schema, steps, targets);
        steps.pop();
    };
    if schema["items"].is_object() {
        below("[]", &schema["items"]);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        below(name, field);
    }
    if path.ends_with("domain.resources.requests") || path.ends_with("domain.resources.limits") {
        ["cpu", "memory"].iter().for_each(|name| below(name, &schema["additionalProperties"]));
    }
}

/// A place and what to merge into it, for the spec of an instance or of a virtual machine.
struct Combination {
    steps: Target,
    patch: Value,
}

/// Combinations for instances and, with those below the template, for virtual machines.
static COMBINATIONS: LazyLock<HashMap<&'static str, Vec<Combination>>> = LazyLock::new(|| {
    let lines = include_str!("combinations.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut instance, mut machine) = (Vec::new(), Vec::new());
    for line in lines {
        let (path, patch) = line.split_once(' ').unwrap_or((line, "{}"));
        let patch: Value = serde_json::from_str(patch).expect("the combinations are JSON");
        match path.strip_prefix("vm").map(|path| path.trim_start_matches('.')) {
            Some(path) => machine.push(Combination { steps: steps_of(path), patch }),
            None => {
                machine.push(Combination { steps: steps_of(&format!("{TEMPLATE}{path}")), patch: patch.clone() });
                instance.push(Combination { steps: steps_of(path), patch });
            }
        }
    }
    HashMap::from([("VirtualMachine", machine), ("VirtualMachineInstance", instance)])
});

fn steps_of(path: &str) -> Target {
    let mut steps = Vec::new();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        steps.push(name.trim_end_matches("[]").to_owned());
        if name.ends_with("[]") {
            steps.push("[]".to_owned());
        }
    }
    steps
}

/// The path of a field as the words know it.
fn path_of(steps: &[String]) -> String {
    let mut path = String::new();
    for step in steps {
        if step != "[]" && !path.is_empty() {
            path.push('.');
        }
        path.push_str(step);
    }
    match path.strip_prefix(TEMPLATE) {
        Some(path) => path.to_owned(),
        None => path,
    }
}

/// Changes one place in a spec.
pub(crate) fn spoil(spec: &mut Value, kind: &str, rng: &mut Rng) {
    let schema = if kind == "VirtualMachine" { &VM } else { &VMI };
    let schema = &schema["properties"]["spec"];
    match rng.below(10) {
        0..=3 => {
            let Some(targets) = TARGETS.get(kind) else { return };
            let target = rng.pick(targets);
            aim(spec, schema, target, 0, rng, &mut |value, schema, rng| {
                if let Some(words) = words(&path_of(target)) {
                    *value = fit(schema, rng.pick(&words.bad).clone());
                }
            });
        }
        4..=6 => {
            let Some(combinations) = COMBINATIONS.get(kind) else { return };
            let Combination { steps, patch } = rng.pick(combinations);
            aim(spec, schema, steps, 0, rng, &mut |value, _, _| merge(value, patch));
        }
        _ => wander(spec, schema, &mut Vec::new(), rng),
    }
}

/// Changes a certain place, and makes what leads to it.
fn aim(
    value: &mut Value,
    schema: &Value,
    target: &[String],
    depth: usize,
    rng: &mut Rng,
    change: &mut dyn FnMut(&mut Value, &Value, &mut Rng),
) {
    let path = path_of(&target[..depth]);
    let Some(step) = target.get(depth) else { return change(value, schema, rng) };
    if step == "[]" {
        let Value::Array(items) = value else { return };
        if items.is_empty() {
            items.push(Grower { rng, density: 5, without: &[] }.grow(&schema["items"], &format!("{path}[]")));
        }
        let index = rng.below(items.len());
        return aim(&mut items[index], &schema["items"], target, depth + 1, rng, change);
    }
    let Value::Object(fields) = value else { return };
    let below = schema["properties"].get(step).unwrap_or(&schema["additionalProperties"]);
    let field = fields.entry(step.clone()).or_insert_with(|| {
        let path = path_of(&target[..=depth]);
        Grower { rng, density: 5, without: &[] }.grow(below, &path)
    });
    aim(field, below, target, depth + 1, rng, change);
}

/// A merge patch, of which a null takes away.
fn merge(value: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(patch)) = (&mut *value, patch) else {
        *value = patch.clone();
        return;
    };
    for (name, patch) in patch {
        match patch {
            Value::Null => _ = fields.remove(name),
            Value::Object(_) => merge(fields.entry(name.clone()).or_insert_with(|| json!({})), patch),
            _ => _ = fields.insert(name.clone(), patch.clone()),
        }
    }
}

/// Walks down at random and changes what it finds: drops, doubles, adds, turns round.
fn wander(value: &mut Value, schema: &Value, steps: &mut Vec<String>, rng: &mut Rng) {
    let go_on = rng.chance(if steps.len() < 3 { 95 } else { 75 });
    match value {
        Value::Object(fields) if !fields.is_empty() && go_on => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = rng.pick(&names);
            let below = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
            if rng.chance(12) {
                fields.remove(name);
            } else if let Some(field) = fields.get_mut(name) {
                steps.push(name.clone());
                wander(field, below, steps, rng);
                steps.pop();
            }
        }
        Value::Array(items) if !items.is_empty() && go_on => {
            steps.push("[]".to_owned());
            list(items, &schema["items"], steps, rng);
            steps.pop();
        }
        Value::Object(fields) => add(fields, schema, steps, rng),
        leaf => *leaf = other(leaf, schema, &path_of(steps), rng),
    }
}

fn list(items: &mut Vec<Value>, schema: &Value, steps: &mut Vec<String>, rng: &mut Rng) {
    let index = rng.below(items.len());
    match rng.below(12) {
        0 => _ = items.remove(index),
        1 => items.push(items[index].clone()),
        2 => items.extend(vec![items[index].clone(); 7]),
        3 | 4 => {
            items.push(items[index].clone());
            let last = items.len() - 1;
            wander(&mut items[last], schema, steps, rng);
        }
        5 => items.push(Grower { rng, density: 20, without: &[] }.grow(schema, &path_of(steps))),
        _ => wander(&mut items[index], schema, steps, rng),
    }
}

/// Adds a field that is not there yet, and may exclude one that is.
fn add(fields: &mut Map<String, Value>, schema: &Value, steps: &[String], rng: &mut Rng) {
    let path = |name: &str| path_of(&[steps, &[name.to_owned()]].concat());
    let known = schema["properties"].as_object().into_iter().flatten();
    let missing: Vec<(&String, &Value)> =
        known.filter(|(name, _)| !fields.contains_key(*name) && !newer::is_newer(&path(name))).collect();
    if missing.is_empty() {
        fields.clear();
        return;
    }
    let (name, below) = *rng.pick(&missing);
    let value = Grower { rng, density: 15, without: &[] }.grow(below, &path(name));
    fields.insert(name.clone(), value);
}

/// Something else for a single value.
fn other(leaf: &Value, schema: &Value, path: &str, rng: &mut Rng) -> Value {
    if let Some(words) = words(path)
        && rng.chance(70)
    {
        let all = if words.bad.is_empty() || rng.chance(30) { &words.good } else { &words.bad };
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

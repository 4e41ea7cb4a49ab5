//! Ways to break what a schema asks for at one place, or to touch its borders.

use serde_json::{Map, Value, json};

use super::places::Place;

/// What happens to the value at a place.
#[derive(Clone)]
pub(crate) enum Change {
    Set(Value),
    Remove,
}

/// A way to break a place: all that can be tried there, nothing if its schema has nothing to break.
pub(crate) type Break = fn(&Place) -> Vec<Change>;

/// Every way, by name.
pub(crate) const BREAKS: &[(&str, Break)] = &[
    ("type", wrong_type),
    ("missing", missing),
    ("choice", choice),
    ("bound", bound),
    ("length", length),
    ("items", items),
    ("pattern", pattern),
    ("quantity", quantity),
    ("time", time),
    ("range", range),
    ("twice", twice),
    ("unknown", unknown),
    ("null", null),
    ("rule", rule),
];

fn each(values: impl IntoIterator<Item = Value>) -> Vec<Change> {
    values.into_iter().map(Change::Set).collect()
}

fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Change> {
    each(values.into_iter().map(Value::from))
}

fn is_number_or_text(place: &Place) -> bool {
    place.schema["x-kubernetes-int-or-string"] == true
}

fn is(place: &Place, type_: &str) -> bool {
    place.schema["type"] == type_
}

fn wrong_type(place: &Place) -> Vec<Change> {
    let values = [
        json!(true),
        json!(7),
        json!(-1),
        json!(1.5),
        json!(2.0),
        json!("text"),
        json!(""),
        json!("<&>\u{2028}\u{7f}é\n\"\\"),
        json!([]),
        json!(["text"]),
        json!([null]),
        json!([{ "key": "text" }]),
        json!({}),
        json!({ "key": "text" }),
    ];
    let other = |value: &Value| std::mem::discriminant(value) != std::mem::discriminant(&place.value);
    each(values.into_iter().filter(other))
}

fn missing(place: &Place) -> Vec<Change> {
    if place.required { vec![Change::Remove] } else { Vec::new() }
}

fn choice(place: &Place) -> Vec<Change> {
    let Some(choices) = place.schema["enum"].as_array() else { return Vec::new() };
    let lower = choices.first().and_then(Value::as_str).map(str::to_lowercase);
    let others = [json!("Nonsense"), json!(""), json!(lower), json!(7), json!({}), json!({ "key": 1 })];
    each(others.into_iter().chain(choices.last().cloned()))
}

fn bound(place: &Place) -> Vec<Change> {
    let mut values = Vec::new();
    for (key, beyond) in [("minimum", -1), ("maximum", 1)] {
        if let Some(bound) = place.schema[key].as_i64() {
            let half = bound as f64 + 0.5 * beyond as f64;
            values.extend([json!(bound), json!(bound + beyond), json!(half), json!(bound + 1000 * beyond)]);
        }
    }
    each(values)
}

fn length(place: &Place) -> Vec<Change> {
    let limit = |key: &str| place.schema[key].as_u64().map(|limit| limit as usize);
    let mut values = Vec::new();
    if let Some(max) = limit("maxLength") {
        values.extend(["x".repeat(max), "x".repeat(max + 1), "é".repeat(max), "é".repeat(max + 1)]);
    }
    if let Some(min) = limit("minLength") {
        values.extend(["x".repeat(min), "x".repeat(min - 1), "é".repeat(min), String::new()]);
    }
    texts(values.iter().map(String::as_str))
}

fn items(place: &Place) -> Vec<Change> {
    let Some(item) = place.value.get(0) else { return Vec::new() };
    let some = |count: u64| Value::Array(vec![item.clone(); count as usize]);
    let mut values = Vec::new();
    if let Some(max) = place.schema["maxItems"].as_u64() {
        values.extend([some(max), some(max + 1)]);
    }
    if let Some(min) = place.schema["minItems"].as_u64() {
        values.extend([some(min), some(min - 1)]);
    }
    each(values)
}

fn pattern(place: &Place) -> Vec<Change> {
    if is_number_or_text(place) || place.schema["pattern"].is_null() {
        return Vec::new();
    }
    texts(["", "?", "1.5", "-a", "a-", "a b", "A/b", "é", "0.1234", "0.5", "a\n", "_a", "Word"])
}

fn quantity(place: &Place) -> Vec<Change> {
    if !is_number_or_text(place) {
        return Vec::new();
    }
    let mut changes = texts([
        "",
        "Ki",
        "1GB",
        " 1",
        "1\n",
        "1024Mi",
        "9Ei",
        "+1k",
        "-.5",
        "1e1.5",
        "1e999999999999",
        "0.0000000000001",
        "123456789012345678901234567890",
        "50%",
    ]);
    changes.extend(each([
        json!(0),
        json!(-3),
        json!(2.0),
        json!(1.5),
        json!(9_007_199_254_740_993_i64),
        json!(1e19),
        json!(1e30),
        json!(true),
        json!([]),
        json!({}),
    ]));
    changes
}

fn time(place: &Place) -> Vec<Change> {
    if place.schema["format"] != "date-time" {
        return Vec::new();
    }
    let mut changes = texts([
        "yesterday",
        "",
        "2024-02-30T00:00:00Z",
        "2024-02-29T23:59:59Z",
        "2023-02-29T00:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01 00:00:00Z",
        "2024-01-01t00:00:00z",
        "2024-01-01T00:00:00",
        "2024-01-01T00:00:00+01:00",
        "2024-01-01T00:00:00+0100",
        "2024-01-01T00:00:00-99:99",
        "2024-01-01T00:00:00.5Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00.123456789123Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01",
        "2024-1-1T0:0:0Z",
        "0000-01-01T00:00:00Z",
    ]);
    changes.extend(each([json!(7), json!(1.5), json!(true), json!({}), json!([])]));
    changes
}

fn range(place: &Place) -> Vec<Change> {
    if !is(place, "integer") && !is(place, "number") {
        return Vec::new();
    }
    each([
        json!(i32::MAX),
        json!(i64::from(i32::MAX) + 1),
        json!(i64::from(i32::MIN) - 1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(9_007_199_254_740_993_i64),
        json!(2.0),
        json!(-0.0),
        json!(1.5),
        json!(1e-7),
        json!(2_147_483_648.0),
        json!(1e17),
        json!(1e19),
        json!(1e300),
    ])
}

fn twice(place: &Place) -> Vec<Change> {
    let Some("set" | "map") = place.schema["x-kubernetes-list-type"].as_str() else { return Vec::new() };
    let Some(item) = place.value.get(0) else { return Vec::new() };
    let mut lists = vec![
        json!([item, item]),
        json!([item, item, item]),
        json!([item, null, null]),
        json!([item, 1, 1.0]),
        json!(["a", "a", "b", "b"]),
        json!([true, true, [], []]),
    ];
    if let Some(keys) = place.schema["x-kubernetes-list-map-keys"].as_array() {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        let only_keys: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), item[key].clone())).collect();
        let mut other = item.clone();
        keys.iter().for_each(|key| other[key] = json!("other"));
        lists.extend([
            json!([item, only_keys]),
            json!([item, other]),
            json!([{}, {}]),
            json!([other, item, "text", other]),
        ]);
    }
    each(lists)
}

fn unknown(place: &Place) -> Vec<Change> {
    let Some(fields) = place.value.as_object().filter(|_| is(place, "object")) else { return Vec::new() };
    let mut changes = Vec::new();
    for name in ["unknown", "a.b", "a[0]", "ключ", "kind", "metadata"] {
        for content in [json!("text"), Value::Null, json!({ "a": 1 }), json!([{ "b": 2 }])] {
            let mut fields = fields.clone();
            fields.entry(name).or_insert(content);
            changes.push(Change::Set(Value::Object(fields)));
        }
    }
    changes
}

fn null(_: &Place) -> Vec<Change> {
    each([Value::Null])
}

/// The rules are about a few texts: each is put where the rule may look, and each field is left out once.
fn rule(place: &Place) -> Vec<Change> {
    if place.schema["x-kubernetes-validations"].is_null() {
        return Vec::new();
    }
    let Value::Object(fields) = &place.value else {
        let mut changes = texts(["text", "/a/../b", "..", "", "/fine"]);
        changes.extend(each([json!(false), json!(true)]));
        return changes;
    };
    let mut changes = Vec::new();
    for (name, value) in fields {
        let mut without = fields.clone();
        without.remove(name);
        changes.push(Change::Set(Value::Object(without)));
        for word in ["", "Pull", "kubevirt.io", "backup.kubevirt.io", "VirtualMachine", "VirtualMachineBackupTracker"] {
            let mut fields = fields.clone();
            if value.is_string() {
                fields.insert(name.clone(), json!(word));
                changes.push(Change::Set(Value::Object(fields)));
            }
        }
    }
    changes
}

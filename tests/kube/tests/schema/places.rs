//! The places of an object that its schema speaks of, and objects with fewer of them.

use api::resources::Resource;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::objects::full;

/// A place of the fully filled object of a kind.
pub(crate) struct Place {
    pub(crate) resource: &'static Resource,
    /// The JSON pointer to it.
    pub(crate) pointer: String,
    pub(crate) schema: Value,
    pub(crate) required: bool,
    /// The value there.
    pub(crate) value: Value,
}

/// All places of a kind below the top-level fields that every object has.
pub(crate) fn places(resource: &'static Resource) -> Vec<Place> {
    let (schema, object) = (schema(resource), full(resource));
    let mut found = Vec::new();
    below(resource, &schema, &object, "", &mut found);
    found.retain(|place| !["/apiVersion", "/kind", "/metadata"].contains(&place.pointer.as_str()));
    found
}

pub(crate) fn schema(resource: &Resource) -> Value {
    api::schema::openapi(resource.kind).unwrap_or_default()
}

fn below(resource: &'static Resource, schema: &Value, value: &Value, pointer: &str, found: &mut Vec<Place>) {
    for (step, inner, value) in children(schema, value) {
        let pointer = format!("{pointer}/{step}");
        let required = is_required(schema, &step);
        found.push(Place { resource, pointer: pointer.clone(), schema: inner.clone(), required, value: value.clone() });
        below(resource, inner, value, &pointer, found);
    }
}

/// What is right below a value: the step of a pointer, the schema and the value there.
pub(crate) fn children<'a>(schema: &'a Value, value: &'a Value) -> Vec<(String, &'a Value, &'a Value)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let inner = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))?;
                Some((name.clone(), inner, value))
            })
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (index.to_string(), &schema["items"], value)).collect()
        }
        _ => Vec::new(),
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|required| required == name))
}

/// What rules ask for, though it is optional.
const RULED: [&str; 3] = ["/spec/pvcName", "/spec/tokenSecretRef", "/spec/source/apiGroup"];

/// An object with some of the optional fields: so many of a hundred, those that most rules ask for, and those on the way to
/// `kept`.
pub(crate) fn thinned(resource: &Resource, kept: &[&str], percent: u32, rng: &mut StdRng) -> Value {
    let mut object = full(resource);
    let common = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
    let ruled = if rng.random_ratio(4, 5) { &RULED[..] } else { &[] };
    thin(&schema(resource), &mut object, "", &[&common, ruled, kept].concat(), percent, rng);
    object
}

fn thin(schema: &Value, value: &mut Value, pointer: &str, kept: &[&str], percent: u32, rng: &mut StdRng) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                let below = format!("{pointer}/{name}");
                let on_the_way = kept
                    .iter()
                    .any(|kept| kept.strip_prefix(&below).is_some_and(|r| r.is_empty() || r.starts_with('/')));
                is_required(schema, name) || on_the_way || rng.random_ratio(percent, 100)
            });
            for (name, value) in fields {
                if let Some(inner) = schema["properties"].get(name).or_else(|| schema.get("additionalProperties")) {
                    thin(inner, value, &format!("{pointer}/{name}"), kept, percent, rng);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                thin(&schema["items"], item, &format!("{pointer}/{index}"), kept, percent, rng);
            }
        }
        _ => {}
    }
}

//! Structural schemas for CustomResourceDefinitions, generated from the tables.

use serde_json::{Map, Value, json};

use super::pattern::Pattern;
use super::table::{Field, Merge, Node, Shape, Type, named};

/// The schema of a type.
pub(super) fn schema_of(type_: &Type) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    let properties: Map<String, Value> =
        type_.fields.iter().map(|field| (field.name.to_owned(), Value::Object(of_field(field)))).collect();
    schema.insert("properties".to_owned(), Value::Object(properties));
    let required: Vec<&str> = type_.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if type_.atomic {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    if type_.open {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    schema
}

/// The schema of a field, with its rules.
pub(super) fn of_field(field: &Field) -> Map<String, Value> {
    let mut schema = of_node(&field.node);
    if !field.rules.is_empty() {
        let rules: Vec<Value> =
            field.rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect();
        schema.insert("x-kubernetes-validations".to_owned(), Value::Array(rules));
    }
    schema
}

fn of_node(node: &Node) -> Map<String, Value> {
    let mut schema = of_shape(&node.shape);
    let mut put = |key: &str, value: Value| schema.insert(key.to_owned(), value);
    if node.nullable {
        put("nullable", json!(true));
    }
    if !node.choices.is_empty() {
        put("enum", json!(node.choices));
    }
    if let Some(pattern) = node.pattern {
        put("pattern", json!(pattern.regex()));
    }
    if let Some(default) = &node.default {
        put("default", default.clone());
    }
    let bounds = [("minimum", node.min), ("maximum", node.max)];
    let lengths = [
        ("minLength", node.min_length),
        ("maxLength", node.max_length),
        ("minItems", node.min_items),
        ("maxItems", node.max_items),
    ];
    bounds.iter().for_each(|(key, bound)| _ = bound.map(|bound| put(key, json!(bound))));
    lengths.iter().for_each(|(key, length)| _ = length.map(|length| put(key, json!(length))));
    let about = if matches!(node.shape, Shape::List(_)) { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
    match &node.merge {
        Merge::Unstated => {}
        Merge::Atomic => _ = put(about, json!("atomic")),
        Merge::Set => _ = put(about, json!("set")),
        Merge::Keyed(keys) => {
            put(about, json!("map"));
            put("x-kubernetes-list-map-keys", json!(keys));
        }
    }
    schema
}

fn of_shape(shape: &Shape) -> Map<String, Value> {
    let schema = match shape {
        Shape::String => json!({ "type": "string" }),
        Shape::Time => json!({ "type": "string", "format": "date-time" }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Int(None) => json!({ "type": "integer" }),
        Shape::Int(Some(bits)) => json!({ "type": "integer", "format": format!("int{bits}") }),
        Shape::Number => json!({ "type": "number" }),
        Shape::Quantity => json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": Pattern::Quantity.regex(),
            "x-kubernetes-int-or-string": true,
        }),
        Shape::IntOrString => json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "x-kubernetes-int-or-string": true,
        }),
        Shape::List(item) => json!({ "type": "array", "items": of_node(item) }),
        Shape::Map(entry) => json!({ "type": "object", "additionalProperties": of_node(entry) }),
        Shape::Object | Shape::Metadata => json!({ "type": "object" }),
        Shape::AnyObject => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
        Shape::Named(name) => Value::Object(schema_of(named(name))),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

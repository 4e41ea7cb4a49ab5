//! Detects whether an object already is as an API server would store it, or must be normalized first.
//!
//! Most objects are, because they were read before they were written. They need no copy.

use machinery::quantity::rewritten;
use serde_json::{Map, Value};

use super::check::integer;
use super::prune::METADATA;
use super::table::{Node, Shape, Type, named};

/// Whether the fields of a type need no pruning, defaulting or normalization.
pub(super) fn type_is_tidy(type_: &Type, fields: &Map<String, Value>) -> bool {
    let missing = type_.fields.iter().any(|field| field.node.default.is_some() && !fields.contains_key(field.name));
    !missing
        && fields.iter().all(|(name, value)| match type_.field(name) {
            Some(field) => is_tidy(&field.node, value),
            None => type_.open,
        })
}

fn is_tidy(node: &Node, value: &Value) -> bool {
    match (&node.shape, value) {
        (_, Value::Null) => node.nullable,
        (Shape::Named(name), Value::Object(fields)) => type_is_tidy(named(name), fields),
        (Shape::List(item), Value::Array(items)) => items.iter().all(|item_value| is_tidy(item, item_value)),
        (Shape::Map(entry), Value::Object(entries)) => entries.values().all(|value| is_tidy(entry, value)),
        (Shape::Metadata, Value::Object(fields)) => fields.keys().all(|name| METADATA.contains(&name.as_str())),
        (Shape::AnyObject, _) => true,
        (Shape::Quantity, Value::String(text)) => rewritten(text).is_ok_and(|written| written == *text),
        (Shape::Quantity, _) => false,
        // 2.0 is written as 2.
        (Shape::Int(_) | Shape::Number | Shape::IntOrString, Value::Number(number)) => {
            !number.is_f64() || integer(number).is_none()
        }
        (Shape::Object, Value::Object(fields)) => fields.is_empty(),
        // Validation reports a value of the wrong type, which may hold anything.
        (_, value) => !matches!(value, Value::Object(_) | Value::Array(_)),
    }
}

//! The defaulting and normalization that an API server does on incoming objects.

use machinery::quantity::{Quantity, rewritten};
use serde_json::{Map, Number, Value};

use super::check::integer;
use super::table::{Node, Shape, Type, named};

/// Sets defaults of missing fields, drops `null` where it is not a value, and writes 2.0 as 2.
pub(super) fn default_type(type_: &Type, fields: &mut Map<String, Value>) {
    fields.retain(|name, value| !value.is_null() || type_.field(name).is_none_or(|field| keeps_null(&field.node)));
    for field in &type_.fields {
        if let Some(default) = &field.node.default {
            let value = fields.entry(field.name).or_insert_with(|| default.clone());
            fill_null(&field.node, value);
        }
    }
    for (name, value) in fields.iter_mut() {
        if let Some(field) = type_.field(name) {
            default_node(&field.node, value);
        }
    }
}

fn default_node(node: &Node, value: &mut Value) {
    match (&node.shape, value) {
        (Shape::Named(name), Value::Object(fields)) => default_type(named(name), fields),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|value| {
            fill_null(item, value);
            default_node(item, value);
        }),
        (Shape::Map(entry), Value::Object(entries)) => {
            entries.retain(|_, value| !value.is_null() || keeps_null(entry));
            entries.values_mut().for_each(|value| {
                fill_null(entry, value);
                default_node(entry, value);
            });
        }
        // Clients expect integers, and do not accept 2.0.
        (Shape::Int(_) | Shape::Number | Shape::IntOrString | Shape::Quantity, Value::Number(number))
            if number.is_f64() =>
        {
            *number = integer(number).map_or_else(|| number.clone(), Number::from);
        }
        _ => {}
    }
}

/// Whether `null` is a value here, or will be replaced by a default.
fn keeps_null(node: &Node) -> bool {
    node.nullable || node.default.is_some()
}

fn fill_null(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}

/// Normalizes quantities like Kubernetes. Invalid ones stay, for validation to report.
pub(super) fn respell_type(type_: &Type, fields: &mut Map<String, Value>) {
    for (name, value) in fields.iter_mut() {
        if let Some(field) = type_.field(name) {
            respell_node(&field.node, value);
        }
    }
}

fn respell_node(node: &Node, value: &mut Value) {
    match (&node.shape, &mut *value) {
        (Shape::Quantity, Value::String(text)) => {
            if let Ok(written) = rewritten(text)
                && written != *text
            {
                *text = written.into_owned();
            }
        }
        (Shape::Quantity, Value::Number(number)) => {
            if let Ok(quantity) = number.to_string().parse::<Quantity>() {
                *value = Value::String(quantity.to_string());
            }
        }
        (Shape::Named(name), Value::Object(fields)) => respell_type(named(name), fields),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|value| respell_node(item, value)),
        (Shape::Map(entry), Value::Object(entries)) => {
            entries.values_mut().for_each(|value| respell_node(entry, value));
        }
        _ => {}
    }
}

//! Holding an object against the tables.

use k8s_openapi::jiff::Timestamp;
use machinery::field::{FieldError, FieldPath};
use machinery::quantity::Quantity;
use serde_json::{Map, Value};

use super::table::{Merge, Node, Shape, Type, named};

/// Fields of every object's metadata.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Removes fields the type does not know and adds their paths to `gone`.
pub(super) fn prune_type(type_: &Type, fields: &mut Map<String, Value>, path: &FieldPath, gone: &mut Vec<FieldPath>) {
    fields.retain(|name, value| match type_.fields.iter().find(|field| field.name == name) {
        Some(field) => {
            prune_node(&field.node, value, &path.child(name), gone);
            true
        }
        None if type_.open => true,
        None => {
            gone.push(path.child(name));
            false
        }
    });
}

fn prune_node(node: &Node, value: &mut Value, path: &FieldPath, gone: &mut Vec<FieldPath>) {
    match (&node.shape, value) {
        (Shape::Named(name), Value::Object(fields)) => prune_type(named(name), fields, path, gone),
        (Shape::List(item), Value::Array(items)) => {
            items.iter_mut().enumerate().for_each(|(index, value)| prune_node(item, value, &path.index(index), gone));
        }
        (Shape::Map(entry), Value::Object(entries)) => {
            entries.iter_mut().for_each(|(key, value)| prune_node(entry, value, &path.key(key), gone));
        }
        (Shape::Object, Value::Object(fields)) => {
            gone.extend(std::mem::take(fields).keys().map(|name| path.child(name)));
        }
        (Shape::Metadata, Value::Object(fields)) => {
            fields.retain(|name, _| {
                let known = METADATA.contains(&name.as_str());
                if !known {
                    gone.push(path.child(name));
                }
                known
            });
        }
        // A value of the wrong type is for the check to report, and a plain value has no fields.
        _ => {}
    }
}

/// Adds to `errors` what is wrong with the known fields of an object.
pub(super) fn check_type(type_: &Type, fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in &type_.fields {
        match fields.get(field.name) {
            Some(value) => check_node(&field.node, value, &path.child(field.name), errors),
            // A default stands in for a missing value.
            None if field.required && field.node.default.is_none() => {
                errors.push(FieldError::required(path.child(field.name), ""));
            }
            None => {}
        }
    }
}

fn check_node(node: &Node, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if value.is_null() && node.nullable {
        return;
    }
    let mut wrong_type = |expected: &str| errors.push(FieldError::wrong_type(path.clone(), expected, value));
    match (&node.shape, value) {
        (Shape::String, Value::String(text)) => check_text(node, text, path, errors),
        (Shape::Time, Value::String(text)) => {
            if text.parse::<Timestamp>().is_err() {
                errors.push(FieldError::invalid(
                    path.clone(),
                    text.as_str(),
                    "must be a time such as 2006-01-02T15:04:05Z",
                ));
            }
        }
        (Shape::Bool, Value::Bool(_)) | (Shape::Number, Value::Number(_)) | (Shape::IntOrString, Value::String(_)) => {}
        (Shape::Int(bits), Value::Number(number)) if !number.is_f64() => {
            check_integer(node, bits.unwrap_or(64), value, path, errors);
        }
        (Shape::IntOrString | Shape::Quantity, Value::Number(number)) if !number.is_f64() => {}
        (Shape::Quantity, Value::String(text)) => check_quantity(text, path, errors),
        (Shape::List(item), Value::Array(items)) => {
            items.iter().enumerate().for_each(|(index, value)| check_node(item, value, &path.index(index), errors));
            check_list(node, items, path, errors);
        }
        (Shape::Map(entry), Value::Object(entries)) => {
            entries.iter().for_each(|(key, value)| check_node(entry, value, &path.key(key), errors));
        }
        (Shape::Object | Shape::AnyObject | Shape::Metadata, Value::Object(_)) => {}
        (Shape::Named(name), Value::Object(fields)) => check_type(named(name), fields, path, errors),
        (shape, _) => wrong_type(expected(shape)),
    }
}

fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::String | Shape::Time => "string",
        Shape::Bool => "boolean",
        Shape::Int(_) => "integer",
        Shape::Number => "number",
        Shape::Quantity | Shape::IntOrString => "integer or string",
        Shape::List(_) => "array",
        Shape::Map(_) | Shape::Object | Shape::AnyObject | Shape::Metadata | Shape::Named(_) => "object",
    }
}

fn check_text(node: &Node, text: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut invalid = |detail: String| errors.push(FieldError::invalid(path.clone(), text, detail));
    if let Some(min) = node.min_length.filter(|&min| text.chars().count() < min) {
        invalid(format!("should be at least {min} chars long"));
    }
    if let Some(max) = node.max_length.filter(|&max| text.chars().count() > max) {
        invalid(format!("may not be more than {max} chars long"));
    }
    if let Some(pattern) = node.pattern.filter(|pattern| !pattern.matches(text)) {
        invalid(format!("should match '{}'", pattern.regex()));
    }
    if !node.choices.is_empty() && !node.choices.contains(&text) {
        errors.push(FieldError::not_supported(path.clone(), text, &node.choices));
    }
}

fn check_integer(node: &Node, bits: u8, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut invalid = |detail: String| errors.push(FieldError::invalid(path.clone(), value.clone(), detail));
    let Some(number) = value.as_i64().filter(|number| bits != 32 || i32::try_from(*number).is_ok()) else {
        invalid(format!("must fit into {bits} bits"));
        return;
    };
    if let Some(min) = node.min.filter(|&min| number < min) {
        invalid(format!("should be greater than or equal to {min}"));
    }
    if let Some(max) = node.max.filter(|&max| number > max) {
        invalid(format!("should be less than or equal to {max}"));
    }
}

fn check_quantity(text: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match text.parse::<Quantity>() {
        // The parser follows Go and takes a bare suffix for zero; the published pattern wants a digit.
        Ok(_) if text.trim_start_matches(['+', '-', '.']).starts_with(|c: char| c.is_ascii_digit()) => {}
        Ok(_) => errors.push(FieldError::invalid(
            path.clone(),
            text,
            "must be a number with an optional suffix, such as 2Gi",
        )),
        Err(error) => errors.push(FieldError::invalid(path.clone(), text, error)),
    }
}

/// Items of a set must differ, items of a keyed list must differ in their keys.
fn check_list(node: &Node, items: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(max) = node.max_items.filter(|&max| items.len() > max) {
        errors.push(FieldError::invalid(path.clone(), items.len(), format!("must have at most {max} items")));
    }
    if let Some(min) = node.min_items.filter(|&min| items.len() < min) {
        errors.push(FieldError::invalid(path.clone(), items.len(), format!("should have at least {min} items")));
    }
    let identity = |item: &Value| match &node.merge {
        Merge::Set => Some(item.clone()),
        Merge::Keyed(keys) => Some(keys.iter().map(|&key| (key, item.get(key).cloned().unwrap_or_default())).collect()),
        Merge::Unstated | Merge::Atomic => None,
    };
    let identities: Vec<Value> = items.iter().filter_map(identity).collect();
    for (index, identity) in identities.iter().enumerate() {
        if identities[..index].contains(identity) {
            errors.push(FieldError::duplicate(path.index(index), identity.clone()));
        }
    }
}

//! Prunes unknown fields.

use machinery::field::{FieldPath, Path};
use serde_json::{Map, Value};

use super::table::{Node, Shape, Type, named};

/// Fields of every object's metadata.
pub(super) const METADATA: [&str; 15] = [
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

/// Removes unknown fields and adds their paths to `gone`.
pub(super) fn prune_type(type_: &Type, fields: &mut Map<String, Value>, path: &Path<'_>, gone: &mut Vec<FieldPath>) {
    fields.retain(|name, value| match type_.field(name) {
        Some(field) => {
            prune_node(&field.node, value, &path.child(name), gone);
            true
        }
        None if type_.open => true,
        None => {
            gone.push((&path.child(name)).into());
            false
        }
    });
}

fn prune_node(node: &Node, value: &mut Value, path: &Path<'_>, gone: &mut Vec<FieldPath>) {
    match (&node.shape, value) {
        (Shape::Named(name), Value::Object(fields)) => prune_type(named(name), fields, path, gone),
        (Shape::List(item), Value::Array(items)) => {
            items.iter_mut().enumerate().for_each(|(index, value)| prune_node(item, value, &path.index(index), gone));
        }
        (Shape::Map(entry), Value::Object(entries)) => {
            entries.iter_mut().for_each(|(key, value)| prune_node(entry, value, &path.child(key), gone));
        }
        (Shape::Metadata, Value::Object(fields)) => {
            fields.retain(|name, _| {
                let known = METADATA.contains(&name.as_str());
                if !known {
                    gone.push((&path.child(name)).into());
                }
                known
            });
        }
        (Shape::AnyObject, _) => {}
        (Shape::Named(name), Value::Array(_)) if named(name).open => {}
        // No fields belong here, whatever the type of the value. Validation reports a wrong type.
        (_, value) => prune_all(value, path, gone),
    }
}

fn prune_all(value: &mut Value, path: &Path<'_>, gone: &mut Vec<FieldPath>) {
    match value {
        Value::Object(fields) => gone.extend(std::mem::take(fields).keys().map(|name| (&path.child(name)).into())),
        Value::Array(items) => {
            items.iter_mut().enumerate().for_each(|(index, value)| prune_all(value, &path.index(index), gone));
        }
        _ => {}
    }
}

//! Objects to start from.

use api::resources::Resource;
use serde_json::{Value, json};

use crate::cluster::NAMESPACE;

/// An object with every field, in our namespace.
pub(crate) fn full(resource: &Resource) -> Value {
    let mut object = objects::full(resource);
    if resource.namespaced {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    object
}

/// An object with every field, and a condition of each type that tables show.
pub(crate) fn stored_object(resource: &Resource) -> Value {
    let mut object = full(resource);
    object["metadata"]["name"] = json!("stored");
    let paths = resource.columns.iter().map(|column| column.path);
    for (list, type_) in paths.filter_map(condition_of) {
        let mut condition = object.pointer(&format!("{list}/0")).cloned().unwrap_or_default();
        condition["type"] = json!(type_);
        objects::put(&mut object, &format!("{list}/{}", index_of(type_)), condition);
    }
    object
}

/// Where a column's value is in a stored object.
pub(crate) fn column_pointer(path: &str) -> String {
    match condition_of(path) {
        Some((list, type_)) => format!("{list}/{}/status", index_of(type_)),
        None => path.replace('[', "/").replace(']', "").replace('.', "/"),
    }
}

/// The pointer to the list of conditions, and the type, if a path leads to a condition.
fn condition_of(path: &str) -> Option<(String, &str)> {
    let (list, rest) = path.split_once("[?(@.type=='")?;
    Some((list.replace('.', "/"), rest.split_once('\'')?.0))
}

/// Where a condition is in the list: in the order in which columns ask for them.
fn index_of(type_: &str) -> usize {
    ["Ready", "LiveMigratable", "Paused"].iter().position(|known| *known == type_).unwrap_or_default()
}

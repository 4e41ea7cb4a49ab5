//! The schemas of our kinds: what is published in the CustomResourceDefinitions, and the checks that follow from it.
//!
//! Decoding into the Rust types is as tolerant as Go's and drops what it does not know. These functions come first and
//! say what was unknown, missing or of the wrong type, with the path to it.

mod check;
mod openapi;
mod pattern;
mod table;

use machinery::field::{FieldError, FieldPath};
use serde_json::Value;

use crate::resources::RESOURCES;
use table::Type;

/// Our kinds, each the root of a schema. No two groups of ours have a kind of the same name.
pub const KINDS: [&str; RESOURCES.len()] = {
    let mut kinds = [""; RESOURCES.len()];
    let mut index = 0;
    while index < kinds.len() {
        kinds[index] = RESOURCES[index].kind;
        index += 1;
    }
    kinds
};

fn root(kind: &str) -> Option<&'static Type> {
    KINDS.contains(&kind).then(|| table::kind(kind)).flatten()
}

/// Removes the fields an object of this kind does not have and returns their paths. Other kinds stay as they are.
pub fn prune(kind: &str, object: &mut Value) -> Vec<FieldPath> {
    let mut gone = Vec::new();
    let (Some(type_), Some(fields)) = (root(kind), object.as_object_mut()) else { return gone };
    check::prune_type(type_, fields, &FieldPath::root(), &mut gone);
    gone
}

/// The paths of fields an object of this kind does not have. Of other kinds nothing is known, so nothing is unknown.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<FieldPath> {
    prune(kind, &mut object.clone())
}

/// What the schema finds wrong with an object of this kind: wrong types, missing fields, values outside their limits.
pub fn check(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (root(kind), object) {
        (Some(type_), Value::Object(fields)) => check::check_type(type_, fields, &FieldPath::root(), &mut errors),
        (Some(_), other) => errors.push(FieldError::wrong_type(FieldPath::root(), "object", other)),
        (None, _) => {}
    }
    errors
}

/// The structural schema of a kind as CustomResourceDefinitions carry it; `None` for a kind that is not ours.
pub fn openapi(kind: &str) -> Option<Value> {
    root(kind).map(|type_| Value::Object(openapi::schema_of(type_)))
}

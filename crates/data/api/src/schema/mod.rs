//! The schemas of our kinds: as published in the CustomResourceDefinitions, and the validation derived from them.
//!
//! Decoding into the Rust types is as tolerant as Go's and drops unknown fields. These functions run first and report
//! what is unknown, missing or of the wrong type, with its path.

mod cel;
mod check;
mod defaults;
mod openapi;
mod pattern;
mod prune;
mod published;
mod routes;
mod table;
mod tidy;

use machinery::field::{Cause, FieldError, FieldPath, Path};
use serde_json::Value;

use crate::resources::RESOURCES;
pub use published::{METADATA, metadata, published};
use routes::{Route, Routes, Stop};
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

/// Removes unknown fields from an object of this kind and returns their paths. Other kinds are unchanged.
pub fn prune(kind: &str, object: &mut Value) -> Vec<FieldPath> {
    let mut gone = Vec::new();
    let (Some(type_), Some(fields)) = (root(kind), object.as_object_mut()) else { return gone };
    prune::prune_type(type_, fields, &Path::new(""), &mut gone);
    gone
}

/// The paths of unknown fields of an object of this kind. Empty for other kinds.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<FieldPath> {
    prune(kind, &mut object.clone())
}

/// Applies defaults to an object of this kind like an API server: missing fields get their defaults, and `null` is
/// dropped where it is not a value. Other kinds are unchanged.
pub fn apply_defaults(kind: &str, object: &mut Value) {
    if let (Some(type_), Some(fields)) = (root(kind), object.as_object_mut()) {
        defaults::default_type(type_, fields);
    }
}

/// Normalizes the quantities of an object of this kind like Kubernetes: `1024Mi` becomes `1Gi`, and the number 2 a
/// string. Other kinds are unchanged.
pub fn respell_quantities(kind: &str, object: &mut Value) {
    if let (Some(type_), Some(fields)) = (root(kind), object.as_object_mut()) {
        defaults::respell_type(type_, fields);
    }
}

/// Whether [`prune`], [`apply_defaults`] and [`respell_quantities`] would leave an object of this kind unchanged. This
/// check is cheaper than the copy they would need.
pub fn is_tidy(kind: &str, object: &Value) -> bool {
    match (root(kind), object) {
        (Some(type_), Value::Object(fields)) => tidy::type_is_tidy(type_, fields),
        _ => false,
    }
}

/// Schema errors of an object of this kind: wrong types, missing fields, values out of range, duplicate items. For
/// rules see [`validations`].
pub fn check(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(type_), Some(routes)) = (root(kind), routes::of_kind(kind)) {
        check_fields(type_, object, None, &mut errors);
        check_lists(&routes.start, object, &mut errors);
    }
    errors
}

/// Errors from the schema's rules for an object of this kind; with `old`, also from transition rules.
pub fn validations(kind: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    routes::of_kind(kind).map(|routes| cel::validations(&routes.start, object, old)).unwrap_or_default()
}

/// All errors that an API server finds in an object of this kind when it is created or, with `old`, updated.
///
/// On an update, unchanged errors are tolerated. Rules are only evaluated if values have the types that rules expect.
pub fn validate(kind: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (Some(type_), Some(Routes { start, has_rules })) = (root(kind), routes::of_kind(kind)) else { return errors };
    check_fields(type_, object, old, &mut errors);
    let doubled_before = || {
        let mut errors = Vec::new();
        old.iter().for_each(|old| check_lists(start, old, &mut errors));
        !errors.is_empty()
    };
    let mut doubled = Vec::new();
    check_lists(start, object, &mut doubled);
    if !doubled.is_empty() && !doubled_before() {
        errors.append(&mut doubled);
    }
    if !has_rules {
        return errors;
    }
    if errors.iter().any(|error| keeps_rules_from_being_judged(error.cause)) {
        let message = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::new(Cause::Invalid, FieldPath::from("<nil>"), message));
    } else {
        errors.extend(cel::validations(start, object, old));
    }
    errors
}

fn keeps_rules_from_being_judged(cause: Cause) -> bool {
    use Cause::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(cause, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

fn check_fields(type_: &Type, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match object {
        Value::Object(fields) => check::check_type(type_, fields, old, &Path::new(""), errors),
        other => errors.push(check::type_error(&Path::new(""), "object", check::json_type(other))),
    }
    if old == Some(object) {
        errors.clear();
    }
}

fn check_lists(route: &'static Route, object: &Value, errors: &mut Vec<FieldError>) {
    let start = Stop { route, value: object, old: None, around: None };
    routes::walk(start, &Path::new(""), &mut |stop, path| {
        if let (Some(merge), Value::Array(items)) = (stop.route.merge, stop.value) {
            check::check_unique(merge, items, path, errors);
        }
    });
}

/// The structural schema of a kind for CustomResourceDefinitions; `None` for a kind that is not ours.
pub fn openapi(kind: &str) -> Option<Value> {
    root(kind).map(|type_| Value::Object(openapi::schema_of(type_)))
}

//! PersistentVolumes, their claims and storage classes, and snapshots of claims.

mod claims;
mod classes;
mod snapshots;
mod volumes;

use machinery::field::{Cause, FieldError};
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, at, default_member, list_at, text_at};
use crate::table::{AGE, Column, NAME};

pub(super) fn all() -> Vec<Box<dyn Strategy>> {
    vec![
        Box::new(claims::Claims),
        Box::new(volumes::Volumes),
        Box::new(classes::Classes),
        Box::new(snapshots::Snapshots),
        Box::new(snapshots::Contents),
        Box::new(snapshots::SnapshotClasses),
    ]
}

/// Sorted, as messages list them.
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

fn phase(object: &Value) -> &str {
    if object["metadata"].get("deletionTimestamp").is_some() { "Terminating" } else { text_at(object, "status.phase") }
}

fn access_modes(object: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    list_at(object, path).iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

/// The class of a volume or a claim, which an annotation may name instead.
fn class(object: &Value) -> &str {
    match text_at(&object["metadata"]["annotations"], "volume.beta.kubernetes.io/storage-class") {
        "" => text_at(object, "spec.storageClassName"),
        class => class,
    }
}

fn mode_or_unset(object: &Value) -> &str {
    match text_at(object, "spec.volumeMode") {
        "" => "<unset>",
        mode => mode,
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match metadata.entry("finalizers").or_insert_with(|| json!([])) {
        Value::Array(all) if all.iter().all(|other| other != finalizer) => all.push(json!(finalizer)),
        _ => {}
    }
}

fn validate_access_modes(object: &Value) -> Vec<FieldError> {
    let modes = list_at(object, "spec.accessModes");
    if modes.is_empty() {
        return vec![FieldError::required("spec.accessModes".into(), "at least 1 access mode is required")];
    }
    let unknown = modes.iter().filter(|mode| !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()));
    let mut errors: Vec<FieldError> =
        unknown.map(|mode| FieldError::not_supported("spec.accessModes".into(), mode.clone(), ACCESS_MODES)).collect();
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let text = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes".into(), text));
    }
    errors
}

fn validate_class_and_mode(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let class = text_at(object, "spec.storageClassName");
    if !class.is_empty() {
        let wrong = machinery::names::check_dns1123_subdomain(class);
        errors.extend(wrong.iter().map(|why| FieldError::invalid("spec.storageClassName".into(), class, why)));
    }
    let mode = text_at(object, "spec.volumeMode");
    if !mode.is_empty() && !VOLUME_MODES.contains(&mode) {
        errors.push(FieldError::not_supported("spec.volumeMode".into(), mode, VOLUME_MODES));
    }
    errors
}

/// A size has to be there, and to be more than nothing.
fn validate_size(parent: &Value, path: &str) -> Vec<FieldError> {
    match &parent["storage"] {
        Value::Null => vec![FieldError::required(path.into(), "")],
        size => match size.as_str().unwrap_or_default().parse::<Quantity>() {
            Ok(quantity) if quantity > Quantity::ZERO => vec![],
            Ok(_) => vec![FieldError::invalid(path.into(), size.clone(), "must be greater than zero")],
            Err(err) => vec![FieldError::invalid(path.into(), size.clone(), err)],
        },
    }
}

/// `field is immutable` for each of these that has changed.
fn immutable(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let changed = fields.iter().filter(|field| at(object, field) != at(old, field));
    let error = |field: &&str| FieldError::invalid((**field).into(), at(object, field).clone(), "field is immutable");
    changed.map(error).collect()
}

/// An error of a custom resource's own rule, which has no value to show.
fn rule(path: &str, message: &str) -> FieldError {
    FieldError::new(Cause::Invalid, path.into(), format!("Invalid value: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_added_once() {
        let mut object = json!({"metadata": {"finalizers": ["a"]}});
        add_finalizer(&mut object, "b");
        add_finalizer(&mut object, "b");
        assert_eq!(object["metadata"]["finalizers"], json!(["a", "b"]));
        let mut object = json!({"metadata": {}});
        add_finalizer(&mut object, "b");
        assert_eq!(object["metadata"]["finalizers"], json!(["b"]));
    }
}

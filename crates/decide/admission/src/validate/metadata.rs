//! Labels that belong to the system.

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::meta::label;

/// Labels by which the components find each other's work; a user who could set them could take a guest over.
const RESERVED: [&str; 6] = [
    labels::CREATED_BY,
    labels::MIGRATION_JOB_UID,
    labels::NODE_NAME,
    labels::MIGRATION_TARGET_NODE_NAME,
    labels::SCHEDULABLE,
    "kubevirt.io/install-strategy",
];

/// Reserved labels that a user set.
pub(crate) fn reserved_labels(field: &FieldPath, metadata: &ObjectMeta) -> Vec<FieldError> {
    let set = RESERVED.iter().filter(|key| label(metadata, key).is_some());
    set.map(|key| reserved(field, key, "is a label of the system; remove it")).collect()
}

/// Reserved labels that a user changed.
pub(crate) fn reserved_labels_kept(field: &FieldPath, old: &ObjectMeta, new: &ObjectMeta) -> Vec<FieldError> {
    let changed = RESERVED.iter().filter(|key| label(old, key) != label(new, key));
    changed.map(|key| reserved(field, key, "is a label of the system and cannot be changed")).collect()
}

fn reserved(field: &FieldPath, key: &str, detail: &str) -> FieldError {
    FieldError::new(Cause::NotSupported, field.child("labels").key(key), detail)
}

//! Storage classes: which one a claim without a class gets, and what it allows.

use std::borrow::Borrow;
use std::cmp::Reverse;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

/// On classes: claims that name none get this one.
pub const DEFAULT_CLASS: &str = api::annotations::DEFAULT_STORAGE_CLASS;
/// The annotation's old name, which Kubernetes still reads.
const OLD_DEFAULT: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// The class of claims that name none: of several defaults the newest, then the first by name.
pub fn default_class<C: Borrow<StorageClass>>(classes: &[C]) -> Option<&StorageClass> {
    let defaults = classes.iter().map(Borrow::borrow).filter(|class| is_default(class));
    defaults.min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created), class.metadata.name.clone())
    })
}

fn is_default(class: &StorageClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    let marked = |key| annotations.and_then(|all| all.get(key)).is_some_and(|value| value == "true");
    marked(DEFAULT_CLASS) || marked(OLD_DEFAULT)
}

/// The annotation that once named the class.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class that a claim names: empty for "none", `None` if it does not say.
pub fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let old = claim.metadata.annotations.as_ref().and_then(|all| all.get(OLD_CLASS));
    let named = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    old.or(named).map(String::as_str)
}

/// Whether claims of a class get their volume only when a Pod that uses them is scheduled.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether claims of a class may grow.
pub fn allows_growth(class: &StorageClass) -> bool {
    class.allow_volume_expansion == Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, created: u8, default: &str) -> StorageClass {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"),
                "annotations": {DEFAULT_CLASS: default},
            },
            "provisioner": "p",
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_default_counts_then_the_first_by_name() {
        let found = |classes: &[StorageClass]| default_class(classes).and_then(|class| class.metadata.name.clone());
        assert_eq!(found(&[class("a", 1, "false"), class("b", 1, "yes")]), None);
        assert_eq!(found(&[class("a", 1, "true"), class("b", 2, "true")]).as_deref(), Some("b"));
        assert_eq!(found(&[class("b", 1, "true"), class("a", 1, "true")]).as_deref(), Some("a"));
        let mut old = class("o", 1, "false");
        old.metadata.annotations.get_or_insert_default().insert(OLD_DEFAULT.to_owned(), "true".to_owned());
        assert_eq!(found(&[old]).as_deref(), Some("o"));
    }
}

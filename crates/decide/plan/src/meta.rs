//! Helpers for object metadata.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) use machinery::meta::{
    add_finalizer, annotation, controller_of, controller_ref, has_finalizer, is_controlled_by, is_deleting,
    remove_finalizer,
};

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Records the latest API version that the controllers have observed the object in.
pub(crate) fn stamp(meta: &mut ObjectMeta) {
    let annotations = meta.annotations.get_or_insert_default();
    for key in [api::annotations::LATEST_OBSERVED_API_VERSION, api::annotations::STORAGE_OBSERVED_API_VERSION] {
        annotations.insert(key.to_owned(), api::v1::VERSION.to_owned());
    }
}

/// Copies the entries of some keys from `from` to `onto`, removing those that `from` lacks. A trailing `*` in a pattern
/// matches any suffix.
pub(crate) fn follow(
    fixed: &[&str],
    patterns: &[String],
    from: &BTreeMap<String, String>,
    onto: &mut BTreeMap<String, String>,
) {
    let matches = |key: &str| fixed.contains(&key) || patterns.iter().any(|pattern| is_match(pattern, key));
    onto.retain(|key, _| !matches(key) || from.contains_key(key));
    let chosen = from.iter().filter(|(key, _)| matches(key));
    onto.extend(chosen.map(|(key, value)| (key.clone(), value.clone())));
}

/// A bare `*` is not allowed: it would match every key.
fn is_match(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => !prefix.is_empty() && key.starts_with(prefix),
        None => pattern == key,
    }
}

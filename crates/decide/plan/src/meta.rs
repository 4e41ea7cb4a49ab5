//! Small readings of object metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) use machinery::meta::{
    add_finalizer, annotation, controller_of, controller_ref, has_finalizer, is_controlled_by, is_deleting,
    remove_finalizer,
};

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Notes the API version the controllers have seen the object in.
pub(crate) fn stamp(meta: &mut ObjectMeta) {
    let annotations = meta.annotations.get_or_insert_default();
    for key in [api::annotations::LATEST_OBSERVED_API_VERSION, api::annotations::STORAGE_OBSERVED_API_VERSION] {
        annotations.insert(key.to_owned(), api::v1::VERSION.to_owned());
    }
}

//! Helpers for metadata: owners, deletion, finalizers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};

/// The owner reference with `controller: true`.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    owners(meta).iter().find(|owner| owner.controller == Some(true))
}

/// Whether the object with this UID controls this one.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// Whether the object with this UID is among the owners of this one.
pub fn owned_by(meta: &ObjectMeta, uid: &str) -> bool {
    owners(meta).iter().any(|owner| owner.uid == uid)
}

/// An owner reference that makes `owner` the controller; `None` before the owner has a name and a UID.
pub fn controller_ref<T>(owner: &T) -> Option<OwnerReference>
where
    T: Resource + Metadata<Ty = ObjectMeta>,
{
    let meta = owner.metadata();
    Some(OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// Whether the object is being deleted.
pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Whether the object has the finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|held| held == finalizer)
}

/// Adds the finalizer unless it is there. Returns whether it was added.
pub fn add_finalizer(meta: &mut ObjectMeta, finalizer: &str) -> bool {
    if has_finalizer(meta, finalizer) {
        return false;
    }
    meta.finalizers.get_or_insert_default().push(finalizer.to_owned());
    true
}

/// Removes the finalizer. Returns whether it was present. An empty list becomes unset, as the API writes it.
pub fn remove_finalizer(meta: &mut ObjectMeta, finalizer: &str) -> bool {
    let Some(finalizers) = &mut meta.finalizers else { return false };
    let before = finalizers.len();
    finalizers.retain(|held| held != finalizer);
    let removed = finalizers.len() != before;
    if finalizers.is_empty() {
        meta.finalizers = None;
    }
    removed
}

/// The value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn owners(meta: &ObjectMeta) -> &[OwnerReference] {
    meta.owner_references.as_deref().unwrap_or_default()
}

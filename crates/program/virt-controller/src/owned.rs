//! Helpers for owner references and expectations.

use informer::{Change, Expectations, Key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use machinery::meta::{controller_of, is_deleting};

/// The object of this kind that controls the one with these metadata.
pub(crate) fn owner_key(meta: &ObjectMeta, kind: &str) -> Option<Key> {
    let owner = controller_of(meta).filter(|owner| owner.kind == kind)?;
    Some(Key::new(meta.namespace.clone().unwrap_or_default(), &owner.name))
}

/// Marks an expected creation or deletion as observed.
pub(crate) fn note<K: Resource<DynamicType = ()>>(expected: &Expectations, owner: &Key, change: &Change<K>) {
    let object = change.object();
    let key = Key::of(object.as_ref());
    match change {
        Change::Deleted(_) => expected.deleted(owner, &key),
        _ if is_deleting(object.meta()) => expected.deleted(owner, &key),
        Change::Added(_) | Change::Updated { .. } => expected.created(owner, &key),
    }
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

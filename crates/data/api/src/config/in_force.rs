//! Which KubeVirt object counts.

use std::borrow::Borrow;

use machinery::meta::is_deleting;

use crate::v1::KubeVirt;

/// The KubeVirt object in force: the oldest that is not being deleted or, if all are, the oldest. With a namespace, only
/// objects in it are considered.
///
/// Admission allows one object per cluster, but there may be more: from before it ran, or created at the same moment.
/// All programs must then agree, so a program that follows the object has to look at all of them after each change. An
/// object that is being deleted still counts on its own: guests stop under the settings they ran with.
pub fn in_force<K: Borrow<KubeVirt>>(objects: impl IntoIterator<Item = K>, namespace: Option<&str>) -> Option<K> {
    let here = |object: &K| namespace.is_none_or(|here| object.borrow().metadata.namespace.as_deref() == Some(here));
    objects.into_iter().filter(here).min_by(|one, other| rank(one.borrow()).cmp(&rank(other.borrow())))
}

/// Times have the precision of a second, so names decide between objects of the same one.
fn rank(object: &KubeVirt) -> impl Ord + '_ {
    let meta = &object.metadata;
    (is_deleting(meta), &meta.creation_timestamp, &meta.namespace, &meta.name)
}

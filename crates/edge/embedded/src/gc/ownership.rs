//! Owners and dependents.

use placement::ownership::{Dependent, Standing, Verdict, judge};
use serde_json::Value;

use crate::cache::{Cache, Key, Object, Owner};
use crate::errors::ApiError;
use crate::kinds::Kinds;
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Part, Registry, WriteContext};

/// An owner of a kind that this server does not know cannot be checked, so it counts as existing.
fn standing(cache: &Cache, dependent: &Object, owner: &Owner) -> Standing {
    let Some(kind) = Kinds::get().find_kind(&owner.api_version, &owner.kind) else { return Standing::Solid };
    let Some(key) = cache.find_uid(&owner.uid).filter(|key| key.kind == kind) else { return Standing::Absent };
    if Kinds::get().definition(kind).namespaced && key.name.namespace != dependent.name.namespace {
        return Standing::Absent; // owner references do not cross namespaces
    }
    match cache.get(kind, &key.name) {
        None => Standing::Absent,
        Some(object) if object.deleting && object.has_finalizer(FOREGROUND) => Standing::Waiting,
        Some(_) => Standing::Solid,
    }
}

/// Judges a dependent and acts on the verdict.
pub(super) async fn collect(registry: &Registry, key: &Key) -> Result<(), ApiError> {
    let cache = &registry.cache;
    let Some(object) = cache.get(key.kind, &key.name) else { return Ok(()) };
    let has_dependents = !cache.dependents(&object.uid).is_empty();
    let owners: Vec<(&str, Standing)> =
        object.owners.iter().map(|owner| (owner.uid.as_str(), standing(cache, &object, owner))).collect();
    let dependent =
        Dependent { owners: &owners, finalizers: &object.finalizers, deleting: object.deleting, has_dependents };
    match judge(&dependent) {
        Verdict::Keep => Ok(()),
        Verdict::Delete(propagation) => {
            let options = DeleteOptions {
                propagation: Some(propagation),
                uid: Some(object.uid.clone()),
                // Its owners may have changed meanwhile.
                resource_version: Some(object.revision.to_string()),
                ..DeleteOptions::default()
            };
            registry.delete(key.kind, &key.name, &options, &mut WriteContext::server()).await.map(drop)
        }
        Verdict::Forget(uids) => forget(registry, key, &uids).await,
    }
}

async fn forget(registry: &Registry, key: &Key, uids: &[String]) -> Result<(), ApiError> {
    let change = |object: &mut Value| {
        retain(object, "ownerReferences", |reference| {
            !uids.iter().any(|uid| reference["uid"].as_str() == Some(uid.as_str()))
        });
    };
    registry.modify(key, Part::Main, change).await.map(drop)
}

/// Advances the deletion of an owner that waits for its dependents.
pub(super) async fn release(registry: &Registry, key: &Key) -> Result<(), ApiError> {
    let cache = &registry.cache;
    let Some(owner) = cache.get(key.kind, &key.name).filter(|owner| owner.deleting) else { return Ok(()) };
    let dependents = cache.dependents(&owner.uid);
    if owner.has_finalizer(ORPHAN) {
        for dependent in &dependents {
            forget(registry, dependent, std::slice::from_ref(&owner.uid)).await?;
        }
        return remove_finalizer(registry, key, ORPHAN).await;
    }
    if !owner.has_finalizer(FOREGROUND) {
        return Ok(());
    }
    for dependent in &dependents {
        match collect(registry, dependent).await {
            Ok(()) | Err(ApiError::NotFound(_)) => {}
            Err(err) => return Err(err),
        }
    }
    // Check for remaining blocking dependents. Their deletion triggers this again.
    let blocks = |key: &Key| {
        let object = cache.get(key.kind, &key.name);
        object.is_some_and(|object| {
            object.owners.iter().any(|reference| reference.uid == owner.uid && reference.block_owner_deletion)
        })
    };
    if cache.dependents(&owner.uid).iter().any(blocks) {
        return Ok(());
    }
    remove_finalizer(registry, key, FOREGROUND).await
}

async fn remove_finalizer(registry: &Registry, key: &Key, finalizer: &str) -> Result<(), ApiError> {
    let change = |object: &mut Value| retain(object, "finalizers", |name| name.as_str() != Some(finalizer));
    registry.modify(key, Part::Main, change).await.map(drop)
}

/// Filters a list in the metadata; an empty one is removed.
fn retain(object: &mut Value, field: &str, keep: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(Value::Array(list)) = metadata.get_mut(field) else { return };
    list.retain(keep);
    if list.is_empty() {
        metadata.remove(field);
    }
}

//! Owners and dependents.

use serde_json::Value;

use crate::cache::{Cache, Key, Object, Owner};
use crate::errors::ApiError;
use crate::kinds::Kinds;
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Part, Propagation, Registry, WriteContext};

/// The state of an owner, as seen by a dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It exists.
    Solid,
    /// It is terminating and waits for its dependents.
    Waiting,
    /// It is gone.
    Absent,
}

/// What happens to a dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Keep,
    Delete(Propagation),
    /// It has another owner; remove references to these.
    Forget(Vec<String>),
}

/// If all owners are gone, the dependent is deleted. If one is left, it stays and drops its references to the others.
fn judge(object: &Object, has_dependents: bool, standing: impl Fn(&Owner) -> Standing) -> Verdict {
    let standings: Vec<(&Owner, Standing)> = object.owners.iter().map(|owner| (owner, standing(owner))).collect();
    let is = |wanted: Standing| standings.iter().any(|(_, standing)| *standing == wanted);
    if standings.is_empty() {
        return Verdict::Keep;
    }
    if is(Standing::Solid) {
        let gone = standings.iter().filter(|(_, standing)| *standing != Standing::Solid);
        let gone: Vec<String> = gone.map(|(owner, _)| owner.uid.clone()).collect();
        return if gone.is_empty() { Verdict::Keep } else { Verdict::Forget(gone) };
    }
    if object.deleting {
        return Verdict::Keep; // already terminating
    }
    if is(Standing::Waiting) && has_dependents {
        return Verdict::Delete(Propagation::Foreground);
    }
    Verdict::Delete(match (object.has_finalizer(ORPHAN), object.has_finalizer(FOREGROUND)) {
        (true, _) => Propagation::Orphan,
        (_, true) => Propagation::Foreground,
        _ => Propagation::Background,
    })
}

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
    match judge(&object, has_dependents, |owner| standing(cache, &object, owner)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(owners: &[&str], finalizers: &[&str], deleting: bool) -> Object {
        let references: Vec<Value> = owners
            .iter()
            .map(|uid| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid}))
            .collect();
        let mut value =
            json!({"metadata": {"name": "x", "uid": "x", "ownerReferences": references, "finalizers": finalizers}});
        if deleting {
            value["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        let kind = Kinds::get().find("", "configmaps").unwrap();
        Object::encode(Kinds::get().strategy(kind), value, 1)
    }

    #[test]
    fn a_dependent_follows_the_last_of_its_owners() {
        use Propagation::{Background, Foreground, Orphan};
        let standing = |owner: &Owner| match owner.uid.chars().next() {
            Some('s') => Standing::Solid,
            Some('w') => Standing::Waiting,
            _ => Standing::Absent,
        };
        let table = [
            ("nobody owns it", object(&[], &[], false), false, Verdict::Keep),
            ("its owner is there", object(&["s"], &[], false), false, Verdict::Keep),
            ("its owner is gone", object(&["a"], &[], false), false, Verdict::Delete(Background)),
            ("all owners are gone", object(&["a", "a2"], &[], false), true, Verdict::Delete(Background)),
            ("one of two is gone", object(&["s", "a"], &[], false), false, Verdict::Forget(vec!["a".into()])),
            ("one of two is going", object(&["s", "w"], &[], false), false, Verdict::Forget(vec!["w".into()])),
            ("its owner waits", object(&["w"], &[], false), false, Verdict::Delete(Background)),
            ("and others wait for it", object(&["w"], &[], false), true, Verdict::Delete(Foreground)),
            ("it is going already", object(&["a"], &[], true), false, Verdict::Keep),
            ("it asked to orphan", object(&["a"], &[ORPHAN], false), false, Verdict::Delete(Orphan)),
        ];
        for (name, object, has_dependents, expected) in table {
            assert_eq!(judge(&object, has_dependents, standing), expected, "{name}");
        }
    }
}

//! Termination of namespaces: deletes the contents first and reports what is left.

use serde_json::{Value, json};

use crate::cache::{Filter, Key, ObjectName};
use crate::errors::ApiError;
use crate::kinds::{CONTENTS, Kinds, list_at};
use crate::registry::{DeleteOptions, Part, Propagation, Registry, WriteContext, now};

/// Remaining objects of a kind, and the finalizers that block them.
struct Remainder {
    resource: String,
    count: usize,
    finalizers: Vec<String>,
}

/// Deletes the contents; releases the namespace when it is empty.
pub(super) async fn empty(registry: &Registry, name: &str) -> Result<(), ApiError> {
    let kinds = Kinds::get();
    let key = Key { kind: kinds.namespaces(), name: ObjectName::new("", name) };
    let namespace = registry.get(key.kind, &key.name)?;
    if !namespace.deleting {
        return Ok(());
    }
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let filter = Filter::in_namespace(name);
    for kind in kinds.ids().filter(|&kind| kinds.definition(kind).namespaced) {
        registry.delete_collection(kind, &filter, &options, &mut WriteContext::server()).await?;
    }
    let left = remainder(registry, name);
    if left.is_empty() {
        let release = |object: &mut Value| {
            if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut() {
                finalizers.retain(|finalizer| finalizer != CONTENTS);
            }
        };
        return registry.modify(&key, Part::Finalize, release).await.map(drop);
    }
    let conditions = conditions(&left);
    registry.modify(&key, Part::Status, |object| set_conditions(object, &conditions, &now())).await.map(drop)
}

fn remainder(registry: &Registry, namespace: &str) -> Vec<Remainder> {
    let kinds = Kinds::get();
    let mut left = vec![];
    for kind in kinds.ids().filter(|&kind| kinds.definition(kind).namespaced) {
        let objects = registry.cache.list(kind, Some(namespace)).objects;
        if objects.is_empty() {
            continue;
        }
        let mut finalizers: Vec<String> = objects.iter().flat_map(|object| object.finalizers.clone()).collect();
        finalizers.sort();
        finalizers.dedup();
        left.push(Remainder { resource: kinds.definition(kind).resource_name(), count: objects.len(), finalizers });
    }
    left
}

/// Type, reason and message of every condition that is true.
fn conditions(left: &[Remainder]) -> Vec<(&'static str, &'static str, String)> {
    let contents: Vec<String> =
        left.iter().map(|kind| format!("{} has {} resource instances", kind.resource, kind.count)).collect();
    let mut conditions = vec![(
        "NamespaceContentRemaining",
        "SomeResourcesRemain",
        format!("Some resources are remaining: {}", contents.join(", ")),
    )];
    let mut finalizers: Vec<&str> = left.iter().flat_map(|kind| &kind.finalizers).map(String::as_str).collect();
    finalizers.sort_unstable();
    finalizers.dedup();
    if !finalizers.is_empty() {
        conditions.push((
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", ")),
        ));
    }
    conditions
}

/// Replaces the conditions; an unchanged one keeps its transition time.
fn set_conditions(namespace: &mut Value, wanted: &[(&str, &str, String)], now: &str) {
    let before: Vec<Value> = list_at(namespace, "status.conditions").to_vec();
    let after: Vec<Value> = wanted
        .iter()
        .map(|(kind, reason, message)| {
            let known = before.iter().find(|condition| condition["type"] == *kind);
            let time = known.map_or(json!(now), |condition| condition["lastTransitionTime"].clone());
            json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time})
        })
        .collect();
    namespace["status"]["conditions"] = json!(after);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_namespace_says_what_it_waits_for_and_changes_only_with_it() {
        let pods = |count| Remainder { resource: "pods".into(), count, finalizers: vec!["a/b".into()] };
        let mut namespace = json!({"status": {"phase": "Terminating"}});
        set_conditions(&mut namespace, &conditions(&[pods(2)]), "t1");
        let first = namespace.clone();
        assert_eq!(
            first["status"]["conditions"][0]["message"],
            "Some resources are remaining: pods has 2 resource instances"
        );
        assert_eq!(first["status"]["conditions"][1]["reason"], "SomeFinalizersRemain");
        set_conditions(&mut namespace, &conditions(&[pods(2)]), "t2");
        assert_eq!(namespace, first);
        set_conditions(&mut namespace, &conditions(&[pods(1)]), "t3");
        assert_ne!(namespace, first);
        assert_eq!(namespace["status"]["conditions"][0]["lastTransitionTime"], "t1");
    }
}

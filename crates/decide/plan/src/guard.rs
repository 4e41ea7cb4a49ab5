//! JSON patches that fail if the object is no longer in the state that the decision was based on.

use std::collections::BTreeMap;

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::patch::{JsonPatch, pointer};
use serde::Serialize;
use serde_json::{Value, json};

/// Collects changes to one object's fields.
///
/// Strings and maps of strings are tested by value, so unrelated writes do not conflict. Lists of objects are guarded
/// by the resourceVersion instead: a stored element may hold an explicit `null` that deserialization drops, and a test
/// by value would then never succeed.
pub(crate) struct Guarded<'a> {
    meta: &'a ObjectMeta,
    by_value: JsonPatch,
    by_version: Vec<PatchOperation>,
    expected: JsonPatch,
}

impl<'a> Guarded<'a> {
    pub(crate) fn new(meta: &'a ObjectMeta) -> Self {
        Self { meta, by_value: JsonPatch::new(), by_version: Vec::new(), expected: JsonPatch::new() }
    }

    /// Requires that this string or flag is unchanged. This is not a change by itself.
    pub(crate) fn expect<T: Serialize>(mut self, path: &[&str], old: &T) -> Self {
        self.expected.test(path, value(old));
        self
    }

    /// Changes a string or a map or list of strings. Empty values count as absent, since the API omits them.
    pub(crate) fn field<T: Serialize + PartialEq>(mut self, path: &[&str], old: &T, new: &T) -> Self {
        if old != new {
            self.by_value.change(path, value(old), value(new));
        }
        self
    }

    /// Changes a list of objects, or any field that must not be changed concurrently at all. Its parent must exist.
    pub(crate) fn whole<T: Serialize + PartialEq>(mut self, path: &[&str], old: &T, new: &T) -> Self {
        if old != new {
            let path = pointer(path);
            match (value(old), value(new)) {
                (Value::Null, Value::Null) => {}
                (_, Value::Null) => self.by_version.push(PatchOperation::Remove(RemoveOperation { path })),
                (_, value) => self.by_version.push(PatchOperation::Add(AddOperation { path, value })),
            }
        }
        self
    }

    pub(crate) fn labels(self, new: &ObjectMeta) -> Self {
        let old = &self.meta.labels;
        self.field(&["metadata", "labels"], old, &new.labels)
    }

    pub(crate) fn annotations(self, new: &BTreeMap<String, String>) -> Self {
        let none = BTreeMap::new();
        let old = self.meta.annotations.as_ref().unwrap_or(&none);
        self.field(&["metadata", "annotations"], old, new)
    }

    pub(crate) fn finalizers(self, new: &ObjectMeta) -> Self {
        let old = &self.meta.finalizers;
        self.field(&["metadata", "finalizers"], old, &new.finalizers)
    }

    /// The patch, or `None` if nothing changes. It only applies to the object with our UID: a name can be reused.
    pub(crate) fn build(self) -> Option<Patch> {
        let mut all = JsonPatch::new();
        all.test(&["metadata", "uid"], json!(self.meta.uid));
        if !self.by_version.is_empty() {
            all.test(&["metadata", "resourceVersion"], json!(self.meta.resource_version));
        }
        let operations = |patch: JsonPatch| patch.build().map(|patch| patch.0).unwrap_or_default();
        let changes: Vec<_> = self.by_version.into_iter().chain(operations(self.by_value)).collect();
        if changes.is_empty() {
            return None;
        }
        let guards = operations(all).into_iter().chain(operations(self.expected));
        Some(Patch(guards.chain(changes).collect()))
    }
}

/// The fields a patch changes, for logs.
pub(crate) fn paths(patch: &Patch) -> String {
    let changes = patch.0.iter().filter(|operation| !matches!(operation, PatchOperation::Test(_)));
    changes.map(|operation| operation.path().to_string()).collect::<Vec<_>>().join(" ")
}

/// The value as the API stores it; `null` for values that it would omit.
fn value<T: Serialize>(value: &T) -> Value {
    let value = json!(value);
    let empty = match &value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if empty { Value::Null } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> ObjectMeta {
        ObjectMeta {
            uid: Some("u1".into()),
            resource_version: Some("7".into()),
            labels: Some([("a/b".to_owned(), "1".to_owned())].into()),
            ..Default::default()
        }
    }

    fn applied(patch: &Patch, mut object: Value) -> Result<Value, machinery::patch::PatchError> {
        machinery::patch::apply(&mut object, patch).map(|()| object)
    }

    #[test]
    fn nothing_changed_is_no_patch() {
        let meta = meta();
        assert_eq!(Guarded::new(&meta).labels(&meta).build(), None);
    }

    #[test]
    fn a_changed_map_is_tested_and_replaced_as_a_whole() {
        let meta = meta();
        let mut new = meta.clone();
        new.labels.get_or_insert_default().insert("c".into(), "2".into());
        let patch = Guarded::new(&meta).labels(&new).build().unwrap();
        let object = json!({"metadata": {"uid": "u1", "resourceVersion": "99", "labels": {"a/b": "1"}}});
        assert_eq!(applied(&patch, object).unwrap()["metadata"]["labels"], json!({"a/b": "1", "c": "2"}));
        let changed = json!({"metadata": {"uid": "u1", "labels": {"a/b": "other"}}});
        assert!(applied(&patch, changed).is_err());
        let namesake = json!({"metadata": {"uid": "u2", "labels": {"a/b": "1"}}});
        assert!(applied(&patch, namesake).is_err());
    }

    #[test]
    fn emptying_a_map_removes_it_and_filling_an_absent_one_adds_it() {
        let meta = meta();
        let none = ObjectMeta::default();
        let patch = Guarded::new(&meta).labels(&none).build().unwrap();
        let object = json!({"metadata": {"uid": "u1", "labels": {"a/b": "1"}}});
        assert_eq!(applied(&patch, object).unwrap()["metadata"], json!({"uid": "u1"}));
        let bare = ObjectMeta { uid: Some("u1".into()), ..Default::default() };
        let patch = Guarded::new(&bare).labels(&meta).build().unwrap();
        assert_eq!(applied(&patch, json!({"metadata": {"uid": "u1"}})).unwrap()["metadata"]["labels"]["a/b"], "1");
    }

    #[test]
    fn an_emptied_object_is_removed_and_not_nulled() {
        let meta = meta();
        let patch = Guarded::new(&meta).whole(&["spec", "affinity"], &Some(json!({"a": 1})), &None).build().unwrap();
        let object = json!({"metadata": {"uid": "u1", "resourceVersion": "7"}, "spec": {"affinity": {"a": 1}}});
        assert_eq!(applied(&patch, object).unwrap()["spec"], json!({}));
        assert_eq!(Guarded::new(&meta).whole(&["spec", "list"], &Some(Vec::<u8>::new()), &None).build(), None);
    }

    #[test]
    fn a_list_of_objects_is_guarded_by_the_resource_version() {
        let meta = meta();
        let (old, new) = (vec![json!({"type": "Ready"})], vec![json!({"type": "Paused"})]);
        let patch = Guarded::new(&meta).whole(&["status", "conditions"], &old, &new).build().unwrap();
        let stored = |version: &str| {
            json!({"metadata": {"uid": "u1", "resourceVersion": version},
                   "status": {"conditions": [{"type": "Ready", "lastProbeTime": null}]}})
        };
        assert_eq!(applied(&patch, stored("7")).unwrap()["status"]["conditions"][0]["type"], "Paused");
        assert!(applied(&patch, stored("8")).is_err());
    }
}

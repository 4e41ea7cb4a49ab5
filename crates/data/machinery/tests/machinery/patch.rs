//! JSON patches against what Kubernetes makes of them, patches that guard themselves, and strategic merge patches.

use crate::recorded::cases;
use json_patch::{CopyOperation, Patch, PatchOperation};
use machinery::patch::{JsonPatch, MAX_COPIED_BYTES, MAX_OPERATIONS, PatchError, apply, merge, pointer};
use machinery::strategic;
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_change_tests_what_it_replaces() {
    let mut patch = JsonPatch::new();
    patch
        .change(&["status", "phase"], json!("Scheduled"), json!("Running"))
        .change(&["status", "reason"], Value::Null, json!("x"))
        .change(&["metadata", "labels"], json!({ "a": "b" }), Value::Null)
        .change(&["status", "same"], json!([1]), json!([1]));
    let patch = patch.build().unwrap();
    assert_eq!(
        serde_json::to_value(&patch).unwrap(),
        json!([
            { "op": "test", "path": "/status/phase", "value": "Scheduled" },
            { "op": "replace", "path": "/status/phase", "value": "Running" },
            { "op": "test", "path": "/status/reason", "value": null },
            { "op": "add", "path": "/status/reason", "value": "x" },
            { "op": "test", "path": "/metadata/labels", "value": { "a": "b" } },
            { "op": "remove", "path": "/metadata/labels" },
        ])
    );
    let mut object = json!({ "metadata": { "labels": { "a": "b" } }, "status": { "phase": "Scheduled" } });
    apply(&mut object, &patch).unwrap();
    assert_eq!(object, json!({ "metadata": {}, "status": { "phase": "Running", "reason": "x" } }));
}

#[test]
fn nothing_changed_means_no_patch() {
    let mut patch = JsonPatch::new();
    patch.change(&["a"], json!(1), json!(1)).change(&["b"], Value::Null, Value::Null);
    assert!(patch.is_empty());
    assert!(patch.build().is_none());
}

#[test]
fn a_patch_that_meets_another_value_changes_nothing() {
    let mut patch = JsonPatch::new();
    patch.set(&["a"], json!(2)).change(&["b"], Value::Null, json!(1));
    let patch = patch.build().unwrap();
    let mut object = json!({ "a": 1, "b": 7 });
    match apply(&mut object, &patch) {
        Err(PatchError::TestFailed { index, path }) => assert_eq!((index, path.as_str()), (1, "/b")),
        other => panic!("expected a failed test, got {other:?}"),
    }
    assert_eq!(object, json!({ "a": 1, "b": 7 }));
}

#[test]
fn pointers_escape_their_separators() {
    assert_eq!(pointer(&["metadata", "labels", "kubevirt.io/a~b"]).to_string(), "/metadata/labels/kubevirt.io~1a~0b");
}

#[test]
fn json_patches_apply_as_in_kubernetes() {
    for case in cases(include_str!("recorded/patches.txt")) {
        let (&[document, patch], &[answer]) = (case.columns.as_slice(), case.answers.as_slice()) else {
            panic!("a case of {:?}", case.columns)
        };
        let document: Value = serde_json::from_str(document).unwrap();
        let operations: Patch = serde_json::from_str(patch).unwrap_or_else(|e| panic!("{patch}: {e}"));
        let mut changed = document.clone();
        match (apply(&mut changed, &operations), answer.strip_prefix("error: ")) {
            (Ok(()), None) => assert_eq!(changed, serde_json::from_str::<Value>(answer).unwrap(), "{patch}"),
            (Err(error), Some(want)) => {
                assert_eq!(error.to_string(), want, "{patch}");
                assert_eq!(changed, document, "{patch} failed and left something behind");
            }
            (found, _) => panic!("{patch} of {document}: {found:?}, not {answer}"),
        }
    }
}

#[test]
fn patches_that_would_grow_without_bounds_are_refused() {
    let test = serde_json::from_value::<PatchOperation>(json!({ "op": "test", "path": "/a", "value": null })).unwrap();
    let many = Patch(vec![test; MAX_OPERATIONS + 1]);
    let mut object = json!({});
    let error = apply(&mut object, &many).unwrap_err();
    assert_eq!(error, PatchError::TooManyOperations(10_001));
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");

    let double = |from: &str, path: &str| {
        PatchOperation::Copy(CopyOperation { from: pointer(&[from]), path: pointer(&["a", path]) })
    };
    // Each copy of the whole into itself doubles it.
    let copies = Patch((0..40).map(|count| double("a", &count.to_string())).collect());
    let mut object = json!({ "a": { "text": "x".repeat(1000) } });
    match apply(&mut object, &copies) {
        Err(PatchError::CopiesTooMuch(size)) => assert!((MAX_COPIED_BYTES..3 * MAX_COPIED_BYTES).contains(&size)),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_merge_patch_merges_objects_and_removes_nulls() {
    let mut object = json!({ "a": { "b": 1, "c": [1, 2] }, "d": 4 });
    merge(&mut object, &json!({ "a": { "c": [3], "e": { "f": null } }, "d": null }));
    assert_eq!(object, json!({ "a": { "b": 1, "c": [3], "e": {} } }));
}

#[test]
fn strategic_patches_know_their_lists() {
    let cases = [
        (
            "a condition is replaced by its type and the others stay",
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "X", "status": "False" }] } }),
            json!({ "status": { "conditions": [{ "type": "X", "status": "True", "reason": "r" }, { "type": "Y", "status": "True" }] } }),
            json!({ "status": { "conditions": [
                { "type": "Ready", "status": "True" },
                { "type": "X", "status": "True", "reason": "r" },
                { "type": "Y", "status": "True" },
            ] } }),
        ),
        (
            "labels merge and null removes one",
            json!({ "metadata": { "labels": { "a": "1", "b": "2" } } }),
            json!({ "metadata": { "labels": { "b": null, "c": "3" } } }),
            json!({ "metadata": { "labels": { "a": "1", "c": "3" } } }),
        ),
        (
            "finalizers are a set",
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
            json!({ "metadata": { "finalizers": ["b", "c"], "$deleteFromPrimitiveList/finalizers": ["a"] } }),
            json!({ "metadata": { "finalizers": ["b", "c"] } }),
        ),
        (
            "an item is deleted by its key",
            json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" }] } }),
            json!({ "spec": { "taints": [{ "key": "a", "$patch": "delete" }] } }),
            json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
        ),
        (
            "a list is replaced on demand",
            json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b" }] } }),
            json!({ "spec": { "containers": [{ "$patch": "replace" }, { "name": "c" }] } }),
            json!({ "spec": { "containers": [{ "name": "c" }] } }),
        ),
        (
            "an object is replaced on demand",
            json!({ "metadata": { "annotations": { "a": "1" } } }),
            json!({ "metadata": { "annotations": { "$patch": "replace", "b": "2" } } }),
            json!({ "metadata": { "annotations": { "b": "2" } } }),
        ),
        (
            "a list without a key is replaced",
            json!({ "spec": { "tolerations": [{ "key": "a" }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b" }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b" }] } }),
        ),
        (
            "retained keys drop their siblings",
            json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }),
            json!({ "spec": { "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } }] } }),
            json!({ "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/x" } }] } }),
        ),
    ];
    for (name, object, patch, want) in cases {
        let mut changed = object.clone();
        strategic::apply("Pod", &mut changed, &patch).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(changed, want, "{name}");
    }
}

#[test]
fn a_keyed_item_without_its_key_is_refused_and_changes_nothing() {
    let object = json!({ "status": { "conditions": [{ "type": "Ready" }] } });
    let mut changed = object.clone();
    let patch = json!({ "status": { "conditions": [{ "status": "True" }] } });
    assert!(strategic::apply("Pod", &mut changed, &patch).is_err());
    assert_eq!(changed, object);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z~/]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z~/]{1,3}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn a_change_leads_from_old_to_new_and_no_further(old in prop::option::of(any_json()), new in prop::option::of(any_json()), key in "[a-z~/]{1,4}") {
        let document = |value: &Option<Value>| match value {
            Some(value) => json!({ "spec": { key.as_str(): value } }),
            None => json!({ "spec": {} }),
        };
        let mut patch = JsonPatch::new();
        patch.change(&["spec", &key], old.clone().unwrap_or(Value::Null), new.clone().unwrap_or(Value::Null));
        let mut object = document(&old);
        match patch.build() {
            None => prop_assert_eq!(&old, &new),
            Some(patch) => {
                apply(&mut object, &patch).unwrap();
                prop_assert_eq!(&object, &document(&new));
                prop_assert!(apply(&mut object, &patch).is_err(), "a guarded change applies once");
            }
        }
    }
}

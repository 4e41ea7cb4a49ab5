//! How a machine names its instance type and its preference.

use serde_json::{Value, json};

use super::{causes_of, create, update};
use crate::vm;

/// Both matchers have the same rules.
const MATCHERS: [&str; 2] = ["instancetype", "preference"];

#[test]
fn a_matcher_names_an_object_or_a_volume() {
    // The matcher, and what is said about it: the cause, and the field below the matcher.
    let cases = [
        (json!({}), vec![("FieldValueNotFound", "")]),
        (json!({ "kind": "VirtualMachineInstancetype" }), vec![("FieldValueNotFound", "")]),
        (json!({ "name": "a", "inferFromVolume": "root" }), vec![("FieldValueNotSupported", ".name")]),
        (json!({ "kind": "k", "inferFromVolume": "root" }), vec![("FieldValueNotSupported", ".kind")]),
        (
            json!({ "name": "a", "kind": "k", "inferFromVolume": "root" }),
            vec![("FieldValueNotSupported", ".name"), ("FieldValueNotSupported", ".kind")],
        ),
        (
            json!({ "name": "a", "inferFromVolumeFailurePolicy": "Shrug" }),
            vec![("FieldValueInvalid", ".inferFromVolumeFailurePolicy")],
        ),
        (
            json!({ "inferFromVolumeFailurePolicy": "Shrug" }),
            vec![("FieldValueNotFound", ""), ("FieldValueInvalid", ".inferFromVolumeFailurePolicy")],
        ),
        (json!({ "name": "a" }), vec![]),
        (json!({ "name": "a", "kind": "no such kind" }), vec![]),
        (json!({ "name": "a", "revisionName": "r" }), vec![]),
        (json!({ "name": "a", "inferFromVolumeFailurePolicy": "Reject" }), vec![]),
        (json!({ "name": "a", "inferFromVolumeFailurePolicy": "Ignore" }), vec![]),
    ];
    for field in MATCHERS {
        for (matcher, expected) in &cases {
            let object = vm(json!({ "spec": { field: matcher } }));
            let expected: Vec<String> =
                expected.iter().map(|(cause, below)| format!("{cause} spec.{field}{below}")).collect();
            assert_eq!(causes_of(create(&object, [])), expected, "{field}: {matcher}");
        }
    }
}

#[test]
fn the_instance_type_is_looked_at_first() {
    let object = vm(json!({ "spec": { "instancetype": {}, "preference": {} } }));
    assert_eq!(causes_of(create(&object, [])), ["FieldValueNotFound spec.instancetype"]);
}

#[test]
fn a_revision_is_cleared_together_with_the_name() {
    let refused = |field: &str| vec![format!("FieldValueInvalid spec.{field}.revisionName")];
    for field in MATCHERS {
        let matched = |matcher: Value| vm(json!({ "spec": { field: matcher } }));
        let pinned = |name: &str, revision: &str| matched(json!({ "name": name, "revisionName": revision }));
        let change = |old: Value, new: Value| causes_of(update(&old, &new, []));
        let passes = Vec::<String>::new();
        assert_eq!(change(pinned("a", "r"), pinned("b", "r")), refused(field), "{field}");
        assert_eq!(change(pinned("a", "r"), pinned("b", "s")), passes, "{field}");
        assert_eq!(change(pinned("a", "r"), matched(json!({ "name": "b" }))), passes, "{field}");
        assert_eq!(change(matched(json!({ "name": "a" })), matched(json!({ "name": "b" }))), passes, "{field}");
        assert_eq!(change(pinned("a", "r"), pinned("a", "r")), passes, "{field}");
        assert_eq!(change(vm(json!({})), pinned("b", "r")), passes, "{field}");
        assert_eq!(change(pinned("a", "r"), vm(json!({}))), passes, "{field}");
    }
}

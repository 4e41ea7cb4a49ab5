//! Answers, causes, watch events and metadata in the shapes clients match on.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{FieldError, FieldPath, Path};
use machinery::meta;
use machinery::status::{self, About};
use machinery::watch::{EventType, WatchEvent};
use serde_json::{Value, json};

fn pods(name: &str) -> About<'_> {
    About::new("", "pods", name)
}

fn vms(name: &str) -> About<'_> {
    About::new("kubevirt.io", "virtualmachines", name)
}

#[test]
fn answers_have_the_code_reason_and_sentence_of_kubernetes() {
    let cases = [
        (status::not_found(pods("a")), 404, "NotFound", "pods \"a\" not found"),
        (status::not_found(vms("a")), 404, "NotFound", "virtualmachines.kubevirt.io \"a\" not found"),
        (status::already_exists(vms("a")), 409, "AlreadyExists", "virtualmachines.kubevirt.io \"a\" already exists"),
        (
            status::stale(pods("a")),
            409,
            "Conflict",
            "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (status::forbidden(pods("a"), "no"), 403, "Forbidden", "pods \"a\" is forbidden: no"),
        (status::forbidden(pods(""), "no"), 403, "Forbidden", "pods is forbidden: no"),
        (status::forbidden(About::default(), "no"), 403, "Forbidden", "forbidden: no"),
        (status::unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (status::bad_request("why"), 400, "BadRequest", "why"),
        (status::expired("too old"), 410, "Expired", "too old"),
        (
            status::method_not_allowed(pods("a"), "patch"),
            405,
            "MethodNotAllowed",
            "patch is not supported on resources of kind \"pods\"",
        ),
        (status::internal("disk"), 500, "InternalError", "Internal error occurred: disk"),
        (status::too_many_requests("slow down", 3), 429, "TooManyRequests", "slow down"),
    ];
    for (status, code, reason, message) in cases {
        assert_eq!(status::code(&status), code, "{message}");
        assert_eq!(status.reason.as_deref(), Some(reason));
        assert_eq!(status.message.as_deref(), Some(message));
        assert_eq!(status.status.as_deref(), Some("Failure"));
    }
}

#[test]
fn an_invalid_object_lists_its_causes() {
    let disks = FieldPath::new("spec").child("domain").child("devices").child("disks");
    let status = status::invalid(
        About::new("kubevirt.io", "VirtualMachineInstance", "vm"),
        vec![
            FieldError::required(disks.index(0).child("name"), ""),
            FieldError::not_supported(disks.index(1).child("cache"), "fast", &["none", "writeback"]),
            FieldError::unsupported(disks.index(2).child("lun"), "a LUN"),
        ],
    );
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": "VirtualMachineInstance.kubevirt.io \"vm\" is invalid: [spec.domain.devices.disks[0].name: Required value, spec.domain.devices.disks[1].cache: Unsupported value: \"fast\": supported values: \"none\", \"writeback\", spec.domain.devices.disks[2].lun: a LUN is not supported by this build]",
            "details": {
                "group": "kubevirt.io",
                "kind": "VirtualMachineInstance",
                "name": "vm",
                "causes": [
                    { "field": "spec.domain.devices.disks[0].name", "message": "Required value", "reason": "FieldValueRequired" },
                    { "field": "spec.domain.devices.disks[1].cache", "message": "Unsupported value: \"fast\": supported values: \"none\", \"writeback\"", "reason": "FieldValueNotSupported" },
                    { "field": "spec.domain.devices.disks[2].lun", "message": "a LUN is not supported by this build", "reason": "FieldNotSupportedByThisBuild" },
                ],
            },
        })
    );
}

#[test]
fn paths_and_field_errors_are_spelled_as_in_kubernetes() {
    let path = FieldPath::root().child("spec").child("nodeSelector").key("a/b");
    assert_eq!(path.as_str(), "spec.nodeSelector[a/b]");
    let cases = [
        (
            FieldError::invalid(path.clone(), 5, "must be even"),
            "spec.nodeSelector[a/b]: Invalid value: 5: must be even",
        ),
        (FieldError::invalid(path.clone(), "x", "no"), "spec.nodeSelector[a/b]: Invalid value: \"x\": no"),
        (FieldError::duplicate(path.clone(), "x"), "spec.nodeSelector[a/b]: Duplicate value: \"x\""),
        (FieldError::forbidden(path.clone(), "not here"), "spec.nodeSelector[a/b]: Forbidden: not here"),
        (
            FieldError::type_invalid("spec.cores".into(), "string", "must be an integer"),
            "spec.cores: Invalid value: \"string\": must be an integer",
        ),
        (FieldError::too_many("spec.list".into(), 3, 1), "spec.list: Too many: 3: must have at most 1 item"),
        (FieldError::too_many("spec.list".into(), 3, 2), "spec.list: Too many: 3: must have at most 2 items"),
        (FieldError::too_long("spec.text".into(), 9), "spec.text: Too long: may not be more than 9 bytes"),
        (FieldError::invalid("a".into(), 1.5, "no"), "a: Invalid value: 1.5: no"),
        (FieldError::invalid("a".into(), 123_456.0, "no"), "a: Invalid value: 123456: no"),
        (FieldError::invalid("a".into(), 2_000_000.5, "no"), "a: Invalid value: 2.0000005e+06: no"),
        (FieldError::invalid("a".into(), u64::MAX, "no"), "a: Invalid value: 1.8446744073709552e+19: no"),
        (FieldError::invalid("a".into(), 0.00001, "no"), "a: Invalid value: 1e-05: no"),
        (FieldError::invalid("a".into(), 100.0, "no"), "a: Invalid value: 100: no"),
        (
            FieldError::invalid("a".into(), json!({ "b": "<&>" }), "no"),
            r#"a: Invalid value: {"b":"\u003c\u0026\u003e"}: no"#,
        ),
        (
            FieldError::invalid("a".into(), "<\u{1}\u{7f}\u{200b}\"é\n'>", "no"),
            r#"a: Invalid value: "<\x01\x7f\u200b\"é\n'>": no"#,
        ),
    ];
    for (error, want) in cases {
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn watch_events_are_one_line_each() {
    let event = WatchEvent::new(EventType::Modified, json!({ "kind": "Pod" }));
    assert_eq!(event.to_line(), b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Pod\"}}\n");
    let bookmark = WatchEvent::bookmark("v1", "Pod", "42", true);
    assert_eq!(
        serde_json::to_value(&bookmark).unwrap(),
        json!({ "type": "BOOKMARK", "object": { "apiVersion": "v1", "kind": "Pod", "metadata": {
            "resourceVersion": "42", "annotations": { "k8s.io/initial-events-end": "true" },
        } } })
    );
    let error: Value = serde_json::from_slice(&WatchEvent::error(&status::expired("old")).to_line()).unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(error["object"]["code"], 410);
}

#[test]
fn owners_are_told_by_uid() {
    let pod = Pod {
        metadata: ObjectMeta { name: Some("a".into()), uid: Some("u1".into()), ..ObjectMeta::default() },
        ..Pod::default()
    };
    let reference = meta::controller_ref(&pod).unwrap();
    assert_eq!((reference.kind.as_str(), reference.block_owner_deletion), ("Pod", Some(true)));
    let owned = ObjectMeta { owner_references: Some(vec![reference]), ..ObjectMeta::default() };
    assert!(meta::is_controlled_by(&owned, "u1") && meta::owned_by(&owned, "u1"));
    assert!(!meta::is_controlled_by(&owned, "u2") && !meta::owned_by(&owned, "u2"));
    assert!(meta::controller_ref(&Pod::default()).is_none());
}

#[test]
fn finalizers_are_added_once_and_an_emptied_list_is_unset() {
    let mut held = ObjectMeta::default();
    assert!(meta::add_finalizer(&mut held, "f"));
    assert!(!meta::add_finalizer(&mut held, "f"));
    assert!(meta::has_finalizer(&held, "f"));
    assert!(meta::remove_finalizer(&mut held, "f"));
    assert!(!meta::remove_finalizer(&mut held, "f"));
    assert_eq!(held.finalizers, None);
}

#[test]
fn a_path_on_the_stack_is_spelled_as_one_on_the_heap() {
    let spec = Path::new("spec");
    let disks = spec.child("domain.devices.disks");
    let disk = disks.index(3);
    assert_eq!(FieldPath::from(&disk.child("name")).as_str(), "spec.domain.devices.disks[3].name");
    assert_eq!(FieldPath::from(&spec.child("nodeSelector").key("a/b")).as_str(), "spec.nodeSelector[a/b]");
    assert_eq!(FieldPath::from(&Path::new("").child("kind")).as_str(), "kind");
}

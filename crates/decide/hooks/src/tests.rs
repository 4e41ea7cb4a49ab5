//! Reviews in, verdicts out.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldPath};
use review::{Operation, User};
use serde_json::{Value, json};

use super::*;

const VM: (&str, &str) = ("kubevirt.io", "virtualmachines");

/// The answer to a write of `ada` in a cluster that has just these objects.
fn ask((group, resource): (&str, &str), subresource: &str, object: &Value, objects: Vec<Value>) -> Verdict {
    let user = User { name: "ada".to_owned(), ..User::default() };
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let write = Review {
        operation: Operation::Create,
        group,
        version: "v1",
        resource,
        subresource,
        namespace: "ns",
        name: text("/metadata/name"),
        user: &user,
        old: None,
        object,
        dry_run: false,
        now: Time(Timestamp::UNIX_EPOCH),
    };
    let config = ClusterConfig::default();
    review(&write, Settings { config: &config, pass_unsupported: false, shape: Shape::Kubernetes }, &World::of(objects))
}

fn refusal(verdict: Verdict) -> (&'static str, i32, String) {
    let Refusal { by, status } = verdict.refusal.expect("it is refused");
    (by, status.code.unwrap_or_default(), status.message.unwrap_or_default())
}

fn vm(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "v", "namespace": "ns"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "a", "disk": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        }}},
    });
    object["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
        json!([{"name": "default", "masquerade": {}}]);
    object["spec"]["template"]["spec"]["volumes"] = json!([{"name": "a", "emptyDisk": {"capacity": "1Gi"}}]);
    if let (Some(into), Some(from)) = (object["spec"].as_object_mut(), spec.as_object()) {
        into.extend(from.clone());
    }
    object
}

#[test]
fn a_machine_gets_its_defaults_and_passes() {
    let verdict = ask(VM, "", &vm(json!({})), Vec::new());
    assert_eq!(verdict.refusal, None);
    assert_eq!(verdict.object.expect("it changes")["spec"]["template"]["spec"]["architecture"], "amd64");
}

#[test]
fn a_broken_rule_is_the_validators_and_a_missing_reference_the_mutators() {
    let mut broken = vm(json!({}));
    broken["spec"]["template"]["spec"]["volumes"] = json!([]);
    let (by, code, message) = refusal(ask(VM, "", &broken, Vec::new()));
    assert_eq!((by, code), ("virtualmachine-validator.kubevirt.io", 422));
    assert!(message.starts_with("spec.template.spec.domain.devices.disks[0].name: "), "{message}");
    let unmatched = vm(json!({"instancetype": {"kind": "VirtualMachineInstancetype"}}));
    let (by, ..) = refusal(ask(VM, "", &unmatched, Vec::new()));
    assert_eq!(by, "virtualmachines-mutator.kubevirt.io");
}

#[test]
fn a_request_that_makes_no_sense_is_refused_as_a_whole() {
    let kind = ("kubevirt.io", "virtualmachineinstancemigrations");
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "namespace": "ns"}, "spec": {"vmiName": "nobody"},
    });
    let verdict = ask(kind, "", &migration, Vec::new());
    let status = verdict.refusal.as_ref().map(|refusal| refusal.status.clone()).unwrap_or_default();
    assert_eq!((status.code, status.reason.as_deref(), status.details), (Some(400), Some("BadRequest"), None));
    assert_eq!(refusal(verdict).0, "migration-create-validator.kubevirt.io");
}

#[test]
fn ten_causes_are_told_and_the_rest_is_counted() {
    let status = |count: usize| {
        let field = |index| FieldPath::new(format!("spec.f{index}"));
        invalid((0..count).map(|index| FieldError::new(Cause::Invalid, field(index), "is odd")).collect())
    };
    let causes = |status: &Status| status.details.as_ref().and_then(|details| details.causes.as_ref()).map(Vec::len);
    let ten = status(10);
    assert_eq!((ten.code, causes(&ten)), (Some(422), Some(10)));
    assert!(ten.message.is_some_and(|message| message.ends_with(", spec.f9: is odd")));
    let many = status(13);
    assert_eq!(causes(&many), Some(10));
    assert!(many.message.is_some_and(|message| message.ends_with(" and 3 more validation errors")));
    let whole = FieldError::new(Cause::Invalid, FieldPath::root(), "all of it");
    assert_eq!(invalid(vec![whole]).message.as_deref(), Some("all of it"));
}

/// A launcher Pod with a guest that can be moved.
fn guest() -> Vec<Value> {
    let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u",
        "controller": true});
    let pod = json!({"kind": "Pod", "metadata": {"name": "l", "namespace": "ns", "uid": "p",
        "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": "v"},
        "ownerReferences": [owner]}, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    let vmi = json!({"kind": "VirtualMachineInstance", "metadata": {"name": "v", "namespace": "ns", "uid": "u"},
        "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1", "conditions": [{"type": "LiveMigratable", "status": "True"}]}});
    vec![pod, vmi]
}

#[test]
fn an_eviction_marks_the_guest_and_is_refused_until_it_has_left() {
    let eviction = json!({"metadata": {"name": "l"}});
    let mut verdict = ask(("", "pods"), "eviction", &eviction, guest());
    let mark = verdict.side_effect.take().expect("the instance is marked");
    assert_eq!((mark.resource, mark.namespace.as_str(), mark.name.as_str()), ("virtualmachineinstances", "ns", "v"));
    assert_eq!(mark.user.name, "system:serviceaccount:kubevirt:kubevirt-apiserver");
    assert_eq!(
        refusal(verdict),
        (
            "virt-launcher-eviction-interceptor.kubevirt.io",
            429,
            r#"Eviction triggered evacuation of VMI "ns/v""#.to_owned()
        )
    );
    let free = ask(("", "pods"), "eviction", &json!({"metadata": {"name": "other"}}), guest());
    assert!(free.refusal.is_none() && free.side_effect.is_none());
}

#[test]
fn an_eviction_that_the_api_server_will_refuse_marks_nothing() {
    let with = |metadata: Value, preconditions: Value| json!({"metadata": metadata, "deleteOptions": {"preconditions": preconditions}});
    for (eviction, is_marked) in [
        (with(json!({"name": "l", "namespace": "ns"}), json!({"uid": "p"})), true),
        (with(json!({"name": "l"}), json!(null)), true),
        (with(json!({"name": "l"}), json!({"uid": "of the Pod before"})), false),
        (with(json!({"name": "l"}), json!({"uid": "p", "resourceVersion": "1"})), false),
        (with(json!({"name": "l", "namespace": "other"}), json!(null)), false),
    ] {
        let verdict = ask(("", "pods"), "eviction", &eviction, guest());
        assert_eq!(verdict.side_effect.is_some(), is_marked, "{eviction}");
    }
}

#[test]
fn an_eviction_wants_the_pod_and_then_its_instance() {
    let (user, object) = (User::default(), json!({"metadata": {"name": "l"}}));
    let write = Review {
        operation: Operation::Create,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "eviction",
        namespace: "ns",
        name: "l",
        user: &user,
        old: None,
        object: &object,
        dry_run: true,
        now: Time(Timestamp::UNIX_EPOCH),
    };
    let mut world = World::default();
    let mut asked = Vec::new();
    while let Some(next) = wanted(&write, &world).into_iter().next() {
        let found = guest().into_iter().filter(|object| object["kind"] == next.kind);
        let found: Vec<Value> = found.collect();
        asked.push(next.kind);
        world.learn(next, found);
    }
    assert_eq!(asked, ["Pod", "VirtualMachineInstance"]);
    let config = ClusterConfig::default();
    let verdict =
        review(&write, Settings { config: &config, pass_unsupported: false, shape: Shape::Kubernetes }, &world);
    assert!(verdict.refusal.is_some() && verdict.side_effect.is_none(), "a dry run marks nothing");
}

//! Machines judged as what their instance type and their preference make of them.

use serde_json::{Value, json};

use super::{causes_of, cluster_instancetype, cluster_preference, create};
use crate::vm;

/// A machine without a size of its own.
fn sized(over: Value) -> Value {
    let mut object = vm(json!({
        "spec": {
            "instancetype": { "name": "small" }, "preference": { "name": "linux" },
            "template": { "spec": { "domain": { "memory": null } } },
        },
    }));
    machinery::patch::merge(&mut object, &over);
    object
}

fn domain(domain: Value) -> Value {
    json!({ "spec": { "template": { "spec": { "domain": domain } } } })
}

fn told(object: &Value, instancetype: Value, preference: Value) -> Vec<String> {
    let world = [cluster_instancetype("small", instancetype), cluster_preference("linux", preference)];
    causes_of(create(object, world))
}

#[test]
fn a_machine_is_stored_as_it_was_written() {
    let world = [cluster_instancetype("small", json!({})), cluster_preference("linux", json!({}))];
    let judged = create(&sized(json!({})), world).expect("it passes");
    assert_eq!(judged.causes, []);
    let spec = &judged.object["spec"];
    assert_eq!(spec["instancetype"], json!({ "name": "small" }));
    assert_eq!(spec["template"]["spec"]["domain"]["memory"], Value::Null);
    assert_eq!(spec["template"]["spec"]["domain"]["cpu"], Value::Null);
}

#[test]
fn conflicts_are_told_by_field() {
    let object = sized(domain(json!({ "cpu": { "sockets": 2 }, "memory": { "guest": "1Gi" } })));
    let expected = [
        "FieldValueInvalid spec.template.spec.domain.cpu.sockets",
        "FieldValueInvalid spec.template.spec.domain.memory.guest",
    ];
    assert_eq!(told(&object, json!({}), json!({})), expected);
    // Whatever else is wrong waits until it is clear which machine is meant.
    let mut worse = object;
    worse["spec"]["template"]["spec"]["hostname"] = json!("a.b");
    assert_eq!(told(&worse, json!({}), json!({})), expected);
}

#[test]
fn annotations_of_template_and_instance_type_may_not_differ() {
    let object = sized(json!({ "spec": { "template": { "metadata": { "annotations": { "a": "1" } } } } }));
    let annotated = |value: &str| json!({ "annotations": { "a": value } });
    assert_eq!(told(&object, annotated("1"), json!({})), Vec::<String>::new());
    assert_eq!(told(&object, annotated("2"), json!({})), ["FieldValueInvalid annotations.a"]);
}

#[test]
fn cpus_must_be_spread_evenly() {
    let spread = json!({ "cpu": { "preferredCPUTopology": "spread" } });
    let told = |guest: u32| told(&sized(json!({})), json!({ "cpu": { "guest": guest } }), spread.clone());
    assert_eq!(told(4), Vec::<String>::new());
    assert_eq!(told(3), ["FieldValueInvalid instancetype.spec.cpu.guest"]);
}

#[test]
fn what_comes_out_is_judged_like_any_template() {
    let policy = |policy: &str| told(&sized(json!({})), json!({ "ioThreadsPolicy": policy }), json!({}));
    assert_eq!(policy("auto"), Vec::<String>::new());
    assert_eq!(policy("many"), ["FieldValueInvalid spec.template.spec.domain.ioThreadsPolicy"]);
    let machine =
        |type_: &str| told(&sized(json!({})), json!({}), json!({ "machine": { "preferredMachineType": type_ } }));
    assert_eq!(machine("q35"), Vec::<String>::new());
    assert_eq!(machine("vax"), ["FieldValueInvalid spec.template.spec.domain.machine.type"]);
}

#[test]
fn requirements_must_be_met() {
    let required = |requirements: Value| {
        let preference = json!({ "requirements": requirements });
        let mut alone = vm(json!({ "spec": { "preference": { "name": "linux" } } }));
        machinery::patch::merge(&mut alone, &domain(json!({ "cpu": { "sockets": 4 }, "memory": { "guest": "2Gi" } })));
        (told(&sized(json!({})), json!({}), preference.clone()), told(&alone, json!({}), preference))
    };
    let passes = || (vec![], vec![]);
    let refused = |sized: &str, alone: &str| {
        (vec![format!("FieldValueNotFound {sized}")], vec![format!("FieldValueNotFound {alone}")])
    };
    assert_eq!(required(json!({ "cpu": { "guest": 1 } })), passes());
    let sockets = refused("spec.instancetype", "spec.template.spec.domain.cpu.sockets");
    assert_eq!(required(json!({ "cpu": { "guest": 5 } })), sockets);
    assert_eq!(required(json!({ "memory": { "guest": "1Gi" } })), passes());
    let memory = refused("spec.instancetype", "spec.template.spec.domain.memory");
    assert_eq!(required(json!({ "memory": { "guest": "3Gi" } })), memory);
    assert_eq!(required(json!({ "architecture": "amd64" })), passes());
    let architecture = refused("spec.template.spec.architecture", "spec.template.spec.architecture");
    assert_eq!(required(json!({ "architecture": "arm64" })), architecture);
}

#[test]
fn requirements_see_the_defaults() {
    // Two sockets, from the CPUs asked for.
    let object = vm(json!({
        "spec": {
            "preference": { "name": "linux" },
            "template": { "spec": { "domain": { "resources": { "requests": { "cpu": "2" } } } } },
        },
    }));
    let told = |guest: u32| told(&object, json!({}), json!({ "requirements": { "cpu": { "guest": guest } } }));
    assert_eq!(told(2), Vec::<String>::new());
    assert_eq!(told(3), ["FieldValueNotFound spec.template.spec.domain.cpu.sockets"]);
}

#[test]
fn a_revision_counts_instead_of_the_live_object() {
    let held = cluster_instancetype("small", json!({ "cpu": { "guest": 4 } }));
    let revision = json!({
        "kind": "ControllerRevision", "revision": 0, "data": held,
        "metadata": { "namespace": "ns", "name": "r", "labels": { "instancetype.kubevirt.io/object-name": "small" } },
    });
    let world = || {
        let required = json!({ "requirements": { "cpu": { "guest": 4 } } });
        [cluster_instancetype("small", json!({})), cluster_preference("linux", required), revision.clone()]
    };
    let told = |over: Value| causes_of(create(&sized(over), world()));
    assert_eq!(told(json!({})), ["FieldValueNotFound spec.instancetype"]);
    assert_eq!(told(json!({ "spec": { "instancetype": { "revisionName": "r" } } })), Vec::<String>::new());
    let recorded = json!({ "status": { "instancetypeRef": { "controllerRevisionRef": { "name": "r" } } } });
    assert_eq!(told(recorded), Vec::<String>::new());
}

#[test]
fn a_machine_may_name_what_is_not_there_yet() {
    let object = sized(domain(json!({ "memory": { "guest": "1Gi" } })));
    assert_eq!(causes_of(create(&object, [])), Vec::<String>::new());
}

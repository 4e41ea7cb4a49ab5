//! Virtual machines.

mod defaults;
mod generated;
mod inference;
mod instancetypes;
mod matchers;
mod rules;
mod storage;
mod volume_requests;

use admission::{Judged, Operation, Refusal, Review, Shape, World, admit};
use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{causes, component, config, create_vm, judge, now, someone, told, vm};

/// Judges a write among other objects.
fn judged(
    subresource: &str,
    old: Option<&Value>,
    object: &Value,
    config: &ClusterConfig,
    world: impl IntoIterator<Item = Value>,
) -> Result<Judged, Refusal> {
    let operation = if old.is_some() || !subresource.is_empty() { Operation::Update } else { Operation::Create };
    let user = someone();
    let resource = "virtualmachines";
    let request = Review { subresource, old, ..Review::of(operation, "v1", resource, &user, object, now()) };
    admission::judge(&request, Shape::Kubernetes, config, &World::of(world))
}

fn create_in(
    object: &Value,
    config: &ClusterConfig,
    world: impl IntoIterator<Item = Value>,
) -> Result<Judged, Refusal> {
    judged("", None, object, config, world)
}

fn create(object: &Value, world: impl IntoIterator<Item = Value>) -> Result<Judged, Refusal> {
    create_in(object, &config(), world)
}

fn update(old: &Value, new: &Value, world: impl IntoIterator<Item = Value>) -> Result<Judged, Refusal> {
    judged("", Some(old), new, &config(), world)
}

fn status(old: Option<&Value>, new: &Value, world: impl IntoIterator<Item = Value>) -> Result<Judged, Refusal> {
    judged("status", old, new, &config(), world)
}

/// Whether an object is valid, as types of causes and fields.
fn causes_of(result: Result<Judged, Refusal>) -> Vec<String> {
    let errors = match result {
        Ok(judged) => judged.causes,
        Err(Refusal::Invalid(errors)) => errors,
        Err(Refusal::BadRequest(message)) => panic!("refused without a field: {message}"),
    };
    errors.iter().map(|error| format!("{} {}", error.cause.as_str(), error.field)).collect()
}

/// An instance type of the cluster with two CPUs and 2Gi; `over` is merged over its spec.
fn cluster_instancetype(name: &str, over: Value) -> Value {
    let mut spec = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "2Gi" } });
    machinery::patch::merge(&mut spec, &over);
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype",
        "metadata": { "name": name }, "spec": spec,
    })
}

fn cluster_preference(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterPreference",
        "metadata": { "name": name }, "spec": spec,
    })
}

#[test]
fn a_machine_is_stored_as_its_owner_wrote_it_plus_identity_and_platform() {
    let stored = create_vm(&vm(json!({}))).expect("it passes").object;
    let template = &stored["spec"]["template"];
    assert_eq!(template["spec"]["architecture"], "amd64");
    assert_eq!(template["spec"]["domain"]["machine"]["type"], "q35");
    // The UUID has been the same for this name in every version of KubeVirt.
    assert_eq!(template["spec"]["domain"]["firmware"]["uuid"], admission::firmware_uuid("testvm"));
    assert_ne!(template["spec"]["domain"]["firmware"]["serial"], Value::Null);
    assert_eq!(template["metadata"]["annotations"]["kubevirt.io/pci-topology-version"], "v3");
    // An instance's defaults are not the machine's.
    assert_eq!(template["spec"]["domain"]["cpu"], Value::Null);
    assert_eq!(template["spec"]["evictionStrategy"], Value::Null);
}

#[test]
fn two_machines_of_one_name_differ_by_their_serial_number() {
    let serial = |namespace: &str| {
        let object = vm(json!({ "metadata": { "namespace": namespace } }));
        let stored = create_vm(&object).expect("it passes").object;
        stored["spec"]["template"]["spec"]["domain"]["firmware"]["serial"].clone()
    };
    assert_ne!(serial("a"), serial("b"));
    assert_eq!(serial("a"), serial("a"));
}

#[test]
fn an_update_adds_no_identity() {
    let object = vm(json!({ "metadata": { "uid": "u" } }));
    let stored = judge("virtualmachines", &someone(), Some(&object), &object, &config()).expect("it passes").object;
    assert_eq!(stored["spec"]["template"]["spec"]["domain"]["firmware"], Value::Null);
    assert_eq!(stored["spec"]["template"]["metadata"], Value::Null);
}

#[test]
fn a_machine_needs_a_template() {
    for template in [json!({}), json!({ "template": null })] {
        let mut bare = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "testvm" },
            "spec": { "runStrategy": "Halted" },
        });
        bare["spec"].as_object_mut().expect("an object").extend(template.as_object().cloned().expect("an object"));
        let told = told(create_vm(&bare));
        assert!(told.contains(&"FieldValueRequired spec.template".to_owned()), "{template}: {told:?}");
    }
}

#[test]
fn the_template_is_judged_as_the_instance_it_will_be() {
    let template = |spec: Value| told(create_vm(&vm(json!({ "spec": { "template": { "spec": spec } } }))));
    assert_eq!(template(json!({ "hostname": "a.b" })), ["FieldValueInvalid spec.template.spec.hostname"]);
    assert_eq!(
        template(json!({ "domain": { "devices": { "gpus": [{ "name": "g", "deviceName": "d" }] } } })),
        ["FieldNotSupportedByThisBuild spec.template.spec.domain.devices.gpus"]
    );
    // A volume without a disk is given one.
    assert_eq!(template(json!({ "domain": { "devices": { "disks": null } } })), Vec::<String>::new());
}

#[test]
fn labels_of_the_system_are_not_for_templates() {
    let labelled = |key: &str| {
        let object = vm(json!({ "spec": { "template": { "metadata": { "labels": { key: "x" } } } } }));
        told(create_vm(&object))
    };
    assert_eq!(labelled("app"), Vec::<String>::new());
    for key in ["kubevirt.io/created-by", "kubevirt.io/nodeName", "kubevirt.io/schedulable"] {
        assert_eq!(labelled(key), ["FieldValueNotSupported spec.template.metadata.labels"], "{key}");
    }
}

#[test]
fn what_this_build_cannot_do_with_machines_is_refused() {
    let spec = |over: Value| told(create_vm(&vm(json!({ "spec": over }))));
    let probe = json!({ "tcpSocket": { "port": 80 } });
    assert_eq!(
        spec(json!({ "template": { "spec": { "livenessProbe": probe } } })),
        ["FieldNotSupportedByThisBuild spec.template.spec.livenessProbe"]
    );
    let data_volume = json!({ "metadata": { "name": "d" }, "spec": { "storage": {}, "source": { "blank": {} } } });
    let volume = json!({ "name": "root", "dataVolume": { "name": "d" } });
    let machine = json!({ "dataVolumeTemplates": [data_volume], "template": { "spec": { "volumes": [volume] } } });
    assert_eq!(spec(machine), Vec::<String>::new());
}

#[test]
fn a_machine_on_its_way_out_is_judged_no_more() {
    let going = vm(json!({
        "metadata": { "deletionTimestamp": "2023-11-14T22:13:20Z" },
        "spec": { "template": { "spec": { "hostname": "a.b" } } },
    }));
    let result = judge("virtualmachines", &someone(), Some(&going), &going, &config());
    assert_eq!(told(result), Vec::<String>::new());
}

#[test]
fn a_spec_that_is_stored_is_not_judged_again() {
    let mut old = vm(json!({ "spec": { "template": { "spec": { "hostname": "a.b" } } } }));
    // As an update would leave it.
    old["spec"]["template"]["spec"]["architecture"] = "amd64".into();
    old["spec"]["template"]["spec"]["domain"]["machine"] = json!({ "type": "q35" });
    let update = |over: Value| {
        let mut new = old.clone();
        machinery::patch::merge(&mut new, &over);
        told(judge("virtualmachines", &someone(), Some(&old), &new, &config()))
    };
    assert_eq!(update(json!({ "metadata": { "labels": { "app": "web" } } })), Vec::<String>::new());
    assert_eq!(
        update(json!({ "spec": { "runStrategy": "Always" } })),
        ["FieldValueInvalid spec.template.spec.hostname"]
    );
}

#[test]
fn the_status_is_only_held_against_the_schema() {
    let controller = component("kubevirt-controller");
    let admit_status = |status: Value| {
        let object = vm(json!({ "spec": { "runStrategy": null }, "status": status }));
        let update = Review::of(Operation::Update, "v1", "virtualmachines", &controller, &object, now());
        let request = Review { subresource: "status", old: Some(&object), ..update };
        told(causes(admit(&request, Shape::Kubernetes, &config(), &World::default())))
    };
    assert_eq!(admit_status(json!({ "created": true })), Vec::<String>::new());
    assert_eq!(admit_status(json!({ "created": "yes" })), ["FieldValueTypeInvalid status.created"]);
    let plug = json!({ "volumeRequests": [{ "removeVolumeOptions": { "name": "v" } }] });
    assert_eq!(admit_status(plug), Vec::<String>::new(), "what does not run yet is judged when it does");
}

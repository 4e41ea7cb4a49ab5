//! Virtual machines, and the kinds that have few rules.

use admission::{Operation, Request, World, admit};
use serde_json::{Value, json};

use crate::{causes, component, config, create_vm, judge, now, someone, told, vm};

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
fn a_machine_has_one_run_strategy() {
    let strategy = |over: Value| told(create_vm(&vm(json!({ "spec": over }))));
    assert_eq!(strategy(json!({ "running": true })), ["FieldValueInvalid spec.running"]);
    assert_eq!(strategy(json!({ "runStrategy": null })), ["FieldValueInvalid spec.runStrategy"]);
    assert_eq!(strategy(json!({ "runStrategy": "Sometimes" })), ["FieldValueInvalid spec.runStrategy"]);
    assert_eq!(strategy(json!({ "runStrategy": "WaitAsReceiver" })), ["FieldNotSupportedByThisBuild spec.runStrategy"]);
    for known in ["Always", "Halted", "Manual", "RerunOnFailure", "Once"] {
        assert_eq!(strategy(json!({ "runStrategy": known })), Vec::<String>::new(), "{known}");
    }
}

#[test]
fn the_old_form_of_the_run_strategy_is_warned_about() {
    let old = vm(json!({ "spec": { "runStrategy": null, "running": false } }));
    let warnings = create_vm(&old).expect("it passes").warnings;
    assert_eq!(warnings, ["spec.running is deprecated, please use spec.runStrategy instead."]);
    assert_eq!(create_vm(&vm(json!({}))).expect("it passes").warnings, Vec::<String>::new());
}

#[test]
fn a_console_log_nobody_writes_is_warned_about() {
    let mut logging = config();
    logging.configuration.virtual_machine_options = None;
    let warned = judge("virtualmachines", &someone(), None, &vm(json!({})), &logging).expect("it passes").warnings;
    assert_eq!(warned.len(), 1, "{warned:?}");
    let devices =
        json!({ "spec": { "template": { "spec": { "domain": { "devices": { "logSerialConsole": false } } } } } });
    let silent = judge("virtualmachines", &someone(), None, &vm(devices), &logging).expect("it passes").warnings;
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn a_machine_needs_a_template() {
    let bare = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "testvm" },
        "spec": { "runStrategy": "Halted" },
    });
    assert_eq!(told(create_vm(&bare)), ["FieldValueRequired spec.template"]);
}

#[test]
fn the_template_is_judged_as_the_instance_it_will_be() {
    let template = |spec: Value| told(create_vm(&vm(json!({ "spec": { "template": { "spec": spec } } }))));
    assert_eq!(template(json!({ "hostname": "a.b" })), ["FieldValueInvalid spec.template.spec.hostname"]);
    assert_eq!(
        template(json!({ "domain": { "devices": { "gpus": [{ "name": "g" }] } } })),
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
        let expected = format!("FieldValueNotSupported spec.template.metadata.labels[{key}]");
        assert_eq!(labelled(key), [expected]);
    }
}

#[test]
fn what_this_build_cannot_do_with_machines_is_refused() {
    let spec = |over: Value| told(create_vm(&vm(json!({ "spec": over }))));
    assert_eq!(
        spec(json!({ "instancetype": { "name": "small" } })),
        ["FieldNotSupportedByThisBuild spec.instancetype"]
    );
    assert_eq!(spec(json!({ "preference": { "name": "linux" } })), ["FieldNotSupportedByThisBuild spec.preference"]);
    let volume = json!({ "metadata": { "name": "d" }, "spec": {} });
    assert_eq!(
        spec(json!({ "dataVolumeTemplates": [volume] })),
        ["FieldNotSupportedByThisBuild spec.dataVolumeTemplates"]
    );
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
        let request = Request {
            operation: Operation::Update,
            version: "v1",
            resource: "virtualmachines",
            subresource: "status",
            user: &controller,
            old: Some(&object),
            object: &object,
            now: now(),
        };
        told(causes(admit(&request, &config(), &World::default())))
    };
    assert_eq!(admit_status(json!({ "created": true })), Vec::<String>::new());
    assert_eq!(admit_status(json!({ "created": "yes" })), ["FieldValueTypeInvalid status.created"]);
    let plug = json!({ "volumeRequests": [{ "removeVolumeOptions": { "name": "v" } }] });
    assert_eq!(admit_status(plug), ["FieldNotSupportedByThisBuild status.volumeRequests"]);
}

#[test]
fn migrations_cannot_be_created_and_do_not_change() {
    let migration = |vmi: &str, label: &str| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": "m", "labels": { "kubevirt.io/vmi-name": label } }, "spec": { "vmiName": vmi },
        })
    };
    let resource = "virtualmachineinstancemigrations";
    let (old, config) = (migration("a", "a"), config());
    let errors = judge(resource, &someone(), None, &old, &config).expect_err("refused");
    assert_eq!(errors[0].to_string(), "kind: moving a running guest to another node is not supported by this build");
    let update = |new: &Value| told(judge(resource, &someone(), Some(&old), new, &config));
    assert_eq!(update(&old), Vec::<String>::new());
    assert_eq!(update(&migration("b", "a")), ["FieldValueNotSupported spec"]);
    assert_eq!(update(&migration("a", "b")), ["FieldValueNotSupported metadata.labels[kubevirt.io/vmi-name]"]);
}

#[test]
fn the_configuration_must_be_usable() {
    let kubevirt = |spec: Value| {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
            "spec": spec,
        });
        told(judge("kubevirts", &someone(), None, &object, &config()))
    };
    let configured = |configuration: Value| kubevirt(json!({ "configuration": configuration }));
    assert_eq!(kubevirt(json!({})), Vec::<String>::new());
    assert_eq!(configured(json!({ "cpuRequest": 1 })), Vec::<String>::new());
    assert_eq!(
        configured(json!({ "network": { "defaultNetworkInterface": "carrier-pigeon" } })),
        ["FieldValueInvalid spec.configuration.network.defaultNetworkInterface"]
    );
    assert_eq!(
        configured(json!({ "developerConfiguration": { "featureGates": ["Root"], "disabledFeatureGates": ["Root"] } })),
        ["FieldValueForbidden spec.configuration.developerConfiguration.featureGates"]
    );
    let profile =
        |profile: Value| configured(json!({ "seccompConfiguration": { "virtualMachineInstanceProfile": profile } }));
    let field = "spec.configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile";
    assert_eq!(profile(json!({})), [format!("FieldValueInvalid {field}")]);
    let both = json!({ "customProfile": { "localhostProfile": "a", "runtimeDefaultProfile": true } });
    assert_eq!(profile(both), [format!("FieldValueInvalid {field}")]);
    assert_eq!(profile(json!({ "customProfile": { "localhostProfile": "a" } })), Vec::<String>::new());
    assert_eq!(kubevirt(json!({ "infra": { "replicas": 0 } })), ["FieldValueInvalid spec.infra.replicas"]);
    assert_eq!(kubevirt(json!({ "infra": { "replicas": 1 } })), Vec::<String>::new());
    let patch = |patch: &str| {
        let patch =
            json!({ "patch": patch, "resourceName": "virt-api", "resourceType": "Deployment", "type": "merge" });
        kubevirt(json!({ "customizeComponents": { "patches": [patch] } }))
    };
    assert_eq!(patch("{"), ["FieldValueNotSupported spec.customizeComponents.patches[0].patch"]);
    assert_eq!(patch("{}"), Vec::<String>::new());
}

#[test]
fn kinds_this_build_does_not_have_are_refused() {
    let result = judge("virtualmachinepools", &someone(), None, &json!({}), &config());
    assert_eq!(
        result.expect_err("refused")[0].to_string(),
        "kind: virtualmachinepools are not supported by this build"
    );
}

//! What an instance gets that its owner did not write.

use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{config, judge, someone, vmi};

fn admitted(object: &Value, config: &ClusterConfig) -> Value {
    judge("virtualmachineinstances", &someone(), None, object, config).expect("the instance passes").object
}

fn created(over: Value) -> Value {
    admitted(&vmi(over), &config())
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    object.pointer(path).unwrap_or(&Value::Null)
}

#[test]
fn the_plainest_instance_becomes_a_complete_one() {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "plain", "namespace": "ns" },
        "spec": {
            "domain": { "devices": {}, "memory": { "guest": "128Mi" } },
            "volumes": [{ "name": "root", "containerDisk": { "image": "registry.example/guest" } }],
        },
    });
    let expected = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "plain", "namespace": "ns",
            "annotations": { "kubevirt.io/pci-topology-version": "v3" },
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
        },
        "spec": {
            "architecture": "amd64",
            "evictionStrategy": "None",
            "domain": {
                "cpu": { "cores": 1, "sockets": 1, "threads": 1, "model": "host-model" },
                "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "sata" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
                "features": {},
                "firmware": { "uuid": admission::firmware_uuid("plain") },
                "machine": { "type": "q35" },
                "memory": { "guest": "128Mi" },
                "resources": {},
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{
                "name": "root",
                "containerDisk": { "image": "registry.example/guest", "imagePullPolicy": "Always" },
            }],
        },
        "status": {
            "currentCPUTopology": { "cores": 1, "sockets": 1, "threads": 1 },
            "memory": { "guestAtBoot": "128Mi", "guestCurrent": "128Mi", "guestRequested": "128Mi" },
            "phase": "Pending",
            "phaseTransitionTimestamps": [
                { "phase": "Pending", "phaseTransitionTimestamp": "2023-11-14T22:13:20Z" },
            ],
            "runtimeUser": 107,
        },
    });
    assert_eq!(admitted(&object, &config()), expected);
}

#[test]
fn the_firmware_uuid_is_the_one_this_name_has_always_had() {
    // UUIDv5 of "testvmi" in the name space KubeVirt uses.
    assert_eq!(admission::firmware_uuid("testvmi"), "f8918e71-270a-598e-a2a4-1afac39e1394");
}

#[test]
fn cpu_requests_follow_limits_or_the_configuration() {
    let request = |config: &ClusterConfig, resources: Value| {
        let object = admitted(&vmi(json!({ "spec": { "domain": { "resources": resources } } })), config);
        at(&object, "/spec/domain/resources/requests/cpu").clone()
    };
    let mut configured = config();
    configured.configuration.cpu_request = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("250m".into()));
    assert_eq!(request(&config(), json!({})), Value::Null);
    assert_eq!(request(&configured, json!({})), "250m");
    assert_eq!(request(&configured, json!({ "limits": { "cpu": "2" } })), "2");
    assert_eq!(request(&configured, json!({ "limits": { "cpu": "2" }, "requests": { "cpu": "1" } })), "1");
}

#[test]
fn bare_numbers_become_quantities() {
    let object = created(json!({ "spec": { "domain": { "resources": { "limits": { "cpu": 2 } } } } }));
    assert_eq!(at(&object, "/spec/domain/resources/limits/cpu"), "2");
    assert_eq!(at(&object, "/spec/domain/cpu/sockets"), 2);
}

#[test]
fn guest_memory_is_what_was_asked_of_the_cluster() {
    let guest = |resources: Value| {
        let domain = json!({ "memory": null, "resources": resources });
        at(&created(json!({ "spec": { "domain": domain } })), "/spec/domain/memory/guest").clone()
    };
    assert_eq!(guest(json!({ "requests": { "memory": "64Mi" }, "limits": { "memory": "128Mi" } })), "64Mi");
    assert_eq!(guest(json!({ "limits": { "memory": "128Mi" } })), "128Mi");
}

#[test]
fn a_topology_is_only_made_up_where_there_is_none() {
    let cpu = |domain: Value| at(&created(json!({ "spec": { "domain": domain } })), "/spec/domain/cpu").clone();
    let one = json!({ "cores": 1, "sockets": 1, "threads": 1, "model": "host-model" });
    assert_eq!(cpu(json!({})), one);
    assert_eq!(cpu(json!({ "resources": { "requests": { "cpu": "1500m" } } }))["sockets"], 2);
    assert_eq!(cpu(json!({ "cpu": { "cores": 4 } })), json!({ "cores": 4, "model": "host-model" }));
}

#[test]
fn images_without_a_version_are_pulled_each_time() {
    let policy = |image: &str| {
        let volumes = json!([{ "name": "root", "containerDisk": { "image": image } }]);
        at(&created(json!({ "spec": { "volumes": volumes } })), "/spec/volumes/0/containerDisk/imagePullPolicy").clone()
    };
    assert_eq!(policy("guest"), "Always");
    assert_eq!(policy("guest:latest"), "Always");
    assert_eq!(policy("guest:1"), "IfNotPresent");
    assert_eq!(policy("guest@sha256:00"), "IfNotPresent");
    // A registry's port counts as a version.
    assert_eq!(policy("registry:5000/guest"), "IfNotPresent");
}

#[test]
fn a_network_is_only_made_up_where_there_is_none() {
    let none = json!({ "spec": { "networks": null, "domain": { "devices": { "interfaces": null } } } });
    assert_eq!(at(&created(none.clone()), "/spec/networks/0/name"), "default");
    let mut without = none;
    without["spec"]["domain"]["devices"]["autoattachPodInterface"] = false.into();
    let object = created(without);
    assert_eq!(at(&object, "/spec/networks"), &Value::Null);
    assert_eq!(at(&object, "/spec/domain/devices/interfaces"), &Value::Null);
}

#[test]
fn the_clusters_binding_must_be_one_this_build_has() {
    let none = vmi(json!({ "spec": { "networks": null, "domain": { "devices": { "interfaces": null } } } }));
    let result = judge("virtualmachineinstances", &someone(), None, &none, &ClusterConfig::default());
    let said = result.expect_err("bridge is not supported")[0].to_string();
    let field = "spec.domain.devices.interfaces[0].bridge";
    assert_eq!(said, format!("{field}: the bridge binding (use masquerade instead) is not supported by this build"));
}

#[test]
fn disks_get_a_target_and_targets_their_details() {
    let volumes = ["a", "b", "c"].map(|name| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } }));
    let disks = json!([{ "name": "a" }, { "name": "b", "cdrom": {} }]);
    let object = created(json!({ "spec": { "volumes": volumes, "domain": { "devices": { "disks": disks } } } }));
    assert_eq!(
        at(&object, "/spec/domain/devices/disks"),
        &json!([
            { "name": "a", "disk": { "bus": "sata" } },
            { "name": "b", "cdrom": { "bus": "sata", "readonly": true, "tray": "closed" } },
            { "name": "c", "disk": { "bus": "sata" } },
        ])
    );
}

#[test]
fn listed_timers_and_features_are_on() {
    let clock = json!({ "utc": {}, "timer": { "hpet": { "present": false }, "rtc": {} } });
    let features = json!({ "acpi": {}, "apic": { "enabled": false }, "smm": {} });
    let object = created(json!({ "spec": { "domain": { "clock": clock, "features": features } } }));
    let timers = at(&object, "/spec/domain/clock/timer");
    assert_eq!(timers, &json!({ "hpet": { "present": false }, "rtc": { "present": true } }));
    let features = at(&object, "/spec/domain/features");
    assert_eq!(
        features,
        &json!({ "acpi": { "enabled": true }, "apic": { "enabled": false }, "smm": { "enabled": true } })
    );
}

#[test]
fn the_cluster_chooses_model_machine_and_eviction() {
    let mut chosen = config();
    chosen.configuration.cpu_model = Some("host-passthrough".to_owned());
    chosen.configuration.eviction_strategy = Some("LiveMigrateIfPossible".to_owned());
    chosen.configuration.machine_type = Some("pc-q35-7.2".to_owned());
    let object = admitted(&vmi(json!({})), &chosen);
    assert_eq!(at(&object, "/spec/domain/cpu/model"), "host-passthrough");
    assert_eq!(at(&object, "/spec/evictionStrategy"), "LiveMigrateIfPossible");
    assert_eq!(at(&object, "/spec/domain/machine/type"), "pc-q35-7.2");
}

//! What an instance gets that its owner did not write.

use admission::World;
use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{config, gated, judge, someone, validity, vmi};

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
                "cpu": { "cores": 1, "sockets": 1, "maxSockets": 4, "threads": 1, "model": "host-model" },
                "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "sata" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
                "features": { "acpi": { "enabled": true } },
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
    let one = json!({ "cores": 1, "sockets": 1, "maxSockets": 4, "threads": 1, "model": "host-model" });
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
    assert_eq!(
        said,
        format!(
            "{field}: the bridge binding on the Pod network (use masquerade instead) is not supported by this build"
        )
    );
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

/// What an instance of this architecture becomes, valid or not.
fn defaulted(over: Value, config: &ClusterConfig) -> Value {
    let world = World::default();
    validity("virtualmachineinstances", &someone(), None, &vmi(over), config, &world).expect("it is read").object
}

#[test]
fn cpu_requests_of_dedicated_cpus_are_the_owners() {
    let mut configured = config();
    configured.configuration.cpu_request = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("250m".into()));
    let dedicated = json!({ "spec": { "domain": { "cpu": { "dedicatedCpuPlacement": true, "cores": 2 } } } });
    assert_eq!(at(&defaulted(dedicated, &configured), "/spec/domain/resources"), &json!({}));
    let plain = defaulted(json!({}), &configured);
    assert_eq!(at(&plain, "/spec/domain/resources/requests/cpu"), "250m");
}

#[test]
fn a_guest_on_huge_pages_has_at_least_one() {
    let pages = json!({ "spec": { "domain": { "memory": { "guest": null, "hugepages": { "pageSize": "1Gi" } } } } });
    assert_eq!(at(&defaulted(pages, &config()), "/spec/domain/memory/guest"), "1Gi");
}

#[test]
fn quantities_are_stored_as_kubernetes_writes_them() {
    let object = created(json!({ "spec": { "domain": { "memory": { "guest": "1024Mi" } } } }));
    assert_eq!(at(&object, "/spec/domain/memory/guest"), "1Gi");
    assert_eq!(at(&object, "/status/memory/guestAtBoot"), "1Gi");
}

#[test]
fn every_unused_volume_gets_a_disk() {
    let volumes = json!([
        { "name": "root", "containerDisk": { "image": "i:1" } },
        { "name": "dump", "memoryDump": { "claimName": "c" } },
        { "name": "shared", "secret": { "secretName": "s" } },
    ]);
    let devices = json!({ "filesystems": [{ "name": "shared", "virtiofs": {} }] });
    let object = defaulted(json!({ "spec": { "volumes": volumes, "domain": { "devices": devices } } }), &config());
    let names = at(&object, "/spec/domain/devices/disks").as_array().expect("disks").iter().map(|disk| &disk["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["root", "dump"]);
}

#[test]
fn devices_get_their_details() {
    let devices = json!({
        "disks": [{ "name": "root", "lun": {}, "blockSize": { "matchVolume": {} } }],
        "inputs": [{ "name": "i", "type": "" }],
        "gpus": [{ "name": "g", "deviceName": "d", "virtualGPUOptions": { "display": { "ramFB": {} } } }],
        "watchdog": { "name": "w" },
    });
    let object = defaulted(json!({ "spec": { "domain": { "devices": devices } } }), &config());
    let devices = at(&object, "/spec/domain/devices");
    let disk = json!({ "name": "root", "lun": { "bus": "sata" }, "blockSize": { "matchVolume": { "enabled": true } } });
    assert_eq!(devices["disks"][0], disk);
    assert_eq!(devices["inputs"][0], json!({ "name": "i", "type": "tablet", "bus": "usb" }));
    assert_eq!(devices["gpus"][0]["virtualGPUOptions"]["display"]["ramFB"], json!({ "enabled": true }));
    assert_eq!(devices["watchdog"], json!({ "name": "w", "i6300esb": { "action": "reset" } }));
}

#[test]
fn listed_enlightenments_are_on_with_their_details() {
    let hyperv = json!({
        "relaxed": {}, "spinlocks": {}, "synictimer": { "direct": {} },
        "tlbflush": { "direct": {}, "extended": {} }, "vendorid": {}, "reset": { "enabled": false },
    });
    let features = json!({ "hyperv": hyperv, "pvspinlock": {}, "kvm": {}, "hypervPassthrough": {} });
    let object = defaulted(json!({ "spec": { "domain": { "features": features } } }), &config());
    let on = json!({ "enabled": true });
    let features = at(&object, "/spec/domain/features");
    let hyperv = &features["hyperv"];
    assert_eq!(hyperv["relaxed"], on);
    assert_eq!(hyperv["spinlocks"], json!({ "enabled": true, "spinlocks": 4096 }));
    assert_eq!(hyperv["synictimer"], json!({ "enabled": true, "direct": on }));
    assert_eq!(hyperv["tlbflush"], json!({ "enabled": true, "direct": on, "extended": on }));
    assert_eq!(hyperv["vendorid"], on);
    assert_eq!(hyperv["reset"], json!({ "enabled": false }));
    assert_eq!(features["pvspinlock"], on);
    assert_eq!((&features["kvm"], &features["hypervPassthrough"]), (&json!({}), &json!({})), "these are as written");
    let quiet = json!({ "hyperv": { "spinlocks": { "enabled": false } } });
    let object = defaulted(json!({ "spec": { "domain": { "features": quiet } } }), &config());
    assert_eq!(at(&object, "/spec/domain/features/hyperv/spinlocks"), &json!({ "enabled": false }));
}

#[test]
fn enlightenments_bring_what_they_rest_on() {
    let hyperv = |hyperv: Value, flags: Value| {
        let domain = json!({ "features": { "hyperv": hyperv }, "cpu": { "features": flags } });
        let object = defaulted(json!({ "spec": { "domain": domain } }), &config());
        let on = |name: &str| at(&object, &format!("/spec/domain/features/hyperv/{name}/enabled")).clone();
        (on("vpindex"), on("synic"), on("vapic"), at(&object, "/spec/domain/cpu/features").clone())
    };
    let (on, none) = (Value::Bool(true), Value::Null);
    assert_eq!(hyperv(json!({ "ipi": {} }), none.clone()), (on.clone(), none.clone(), none.clone(), none.clone()));
    // The timers bring the interrupt controller, which brings the index.
    let timer = hyperv(json!({ "synictimer": {} }), none.clone());
    assert_eq!(timer, (on.clone(), on.clone(), none.clone(), none.clone()));
    let vmx = json!([{ "name": "vmx", "policy": "require" }]);
    let nested = hyperv(json!({ "evmcs": {} }), none.clone());
    assert_eq!(nested, (none.clone(), none.clone(), on.clone(), vmx.clone()));
    let overruled = hyperv(json!({ "evmcs": {} }), json!([{ "name": "vmx", "policy": "forbid" }]));
    assert_eq!(overruled.3, vmx);
    let added = hyperv(json!({ "evmcs": {} }), json!([{ "name": "avx" }]));
    assert_eq!(added.3, json!([{ "name": "avx" }, { "name": "vmx", "policy": "require" }]));
    // What is turned off stays off, and the rest is left as it is.
    let kept = hyperv(json!({ "ipi": {}, "vpindex": { "enabled": false }, "synictimer": {} }), none.clone());
    assert_eq!(kept, (Value::Bool(false), none.clone(), none.clone(), none));
}

#[test]
fn probes_are_made_often_enough() {
    let probe = json!({ "guestAgentPing": {}, "periodSeconds": 0, "failureThreshold": 7, "timeoutSeconds": -1 });
    let object =
        defaulted(json!({ "spec": { "readinessProbe": probe, "livenessProbe": { "guestAgentPing": {} } } }), &config());
    let expected = |failures: i32| {
        json!({
            "guestAgentPing": {}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": failures,
        })
    };
    assert_eq!(at(&object, "/spec/readinessProbe"), &expected(7));
    assert_eq!(at(&object, "/spec/livenessProbe"), &expected(3));
}

#[test]
fn architectures_have_defaults_of_their_own() {
    let of = |architecture: &str, domain: Value| {
        let mut devices = json!({ "devices": { "disks": [{ "name": "root" }], "watchdog": { "name": "w" } } });
        machinery::patch::merge(&mut devices, &domain);
        defaulted(json!({ "spec": { "architecture": architecture, "domain": devices } }), &config())
    };
    let arm = of("arm64", json!({}));
    assert_eq!(at(&arm, "/spec/domain/machine/type"), "virt");
    assert_eq!(at(&arm, "/spec/domain/cpu/model"), "host-passthrough");
    assert_eq!(at(&arm, "/spec/domain/firmware/bootloader"), &json!({ "efi": { "secureBoot": false } }));
    assert_eq!(at(&arm, "/spec/domain/devices/disks/0/disk/bus"), "virtio");
    assert_eq!(at(&arm, "/spec/domain/devices/watchdog"), &json!({ "name": "w" }));
    assert_eq!(at(&arm, "/spec/domain/cpu/maxSockets"), &Value::Null, "nothing is plugged there");
    assert_eq!(at(&arm, "/metadata/annotations/kubevirt.io~1pci-topology-version"), "v3");
    let unsigned = of("arm64", json!({ "firmware": { "bootloader": { "efi": { "persistent": true } } } }));
    let efi = json!({ "persistent": true, "secureBoot": false });
    assert_eq!(at(&unsigned, "/spec/domain/firmware/bootloader/efi"), &efi);
    let mainframe = of("s390x", json!({}));
    assert_eq!(at(&mainframe, "/spec/domain/machine/type"), "s390-ccw-virtio");
    assert_eq!(at(&mainframe, "/spec/domain/features/acpi"), &json!({ "enabled": false }));
    assert_eq!(at(&mainframe, "/spec/domain/devices/disks/0/disk/bus"), "virtio");
    assert_eq!(at(&mainframe, "/spec/domain/devices/watchdog/diag288/action"), "reset");
    assert_eq!(at(&mainframe, "/metadata/annotations"), &Value::Null, "there is no PCI Express");
    let asked = of("s390x", json!({ "features": { "acpi": { "enabled": true } } }));
    assert_eq!(at(&asked, "/spec/domain/features/acpi"), &json!({ "enabled": true }));
}

/// A cluster that lets guests grow like this.
fn growing(change: impl FnOnce(&mut api::v1::LiveUpdateConfiguration)) -> ClusterConfig {
    let mut config = config();
    change(config.configuration.live_update_configuration.get_or_insert_default());
    config
}

#[test]
fn there_is_room_for_more_cpus() {
    let most = |cpu: Value, config: &ClusterConfig| {
        at(&defaulted(json!({ "spec": { "domain": { "cpu": cpu } } }), config), "/spec/domain/cpu/maxSockets").clone()
    };
    let cluster = config();
    assert_eq!(most(json!({ "sockets": 2, "cores": 1, "threads": 1 }), &cluster), 8);
    assert_eq!(most(json!({ "sockets": 2, "maxSockets": 3 }), &cluster), 3, "as written");
    assert_eq!(most(json!({ "cores": 2 }), &cluster), Value::Null, "no sockets, no more sockets");
    assert_eq!(most(json!({ "sockets": 10, "cores": 10, "threads": 2 }), &cluster), 25, "512 CPUs at most");
    assert_eq!(most(json!({ "sockets": 30, "cores": 10, "threads": 2 }), &cluster), 30, "but what there is stays");
    let capped = growing(|limits| limits.max_cpu_sockets = Some(6));
    assert_eq!(most(json!({ "sockets": 2 }), &capped), 6);
    assert_eq!(most(json!({ "sockets": 8 }), &capped), 8);
    let tripled = growing(|limits| limits.max_hotplug_ratio = Some(3));
    assert_eq!(most(json!({ "sockets": 2 }), &tripled), 6);
    let mut staged = config();
    staged.configuration.vm_rollout_strategy = Some("Stage".to_owned());
    assert_eq!(most(json!({ "sockets": 2 }), &staged), Value::Null);
}

#[test]
fn there_is_room_for_more_memory_where_it_can_be_plugged() {
    let most = |domain: Value, config: &ClusterConfig| {
        at(&defaulted(json!({ "spec": { "domain": domain } }), config), "/spec/domain/memory/maxGuest").clone()
    };
    let guest = |amount: &str| json!({ "memory": { "guest": amount } });
    let with = |over: Value| {
        let mut domain = guest("1Gi");
        machinery::patch::merge(&mut domain, &over);
        domain
    };
    let cluster = config();
    assert_eq!(most(guest("1Gi"), &cluster), "4Gi");
    assert_eq!(most(guest("1026Mi"), &cluster), "4104Mi");
    assert_eq!(most(with(json!({ "memory": { "maxGuest": "2Gi" } })), &cluster), "2Gi", "as written");
    let capped = growing(|limits| limits.max_guest = serde_json::from_value(json!("3Gi")).expect("a quantity"));
    assert_eq!(most(guest("1Gi"), &capped), "3Gi");
    let none = [
        ("too small", guest("1022Mi")),
        ("not in blocks", guest("1025Mi")),
        ("not in pages of 1Gi", with(json!({ "memory": { "guest": "1026Mi", "hugepages": { "pageSize": "1Gi" } } }))),
        ("real time", with(json!({ "cpu": { "realtime": {} } }))),
        ("NUMA", with(json!({ "cpu": { "numa": { "guestMappingPassthrough": {} } } }))),
        ("encrypted", with(json!({ "launchSecurity": { "sev": {} } }))),
        ("no guest memory", json!({ "memory": { "guest": null } })),
    ];
    for (why, domain) in none {
        assert_eq!(most(domain, &cluster), Value::Null, "{why}");
    }
    assert_eq!(most(guest("4Gi"), &capped), Value::Null, "larger than the cluster's most");
    let other = json!({ "spec": { "architecture": "s390x", "domain": guest("1Gi") } });
    assert_eq!(at(&defaulted(other, &cluster), "/spec/domain/memory/maxGuest"), &Value::Null, "amd64 only");
}

#[test]
fn annotations_tell_the_node_what_the_cluster_decided() {
    let even = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
    let annotations = |domain: Value, config: &ClusterConfig| {
        at(&defaulted(json!({ "spec": { "domain": domain } }), config), "/metadata/annotations").clone()
    };
    let isolated = json!({ "cpu": { "dedicatedCpuPlacement": true, "isolateEmulatorThread": true } });
    let mut aligned = gated(&["AlignCPUs"]);
    aligned.annotations.insert(even.to_owned(), "anything".to_owned());
    assert_eq!(annotations(isolated.clone(), &aligned)[even], "");
    assert_eq!(annotations(json!({}), &aligned)[even], Value::Null, "no thread of its own");
    assert_eq!(annotations(isolated.clone(), &gated(&["AlignCPUs"]))[even], Value::Null, "not wanted");
    aligned.configuration.developer_configuration = None;
    assert_eq!(annotations(isolated, &aligned)[even], Value::Null, "no gate");
    let trusted = json!({ "launchSecurity": { "tdx": {} } });
    assert_eq!(annotations(trusted.clone(), &config())["kubevirt.io/qgs-socket-path"], "/var/run/tdx-qgs/qgs.socket");
    let mut elsewhere = config();
    let computing = elsewhere.configuration.confidential_compute.get_or_insert_default();
    let attestation = computing.tdx.get_or_insert_default().attestation.get_or_insert_default();
    attestation.qgs_socket_path = Some("/qgs".to_owned());
    assert_eq!(annotations(trusted, &elsewhere)["kubevirt.io/qgs-socket-path"], "/qgs");
    let own = vmi(json!({ "metadata": { "annotations": { "kubevirt.io/pci-topology-version": "v2" } } }));
    assert_eq!(admitted(&own, &config())["metadata"]["annotations"]["kubevirt.io/pci-topology-version"], "v2");
}

#[test]
fn a_launcher_has_a_user_of_its_own_unless_it_may_be_root() {
    assert_eq!(at(&defaulted(json!({}), &config()), "/status/runtimeUser"), 107);
    assert_eq!(at(&defaulted(json!({}), &gated(&["Root"])), "/status/runtimeUser"), &Value::Null);
}

#[test]
fn what_is_there_is_not_noted_twice() {
    let finalizer = "kubevirt.io/foregroundDeleteVirtualMachine";
    let object = created(json!({ "metadata": { "finalizers": ["a/b", finalizer] } }));
    assert_eq!(at(&object, "/metadata/finalizers"), &json!(["a/b", finalizer]));
}

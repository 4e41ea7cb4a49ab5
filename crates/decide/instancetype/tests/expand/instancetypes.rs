//! What an instance becomes by its instance type, and what is in the way.

use serde_json::{Value, json};

use crate::{applied, instancetype, preference};

/// An instance type and an instance made one.
fn apply(over: Value, spec: Value) -> Result<Value, Vec<String>> {
    applied(Some(&instancetype(over)), None, &spec, json!(null)).map(|(spec, _)| spec)
}

fn domain(domain: Value) -> Value {
    json!({ "domain": domain })
}

#[test]
fn an_empty_instance_is_sized() {
    let spec = apply(json!({}), domain(json!({ "devices": {} }))).expect("no conflict");
    let expected = json!({
        "domain": {
            "cpu": { "sockets": 2, "cores": 1, "threads": 1 },
            "devices": {},
            "memory": { "guest": "1Gi" },
        },
    });
    assert_eq!(spec, expected);
}

#[test]
fn an_instance_type_that_names_no_memory_leaves_it_to_the_template() {
    let none = || json!({ "memory": { "guest": "0", "overcommitPercent": 50 } });
    let spec = apply(none(), domain(json!({ "memory": { "guest": "2Gi" } }))).expect("no conflict");
    assert_eq!((&spec["domain"]["memory"], &spec["domain"]["cpu"]["sockets"]), (&json!({ "guest": "2Gi" }), &json!(2)));
    let asked = json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "3Gi" } });
    let spec = apply(none(), domain(json!({ "resources": asked }))).expect("no conflict");
    assert_eq!((&spec["domain"]["memory"], &spec["domain"]["resources"]), (&json!({}), &asked));
}

#[test]
fn what_an_instance_type_says_is_copied() {
    // The instance type, and where in the instance the same value is found.
    let cases = [
        (json!({ "nodeSelector": { "disk": "ssd" } }), "/nodeSelector", json!({ "disk": "ssd" })),
        (json!({ "schedulerName": "packer" }), "/schedulerName", json!("packer")),
        (json!({ "cpu": { "model": "Haswell" } }), "/domain/cpu/model", json!("Haswell")),
        (json!({ "cpu": { "dedicatedCPUPlacement": true } }), "/domain/cpu/dedicatedCpuPlacement", json!(true)),
        (json!({ "cpu": { "isolateEmulatorThread": true } }), "/domain/cpu/isolateEmulatorThread", json!(true)),
        (
            json!({ "cpu": { "numa": { "guestMappingPassthrough": {} } } }),
            "/domain/cpu/numa",
            json!({ "guestMappingPassthrough": {} }),
        ),
        (json!({ "cpu": { "realtime": { "mask": "0-1" } } }), "/domain/cpu/realtime", json!({ "mask": "0-1" })),
        (json!({ "cpu": { "maxSockets": 8 } }), "/domain/cpu/maxSockets", json!(8)),
        (json!({ "memory": { "guest": "3Gi" } }), "/domain/memory/guest", json!("3Gi")),
        (
            json!({ "memory": { "hugepages": { "pageSize": "2Mi" } } }),
            "/domain/memory/hugepages",
            json!({ "pageSize": "2Mi" }),
        ),
        (json!({ "memory": { "maxGuest": "4Gi" } }), "/domain/memory/maxGuest", json!("4Gi")),
        (
            json!({ "ioThreads": { "supplementalPoolThreadCount": 2 } }),
            "/domain/ioThreads/supplementalPoolThreadCount",
            json!(2),
        ),
        (json!({ "ioThreadsPolicy": "auto" }), "/domain/ioThreadsPolicy", json!("auto")),
        (json!({ "launchSecurity": { "sev": {} } }), "/domain/launchSecurity", json!({ "sev": {} })),
        (
            json!({ "gpus": [{ "name": "g", "deviceName": "d" }] }),
            "/domain/devices/gpus",
            json!([{ "name": "g", "deviceName": "d" }]),
        ),
        (
            json!({ "hostDevices": [{ "name": "h", "deviceName": "d" }] }),
            "/domain/devices/hostDevices",
            json!([{ "name": "h", "deviceName": "d" }]),
        ),
    ];
    for (over, pointer, expected) in cases {
        let spec = apply(over.clone(), domain(json!({ "devices": {} }))).expect("no conflict");
        assert_eq!(spec.pointer(pointer), Some(&expected), "{over}");
    }
}

#[test]
fn what_both_say_is_a_conflict() {
    let memory = json!({ "memory": "1Gi" });
    let cpu = json!({ "cpu": "1" });
    // The instance type, the instance, and the field in conflict.
    let cases = [
        (json!({ "nodeSelector": { "a": "b" } }), json!({ "nodeSelector": { "c": "d" } }), "nodeSelector"),
        (json!({ "schedulerName": "a" }), json!({ "schedulerName": "b" }), "schedulerName"),
        (json!({}), domain(json!({ "resources": { "requests": cpu } })), "domain.resources.requests.cpu"),
        (json!({}), domain(json!({ "resources": { "limits": cpu } })), "domain.resources.limits.cpu"),
        (json!({}), domain(json!({ "cpu": { "sockets": 1 } })), "domain.cpu.sockets"),
        (json!({}), domain(json!({ "cpu": { "cores": 1 } })), "domain.cpu.cores"),
        (json!({}), domain(json!({ "cpu": { "threads": 1 } })), "domain.cpu.threads"),
        (json!({ "cpu": { "model": "a" } }), domain(json!({ "cpu": { "model": "b" } })), "domain.cpu.model"),
        (
            json!({ "cpu": { "dedicatedCPUPlacement": false } }),
            domain(json!({ "cpu": { "dedicatedCpuPlacement": true } })),
            "domain.cpu.dedicatedCPUPlacement",
        ),
        (
            json!({ "cpu": { "isolateEmulatorThread": true } }),
            domain(json!({ "cpu": { "isolateEmulatorThread": true } })),
            "domain.cpu.isolateEmulatorThread",
        ),
        (json!({ "cpu": { "numa": {} } }), domain(json!({ "cpu": { "numa": {} } })), "domain.cpu.numa"),
        (json!({ "cpu": { "realtime": {} } }), domain(json!({ "cpu": { "realtime": {} } })), "domain.cpu.realtime"),
        (json!({}), domain(json!({ "memory": { "guest": "1Gi" } })), "domain.memory.guest"),
        (
            json!({ "memory": { "hugepages": {} } }),
            domain(json!({ "memory": { "hugepages": {} } })),
            "domain.memory.hugepages",
        ),
        (
            json!({ "memory": { "maxGuest": "2Gi" } }),
            domain(json!({ "memory": { "maxGuest": "3Gi" } })),
            "domain.memory.maxGuest",
        ),
        (json!({}), domain(json!({ "resources": { "requests": memory } })), "domain.resources.requests.memory"),
        (json!({}), domain(json!({ "resources": { "limits": memory } })), "domain.resources.limits.memory"),
        (
            json!({ "ioThreads": { "supplementalPoolThreadCount": 1 } }),
            domain(json!({ "ioThreads": { "supplementalPoolThreadCount": 2 } })),
            "domain.ioThreads.supplementalPoolThreadCount",
        ),
        (
            json!({ "ioThreadsPolicy": "auto" }),
            domain(json!({ "ioThreadsPolicy": "shared" })),
            "domain.ioThreadsPolicy",
        ),
        (json!({ "launchSecurity": {} }), domain(json!({ "launchSecurity": {} })), "domain.launchSecurity"),
        (
            json!({ "gpus": [{ "name": "a" }] }),
            domain(json!({ "devices": { "gpus": [{ "name": "b" }] } })),
            "domain.devices.gpus",
        ),
        (
            json!({ "hostDevices": [{ "name": "a" }] }),
            domain(json!({ "devices": { "hostDevices": [{ "name": "b" }] } })),
            "domain.devices.hostDevices",
        ),
    ];
    for (over, spec, field) in cases {
        assert_eq!(apply(over, spec.clone()), Err(vec![format!("spec.template.spec.{field}")]), "{spec}");
    }
}

#[test]
fn what_only_the_instance_says_stays() {
    let spec = json!({
        "nodeSelector": { "a": "b" },
        "schedulerName": "s",
        "domain": {
            "cpu": { "model": "m", "dedicatedCpuPlacement": true, "isolateEmulatorThread": true, "numa": {}, "realtime": {} },
            "memory": { "hugepages": {}, "maxGuest": "2Gi" },
            "ioThreads": { "supplementalPoolThreadCount": 1 },
            "ioThreadsPolicy": "auto",
            "launchSecurity": {},
            "devices": { "gpus": [{ "name": "g" }], "hostDevices": [{ "name": "h" }] },
        },
    });
    let mut expected = spec.clone();
    let sized = domain(json!({ "cpu": { "sockets": 2, "cores": 1, "threads": 1 }, "memory": { "guest": "1Gi" } }));
    machinery::patch::merge(&mut expected, &sized);
    assert_eq!(apply(json!({}), spec), Ok(expected));
}

#[test]
fn most_sockets_are_overruled_without_a_conflict() {
    let spec = apply(json!({ "cpu": { "maxSockets": 8 } }), domain(json!({ "cpu": { "maxSockets": 4 } })));
    assert_eq!(spec.expect("no conflict")["domain"]["cpu"]["maxSockets"], 8);
}

#[test]
fn a_zero_is_no_opinion() {
    let spec = apply(json!({}), domain(json!({ "cpu": { "sockets": 0, "dedicatedCpuPlacement": false } })));
    assert_eq!(spec.expect("no conflict")["domain"]["cpu"]["sockets"], 2);
}

#[test]
fn conflicts_of_all_areas_are_told_at_once() {
    let spec = json!({
        "schedulerName": "a",
        "domain": { "cpu": { "sockets": 1, "cores": 1 }, "memory": { "guest": "1Gi" }, "resources": { "limits": { "memory": "1Gi" } } },
    });
    let expected = ["schedulerName", "domain.cpu.sockets", "domain.cpu.cores", "domain.memory.guest"];
    let expected: Vec<String> = expected.iter().map(|field| format!("spec.template.spec.{field}")).collect();
    assert_eq!(apply(json!({ "schedulerName": "b" }), spec), Err(expected));
}

#[test]
fn annotations_are_merged_and_may_only_agree() {
    let instancetype = instancetype(json!({ "annotations": { "a": "1", "b": "2" } }));
    let annotate = |annotations: Value| {
        applied(Some(&instancetype), None, &json!({}), annotations).map(|(_, annotations)| annotations)
    };
    assert_eq!(annotate(json!(null)), Ok(json!({ "a": "1", "b": "2" })));
    assert_eq!(annotate(json!({ "a": "1", "c": "3" })), Ok(json!({ "a": "1", "b": "2", "c": "3" })));
    assert_eq!(annotate(json!({ "b": "other" })), Err(vec!["annotations.b".to_owned()]));
}

#[test]
fn overcommitted_memory_lowers_the_request() {
    // The guest's memory, the percentage, and the request; the third in double precision would be 3650722201.
    let cases =
        [("1Gi", 50, Some("512Mi")), ("1Gi", 0, None), ("4Gi", 15, Some("3650722304")), ("1000M", 10, Some("900M"))];
    for (guest, percent, expected) in cases {
        let over = json!({ "memory": { "guest": guest, "overcommitPercent": percent } });
        let spec = apply(over, json!({})).expect("no conflict");
        let request = spec["domain"]["resources"]["requests"]["memory"].as_str();
        assert_eq!(request, expected, "{guest} less {percent}%");
        assert_eq!(spec["domain"]["memory"]["guest"], guest);
    }
}

#[test]
fn the_preference_lays_the_cpus_out() {
    let preference = preference(json!({ "cpu": { "preferredCPUTopology": "cores" } }));
    let (spec, _) = applied(Some(&instancetype(json!({}))), Some(&preference), &json!({}), json!(null)).expect("fits");
    assert_eq!(spec["domain"]["cpu"], json!({ "sockets": 1, "cores": 2, "threads": 1 }));
}

#[test]
fn a_conflict_says_what_it_is_about() {
    let error = instancetype::conflict("spec.template.spec.domain.cpu.sockets".into());
    let expected = "spec.template.spec.domain.cpu.sockets: \
                    VM field(s) spec.template.spec.domain.cpu.sockets conflicts with selected instance type";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.cause.as_str(), "FieldValueInvalid");
}

//! Devices that resource claims allocate.

use serde_json::{Value, json};

use super::{causes, check, row, spec};
use crate::{closed, gated};

fn claimed(claims: Value, devices: Value) -> Value {
    spec(json!({ "resourceClaims": claims, "domain": { "devices": devices } }))
}

fn listed(name: &str) -> Value {
    json!({ "name": name, "resourceClaimName": name })
}

fn device(name: &str, claim: &str, request: &str) -> Value {
    json!({ "name": name, "claimName": claim, "requestName": request })
}

fn plugin(name: &str) -> Value {
    json!({ "name": name, "deviceName": "d" })
}

#[test]
fn claims() {
    let claims = |claims: Value| spec(json!({ "resourceClaims": claims }));
    let template = json!({ "name": "c", "resourceClaimTemplateName": "t" });
    check([
        row(
            "a name",
            claims(json!([{ "name": "", "resourceClaimName": "c" }])),
            "Required spec.resourceClaims[0].name",
            claims(json!([listed("c")])),
        ),
        row(
            "that is a label",
            claims(json!([{ "name": "a.b", "resourceClaimName": "c" }])),
            "Invalid spec.resourceClaims[0].name",
            claims(json!([listed("c")])),
        ),
        row("a source", claims(json!([{ "name": "c" }])), "Invalid spec.resourceClaims[0]", claims(json!([template]))),
        row(
            "one source",
            claims(json!([{ "name": "c", "resourceClaimName": "c", "resourceClaimTemplateName": "t" }])),
            "Invalid spec.resourceClaims[0]",
            claims(json!([template])),
        ),
        row(
            "with a name",
            claims(json!([{ "name": "c", "resourceClaimName": "C_1" }])),
            "Invalid spec.resourceClaims[0].resourceClaimName",
            claims(json!([listed("c")])),
        ),
    ]);
    // The schema tells two of a name before the rule could.
    let twice = causes(&claims(json!([listed("c"), listed("c")])), &gated(&[]));
    assert!(twice.iter().all(|said| said.starts_with("Duplicate spec.resourceClaims[1]")), "{twice:?}");
    assert_eq!(twice.len(), 1);
}

#[test]
fn gpus() {
    let gpus = |claims: Value, gpus: Value| claimed(claims, json!({ "gpus": gpus }));
    let one = gpus(json!([listed("c")]), json!([device("g", "c", "r")]));
    check([
        row(
            "all from claims, or none",
            gpus(json!([listed("c")]), json!([device("g", "c", "r"), plugin("h")])),
            "Invalid spec.domain.devices.gpus",
            gpus(json!([]), json!([plugin("g"), plugin("h")])),
        ),
        row(
            "from somewhere",
            gpus(json!([]), json!([{ "name": "g" }])),
            "Required spec.domain.devices.gpus",
            gpus(json!([]), json!([plugin("g")])),
        ),
        row(
            "not from both",
            gpus(json!([]), json!([{ "name": "g", "deviceName": "d", "claimName": "c" }])),
            "Invalid spec.domain.devices.gpus",
            gpus(json!([]), json!([plugin("g")])),
        ),
        row(
            "the claim is named",
            gpus(json!([listed("c")]), json!([{ "name": "g", "requestName": "r" }])),
            "Required spec.domain.devices.gpus[0].claimName",
            one.clone(),
        ),
        row(
            "the request is named",
            gpus(json!([listed("c")]), json!([{ "name": "g", "claimName": "c" }])),
            "Required spec.domain.devices.gpus[0].requestName",
            one.clone(),
        ),
        row(
            "each takes its own",
            gpus(json!([listed("c")]), json!([device("g", "c", "r"), device("h", "c", "r")])),
            "Duplicate spec.domain.devices.gpus[1]",
            gpus(json!([listed("c")]), json!([device("g", "c", "r"), device("h", "c", "s")])),
        ),
        row(
            "the claim is listed",
            gpus(json!([listed("d")]), json!([device("g", "c", "r")])),
            "Invalid spec.resourceClaims",
            one.clone(),
        ),
    ]);
    assert_eq!(causes(&one, &closed(&["GPUsWithDRA"])), ["Invalid spec.domain.devices.gpus"]);
}

#[test]
fn host_devices() {
    let gates = ["HostDevices", "NetworkDevicesWithDRA"];
    let hosts = |claims: Value, hosts: Value| claimed(claims, json!({ "hostDevices": hosts }));
    let one = hosts(json!([listed("c")]), json!([device("h", "c", "r")]));
    let with_gpu = |request: &str| {
        let devices = json!({ "gpus": [device("g", "c", "r")], "hostDevices": [device("h", "c", request)] });
        claimed(json!([listed("c")]), devices)
    };
    let with_network = |request: &str| {
        let devices = json!({
            "hostDevices": [device("h", "c", request)],
            "interfaces": [{ "name": "n", "sriov": {} }],
        });
        let mut object = claimed(json!([listed("c")]), devices);
        let claim = json!({ "claimName": "c", "requestName": "r" });
        object["spec"]["networks"] = json!([{ "name": "n", "resourceClaim": claim }]);
        object
    };
    check([
        row(
            "from somewhere",
            hosts(json!([]), json!([{ "name": "h" }])),
            "Required spec.domain.devices.hostDevices",
            hosts(json!([]), json!([plugin("h")])),
        )
        .behind(&gates),
        row(
            "not from both",
            hosts(json!([]), json!([{ "name": "h", "deviceName": "d", "requestName": "r" }])),
            "Invalid spec.domain.devices.hostDevices",
            hosts(json!([listed("c")]), json!([plugin("h"), device("i", "c", "r")])),
        )
        .behind(&gates),
        row(
            "the request is named",
            hosts(json!([listed("c")]), json!([plugin("g"), { "name": "h", "claimName": "c" }])),
            "Required spec.domain.devices.hostDevices[1].requestName",
            one.clone(),
        )
        .behind(&gates),
        row(
            "the claim is listed",
            hosts(json!([]), json!([device("h", "c", "r")])),
            "Invalid spec.resourceClaims",
            one.clone(),
        )
        .behind(&gates),
        row("not what a GPU has", with_gpu("r"), "Duplicate spec.domain.devices.hostDevices[0]", with_gpu("s"))
            .behind(&gates),
        row(
            "nor what a network has",
            with_network("r"),
            "Duplicate spec.domain.devices.hostDevices[0]",
            with_network("s"),
        )
        .behind(&gates),
    ]);
    let mut without = closed(&["HostDevicesWithDRA"]);
    let developer = without.configuration.developer_configuration.get_or_insert_default();
    developer.feature_gates.push("HostDevices".to_owned());
    assert_eq!(causes(&one, &without), ["Invalid spec.domain.devices.hostDevices"]);
}

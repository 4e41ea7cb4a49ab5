//! Networks and interfaces.

use serde_json::{Value, json};

use super::{causes, check, gate, interface, row, spec};
use crate::{closed, config, gated};

fn plugged(networks: Value, interfaces: Value) -> Value {
    spec(json!({ "networks": networks, "domain": { "devices": { "interfaces": interfaces } } }))
}

fn pod(name: &str) -> Value {
    json!({ "name": name, "pod": {} })
}

fn nic(name: &str) -> Value {
    json!({ "name": name, "masquerade": {} })
}

fn bridge(name: &str) -> Value {
    json!({ "name": name, "bridge": {} })
}

fn multus(name: &str, network: &str) -> Value {
    json!({ "name": name, "multus": { "networkName": network } })
}

fn multus_default(name: &str) -> Value {
    json!({ "name": name, "multus": { "networkName": "n", "default": true } })
}

#[test]
fn networks() {
    let one = plugged(json!([pod("a"), multus("b", "n")]), json!([nic("a"), bridge("b")]));
    check([
        row(
            "one Pod network",
            plugged(json!([pod("a"), pod("b")]), json!([nic("a"), nic("b")])),
            "Duplicate spec.networks",
            one.clone(),
        ),
        row(
            "one default multus network",
            plugged(json!([multus_default("a"), multus_default("b")]), json!([bridge("a"), bridge("b")])),
            "Invalid spec.networks",
            plugged(json!([multus_default("a"), multus("b", "n")]), json!([bridge("a"), bridge("b")])),
        ),
        row(
            "which takes the place of the Pod network",
            plugged(json!([pod("a"), multus_default("b")]), json!([nic("a"), bridge("b")])),
            "Invalid spec.networks",
            one.clone(),
        ),
        row(
            "a kind of network",
            plugged(json!([pod("a"), { "name": "b" }]), json!([nic("a"), bridge("b")])),
            "Required spec.networks[1]",
            one.clone(),
        ),
        row(
            "one kind of network",
            plugged(json!([{ "name": "a", "pod": {}, "multus": { "networkName": "n" } }]), json!([nic("a")])),
            "Required spec.networks[0]",
            plugged(json!([pod("a")]), json!([nic("a")])),
        ),
        row(
            "a multus network is named; the first that is not, is told",
            plugged(json!([multus("a", ""), multus("b", "")]), json!([bridge("a"), bridge("b")])),
            "Required spec.networks[0].multus.networkName",
            plugged(json!([multus("a", "n")]), json!([bridge("a")])),
        ),
        row(
            "names are unique",
            plugged(json!([multus("a", "n"), multus("a", "n")]), json!([bridge("a")])),
            "Duplicate spec.networks[1].name",
            plugged(json!([multus("a", "n")]), json!([bridge("a")])),
        ),
        row(
            "a network has an interface",
            plugged(json!([pod("a"), multus("b", "n")]), json!([nic("a")])),
            "Required spec.networks[1].name",
            one.clone(),
        ),
        row(
            "interfaces are unique",
            plugged(json!([pod("a")]), json!([nic("a"), nic("a")])),
            "Duplicate spec.domain.devices.interfaces[1].name",
            one.clone(),
        ),
        row(
            "an interface has a network",
            plugged(json!([pod("a")]), json!([nic("a"), bridge("c")])),
            "Invalid spec.domain.devices.interfaces[1].name",
            one,
        ),
    ]);
}

#[test]
fn states() {
    let at = "Invalid spec.domain.devices.interfaces[0].state";
    let on_multus = |over: Value| {
        let mut interface = json!({ "name": "a" });
        machinery::patch::merge(&mut interface, &over);
        plugged(json!([multus("a", "n")]), json!([interface]))
    };
    let on_pod = |state: &str| plugged(json!([pod("a")]), json!([{ "name": "a", "bridge": {}, "state": state }]));
    check([
        row("state", interface(json!({ "state": "sideways" })), at, interface(json!({ "state": "down" }))),
        row(
            "the link of SR-IOV is not ours",
            on_multus(json!({ "sriov": {}, "state": "up" })),
            at,
            on_multus(json!({ "sriov": {} })),
        ),
        row(
            "what can be unplugged is a bridge",
            on_multus(json!({ "sriov": {}, "state": "absent" })),
            at,
            on_multus(json!({ "bridge": {}, "state": "absent" })),
        ),
        row("and not the default network", on_pod("absent"), at, on_pod("up")),
    ]);
}

#[test]
fn bindings() {
    let name = "Invalid spec.domain.devices.interfaces[0].name";
    let other = |binding: Value| {
        let mut interface = json!({ "name": "default", "masquerade": null });
        machinery::patch::merge(&mut interface, &binding);
        super::devices(json!({ "interfaces": [interface] }))
    };
    let mut strict = config();
    let network = strict.configuration.network.get_or_insert_default();
    network.permit_bridge_interface_on_pod_network = Some(false);
    let mac = |mac: &str| interface(json!({ "macAddress": mac }));
    check([
        row("a binding", other(json!({})), "Invalid spec.domain.devices.interfaces[0]", interface(json!({}))),
        row(
            "one binding",
            interface(json!({ "bridge": {} })),
            "Invalid spec.domain.devices.interfaces[0]",
            interface(json!({})),
        ),
        row(
            "a plugin excludes the others",
            interface(json!({ "binding": { "name": "p" } })),
            "Invalid spec.domain.devices.interfaces[0].binding",
            other(json!({ "binding": { "name": "p" } })),
        ),
        row(
            "masquerade is on the Pod network",
            plugged(json!([multus("a", "n")]), json!([nic("a")])),
            name,
            plugged(json!([pod("a")]), json!([nic("a")])),
        ),
        row(
            "the Pod's MAC address",
            mac("02:00:00:00:00:00"),
            "Invalid spec.domain.devices.interfaces[0].macAddress",
            mac("02:00:00:00:00:01"),
        ),
        row(
            "the Pod's MAC address with dashes",
            mac("02-00-00-00-00-00"),
            "Invalid spec.domain.devices.interfaces[0].macAddress",
            mac("02-00-00-00-00-01"),
        ),
        row("bridge on the Pod network is permitted", other(json!({ "bridge": {} })), name, interface(json!({})))
            .of(&strict),
        row(
            "passt is on the Pod network",
            plugged(json!([multus("a", "n")]), json!([{ "name": "a", "passtBinding": {} }])),
            name,
            other(json!({ "passtBinding": {} })),
        ),
        row(
            "slirp is gone",
            other(json!({ "slirp": {} })),
            "Invalid spec.domain.devices.interfaces[0].slirp",
            interface(json!({})),
        ),
        row(
            "passt as it was is gone",
            other(json!({ "passt": {} })),
            "Invalid spec.domain.devices.interfaces[0].passt",
            interface(json!({})),
        ),
        row(
            "macvtap is gone",
            other(json!({ "macvtap": {} })),
            "Invalid spec.domain.devices.interfaces[0].macvtap",
            interface(json!({})),
        ),
        row("and its gate too", other(json!({ "macvtap": {} })), "NotSupported ", interface(json!({})))
            .behind(&["Macvtap"])
            .and("Invalid spec.domain.devices.interfaces[0].macvtap"),
    ]);
    let passt = other(json!({ "passtBinding": {} }));
    assert_eq!(causes(&passt, &closed(&["PasstBinding"])), [name]);
}

#[test]
fn cards() {
    let mac = |mac: &str| interface(json!({ "macAddress": mac }));
    let bad_mac = "Invalid spec.domain.devices.interfaces[0].macAddress";
    check([
        row(
            "name",
            plugged(json!([pod("a.b")]), json!([nic("a.b")])),
            "Invalid spec.domain.devices.interfaces[0].name",
            plugged(json!([pod("A_b-1")]), json!([nic("A_b-1")])),
        ),
        row(
            "model",
            interface(json!({ "model": "carrier-pigeon" })),
            "NotSupported spec.domain.devices.interfaces[0].model",
            interface(json!({ "model": "igb" })),
        ),
        row("six octets", mac("02:42:ac:11:00"), bad_mac, mac("02-42-AC-11-00-02")),
        row("not eight", mac("02:42:ac:11:00:02:03:04"), bad_mac, mac("0242.ac11.0002")),
        row("in one row", mac("0242ac11000"), bad_mac, mac("0242ac110002")),
        row("of a separator that is one", mac("02/42/ac/11/00/02"), bad_mac, mac("02:42:ac:11:00:02")),
        row("of one separator", mac("02:42-ac:11-00:02"), bad_mac, mac("02:42:ac:11:00:02")),
        row(
            "PCI address",
            interface(json!({ "pciAddress": "81:01.0" })),
            "Invalid spec.domain.devices.interfaces[0].pciAddress",
            interface(json!({ "pciAddress": "0000:81:01.0" })),
        ),
        row(
            "function of a PCI address",
            interface(json!({ "pciAddress": "0000:81:01.8" })),
            "Invalid spec.domain.devices.interfaces[0].pciAddress",
            interface(json!({ "pciAddress": "0000:81:01.7" })),
        ),
    ]);
}

#[test]
fn ports() {
    let ports = |ports: Value| interface(json!({ "ports": ports }));
    check([
        row(
            "a port is named once",
            ports(json!([{ "name": "http", "port": 80 }, { "name": "http", "port": 81 }])),
            "Duplicate spec.domain.devices.interfaces[0].ports[1].name",
            ports(json!([{ "name": "http", "port": 80 }, { "port": 81 }])),
        ),
        row(
            "a port's name",
            ports(json!([{ "name": "this-is-rather-long", "port": 80 }])),
            "Invalid spec.domain.devices.interfaces[0].ports[0].name",
            ports(json!([{ "name": "http-1", "port": 80 }])),
        ),
        row(
            "a port has a number",
            ports(json!([{ "name": "http", "port": 0 }])),
            "Required spec.domain.devices.interfaces[0].ports[0]",
            ports(json!([{ "port": 1 }])),
        ),
        row(
            "of sixteen bits",
            ports(json!([{ "port": 65536 }])),
            "Invalid spec.domain.devices.interfaces[0].ports[0]",
            ports(json!([{ "port": 65535 }])),
        ),
        row(
            "and a protocol",
            ports(json!([{ "port": 80, "protocol": "SCTP" }])),
            "Invalid spec.domain.devices.interfaces[0].ports[0].protocol",
            ports(json!([{ "port": 80, "protocol": "UDP" }])),
        ),
    ]);
    let elsewhere =
        plugged(json!([multus("a", "n")]), json!([{ "name": "a", "bridge": {}, "ports": [{ "port": 70_000 }] }]));
    assert_eq!(causes(&elsewhere, &config()), Vec::<String>::new(), "only the Pod network forwards ports");
}

#[test]
fn port_ranges() {
    let range = |protocol: &str, start: i32, end: i32| json!({ "protocol": protocol, "start": start, "end": end });
    let ranges = |ranges: Value| interface(json!({ "portRanges": ranges }));
    let fine = ranges(json!([range("TCP", 80, 80), range("UDP", 1, 65535)]));
    let at = "Invalid spec.domain.devices.interfaces[0].portRanges";
    let many = |count: i32| ranges((1..=count).map(|port| range("TCP", port, port)).collect());
    check([
        gate("PortRangesSpec", fine.clone(), at),
        row(
            "not with ports",
            interface(json!({ "ports": [{ "port": 80 }], "portRanges": [range("TCP", 1, 2)] })),
            at,
            fine.clone(),
        )
        .behind(&["PortRangesSpec"]),
        row(
            "by masquerade",
            interface(json!({ "masquerade": null, "bridge": {}, "portRanges": [range("TCP", 1, 2)] })),
            at,
            fine.clone(),
        )
        .behind(&["PortRangesSpec"]),
        row("overlap", ranges(json!([range("TCP", 80, 90), range("TCP", 90, 99)])), at, fine.clone())
            .behind(&["PortRangesSpec"]),
        row(
            "start",
            ranges(json!([range("TCP", 90, 80)])),
            "Invalid spec.domain.devices.interfaces[0].portRanges[0].start",
            fine.clone(),
        )
        .behind(&["PortRangesSpec"]),
    ]);
    let open = gated(&["PortRangesSpec"]);
    for (refused, field) in [
        (ranges(json!([range("SCTP", 1, 2)])), "portRanges[0].protocol"),
        (ranges(json!([range("TCP", 0, 2)])), "portRanges[0].start"),
        (ranges(json!([range("TCP", 1, 65536)])), "portRanges[0].end"),
        (many(11), "portRanges"),
    ] {
        // Some of these the schema refuses before the rule does, with a cause of its own.
        let said = causes(&refused, &open);
        let path = format!("spec.domain.devices.interfaces[0].{field}");
        assert!(said.iter().any(|said| said.ends_with(&path)), "{said:?} names {path}");
    }
    assert_eq!(causes(&many(10), &open), Vec::<String>::new());
}

#[test]
fn dhcp() {
    let dhcp = |options: Value| interface(json!({ "dhcpOptions": options }));
    let option = |option: i64| json!({ "option": option, "value": "x" });
    check([
        row(
            "private options are private",
            dhcp(json!({ "privateOptions": [option(223)] })),
            "Invalid spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option",
            dhcp(json!({ "privateOptions": [option(224)] })),
        ),
        row(
            "and given once",
            dhcp(json!({ "privateOptions": [option(240), option(240)] })),
            "Invalid spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[1].option",
            dhcp(json!({ "privateOptions": [option(240), option(254)] })),
        ),
        row(
            "time servers are addresses",
            dhcp(json!({ "ntpServers": ["::1"] })),
            "Invalid spec.domain.devices.interfaces[0].dhcpOptions.ntpServers[0]",
            dhcp(json!({ "ntpServers": ["192.0.2.1"] })),
        ),
    ]);
}

#[test]
fn networks_from_claims() {
    let gates = ["NetworkDevicesWithDRA"];
    let claim = |claim: &str, request: &str| json!({ "claimName": claim, "requestName": request });
    let on = |claim: Value, binding: Value| {
        let mut interface = json!({ "name": "a" });
        machinery::patch::merge(&mut interface, &binding);
        let listed = json!([{ "name": "c", "resourceClaimName": "c" }]);
        spec(json!({
            "networks": [{ "name": "a", "resourceClaim": claim }],
            "resourceClaims": listed,
            "domain": { "devices": { "interfaces": [interface] } },
        }))
    };
    let sriov = json!({ "sriov": {} });
    let fine = on(claim("c", "r"), sriov.clone());
    let two = |one: Value, other: Value| {
        spec(json!({
            "networks": [{ "name": "a", "resourceClaim": one }, { "name": "b", "resourceClaim": other }],
            "resourceClaims": [{ "name": "c", "resourceClaimName": "c" }],
            "domain": { "devices": { "interfaces": [{ "name": "a", "sriov": {} }, { "name": "b", "sriov": {} }] } },
        }))
    };
    let mixed = spec(json!({
        "networks": [{ "name": "a", "resourceClaim": claim("c", "r") }, multus("b", "n")],
        "resourceClaims": [{ "name": "c", "resourceClaimName": "c" }],
        "domain": { "devices": { "interfaces": [{ "name": "a", "sriov": {} }, bridge("b")] } },
    }));
    check([
        gate("NetworkDevicesWithDRA", fine.clone(), "Invalid spec.networks"),
        row("not with multus", mixed, "Invalid spec.networks", fine.clone()).behind(&gates),
        row(
            "by SR-IOV or a plugin",
            on(claim("c", "r"), json!({ "bridge": {} })),
            "Invalid spec.domain.devices.interfaces",
            on(claim("c", "r"), json!({ "binding": { "name": "p" } })),
        )
        .behind(&gates),
        row(
            "the claim is named",
            on(json!({ "requestName": "r" }), sriov.clone()),
            "Required spec.networks[0].resourceClaim.claimName",
            fine.clone(),
        )
        .behind(&gates),
        row(
            "the request is named",
            on(json!({ "claimName": "c" }), sriov.clone()),
            "Required spec.networks[0].resourceClaim.requestName",
            fine.clone(),
        )
        .behind(&gates),
        row(
            "the claim is listed",
            on(claim("d", "r"), sriov),
            "NotFound spec.networks[0].resourceClaim.claimName",
            fine,
        )
        .behind(&gates),
        row(
            "each takes its own",
            two(claim("c", "r"), claim("c", "r")),
            "Duplicate spec.networks[1]",
            two(claim("c", "r"), claim("c", "s")),
        )
        .behind(&gates),
    ]);
}

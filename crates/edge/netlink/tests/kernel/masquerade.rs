//! The masquerade plan with real traffic: a client, a Pod and a guest, each in a network namespace of its own. The
//! guest is a namespace on a veth pair instead of QEMU on the tap device; the rules cannot tell the difference.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use api::v1::VirtualMachineInstance;
use netlink::blocking::Links;

use crate::spaces::{NetNs, address, ask, default_route, serve, spaces};

fn vmi(ports: serde_json::Value) -> VirtualMachineInstance {
    serde_json::from_value(serde_json::json!({
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}, "ports": ports}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
    }))
    .unwrap()
}

struct Network {
    client: NetNs,
    pod: NetNs,
    guest: NetNs,
}

/// Client 192.0.2.1 ── 192.0.2.7 Pod (planned) 10.0.2.1 ── 10.0.2.2 guest.
fn network(vmi: &VirtualMachineInstance) -> Option<Network> {
    let [client, pod, guest] = spaces()?;
    pod.run(|| {
        Links::new().unwrap().create_veth("eth0", "eth0", Some(client.0.as_fd())).unwrap();
        address("eth0", "192.0.2.7/24");
        let observed = netlink::observe().unwrap();
        netlink::apply(&netplan::phase1(vmi, &observed).unwrap()).unwrap();
        let mut links = Links::new().unwrap();
        links.create_veth("port", "eth0", Some(guest.0.as_fd())).unwrap();
        links.set_master("port", Some("k6t-eth0")).unwrap();
        links.set_up("port").unwrap();
    });
    client.run(|| address("eth0", "192.0.2.1/24"));
    guest.run(|| {
        address("eth0", "10.0.2.2/24");
        default_route(Ipv4Addr::new(10, 0, 2, 1));
    });
    Some(Network { client, pod, guest })
}

#[test]
fn the_guest_is_reached_by_the_pods_address_and_leaves_with_it() {
    let Some(network) = network(&vmi(serde_json::json!([]))) else { return };
    serve(&network.guest, 80);
    serve(&network.client, 8080);
    assert_eq!(ask(&network.client, "192.0.2.7:80").unwrap(), "192.0.2.1", "from outside, with the client's address");
    assert_eq!(ask(&network.pod, "127.0.0.1:80").unwrap(), "10.0.2.1", "from the Pod's loopback, through the gateway");
    assert_eq!(ask(&network.guest, "192.0.2.1:8080").unwrap(), "192.0.2.7", "the guest leaves with the Pod's address");
}

#[test]
fn only_listed_ports_reach_the_guest() {
    let Some(network) = network(&vmi(serde_json::json!([{"port": 80}]))) else { return };
    serve(&network.guest, 80);
    serve(&network.guest, 81);
    serve(&network.pod, 82);
    assert_eq!(ask(&network.client, "192.0.2.7:80").unwrap(), "192.0.2.1");
    assert_eq!(ask(&network.pod, "127.0.0.1:80").unwrap(), "10.0.2.1");
    assert!(ask(&network.client, "192.0.2.7:81").is_err());
    assert_eq!(ask(&network.client, "192.0.2.7:82").unwrap(), "192.0.2.1", "other ports stay the Pod's own");
}

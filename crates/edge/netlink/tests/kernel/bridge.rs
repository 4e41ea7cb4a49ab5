//! The bridge binding with real links and traffic: a neighbour on the second network, a Pod, and a guest that takes the
//! Pod's place. As with masquerade, the guest is a namespace.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::os::fd::AsFd;

use api::v1::VirtualMachineInstance;
use ipnet::IpNet;
use netlink::blocking::Links;
use netplan::{MacAddr, NetPlan, Observed, Route};

use crate::spaces::{NetNs, address, ask, serve, spaces};

/// sha256("blue") = 16477688c0e…
const POD: &str = "pod16477688c0e";
const NIC: &str = "16477688c0e-nic";
const BRIDGE: &str = "k6t-16477688c0e";
const TAP: &str = "tap16477688c0e";
const GUEST: MacAddr = MacAddr([0x0a, 0x58, 10, 79, 0, 7]);

fn vmi() -> VirtualMachineInstance {
    serde_json::from_value(serde_json::json!({
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "blue", "bridge": {}}]}},
            "networks": [{"name": "blue", "multus": {"networkName": "second"}}],
        },
    }))
    .unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The Pod's link to `neighbour`, as a network plugin leaves it.
fn attach(pod: &NetNs, neighbour: &NetNs) {
    pod.run(|| {
        let mut links = Links::new().unwrap();
        links.create_veth(POD, "eth0", Some(neighbour.0.as_fd())).unwrap();
        links.set_mac(POD, GUEST).unwrap();
        links.set_mtu(POD, 1400).unwrap();
        address(POD, "10.79.0.7/24");
        links.add_address(POD, net("fd00:79::7/64")).unwrap();
        let route = Route { destination: net("192.0.2.0/24"), gateway: Some("10.79.0.1".parse().unwrap()), link: None };
        links.add_route(&route).unwrap();
    });
    neighbour.run(|| address("eth0", "10.79.0.1/24"));
}

fn planned() -> NetPlan {
    netplan::phase1(&vmi(), &netlink::observe().unwrap()).unwrap()
}

/// What a plan decides about: without the kernel's own addresses, and with names for indices.
fn shown(observed: &Observed) -> Vec<String> {
    let name_of = |index: u32| observed.links.iter().find(|l| l.index == index).map(|l| l.name.clone());
    let link_local = net("fe80::/10");
    let mut lines: Vec<String> = observed
        .links
        .iter()
        .map(|link| {
            let mut addresses: Vec<String> =
                link.addresses.iter().filter(|a| !link_local.contains(*a)).map(ToString::to_string).collect();
            addresses.sort();
            let mac = link.mac.filter(|_| link.name != TAP);
            let master = link.master.and_then(name_of);
            format!("{} {:?} {mac:?} {} {} {master:?} {addresses:?}", link.name, link.kind, link.mtu, link.up)
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn the_pods_link_address_and_routes_are_observed() {
    let Some([pod, neighbour]) = spaces() else { return };
    attach(&pod, &neighbour);
    let observed = pod.run(|| netlink::observe().unwrap());
    let found = netplan::discover(&vmi(), &observed).unwrap();
    let lease = found[0].lease.clone().unwrap();
    assert_eq!((lease.address.to_string(), lease.prefix_len), ("10.79.0.7".to_string(), 24));
    let routes: Vec<String> = lease.routes.iter().map(|route| format!("{route:?}")).collect();
    assert_eq!(routes, ["LeaseRoute { destination: 192.0.2.0, prefix_len: 24, gateway: Some(10.79.0.1) }"]);
}

#[test]
fn the_guest_answers_in_place_of_the_pod() {
    let Some([pod, neighbour, guest]) = spaces() else { return };
    attach(&pod, &neighbour);
    pod.run(|| {
        netlink::apply(&planned()).unwrap();
        let mut links = Links::new().unwrap();
        links.create_veth("port", "eth0", Some(guest.0.as_fd())).unwrap();
        links.set_master("port", Some(BRIDGE)).unwrap();
        links.set_up("port").unwrap();
    });
    guest.run(|| {
        Links::new().unwrap().set_mac("eth0", GUEST).unwrap();
        address("eth0", "10.79.0.7/24");
    });
    serve(&guest, 80);
    serve(&neighbour, 8080);
    serve(&pod, 82);
    assert_eq!(ask(&neighbour, "10.79.0.7:80").unwrap(), "10.79.0.1");
    assert_eq!(ask(&guest, "10.79.0.1:8080").unwrap(), "10.79.0.7", "it leaves with its own address");
    assert!(ask(&neighbour, "10.79.0.7:82").is_err(), "the Pod, which keeps the address, does not answer for it");
    let bridge = pod.run(|| std::process::Command::new("bridge").args(["-d", "link", "show", "dev", NIC]).output());
    let bridge = String::from_utf8(bridge.unwrap().stdout).unwrap();
    assert!(bridge.contains("learning off"), "{bridge}");
}

#[test]
fn applied_twice_or_after_any_part_of_itself_it_comes_to_the_same() {
    let Some([pod, neighbour]) = spaces() else { return };
    attach(&pod, &neighbour);
    let (whole, finished) = pod.run(|| {
        let plan = planned();
        netlink::apply(&plan).unwrap();
        let first = shown(&netlink::observe().unwrap());
        assert_eq!(planned(), plan, "it is the same plan afterwards");
        netlink::apply(&plan).unwrap();
        assert_eq!(shown(&netlink::observe().unwrap()), first);
        (plan, first)
    });
    let line = |start: &str| finished.iter().find(|line| line.starts_with(start)).unwrap().clone();
    assert!(line(POD).contains("bridge") && line(POD).contains("0a:58:0a:4f:00:07"), "{finished:?}");
    assert!(line(POD).contains("[\"10.79.0.7/24\", \"fd00:79::7/64\"]"), "{finished:?}");
    assert!(line(NIC).contains(BRIDGE) && line(NIC).contains("[]") && line(BRIDGE).contains("169.254.75.10/32"));

    for count in 0..=whole.links.len() {
        let Some([pod, neighbour]) = spaces() else { return };
        attach(&pod, &neighbour);
        pod.run(|| {
            let plan = planned();
            let links = plan.links[..count].to_vec();
            netlink::apply(&NetPlan { renames: plan.renames.clone(), links, ..NetPlan::default() }).unwrap();
            netlink::apply(&planned()).unwrap();
            assert_eq!(shown(&netlink::observe().unwrap()), finished, "after {count} links");
        });
    }
}

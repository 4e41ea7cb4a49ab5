//! Plans of the bridge binding on secondary networks: tables, goldens, and a model of what applying does.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::v1::VirtualMachineInstance;
use launcher_contract::types::{Lease, LeaseRoute};
use netplan::{LinkKind, MacAddr, NetPlan, Observed, ObservedLink, ObservedRoute, PlanError, PodLink, PodNet};
use proptest::prelude::*;
use serde_json::{Value, json};

/// sha256("blue") = 16477688c0e…
const BLUE: &str = "pod16477688c0e";
const NIC: &str = "16477688c0e-nic";
const GUEST: MacAddr = MacAddr([0x0a, 0x58, 10, 79, 0, 7]);

fn vmi(blue: Value) -> VirtualMachineInstance {
    let vmi = json!({
        "metadata": {"namespace": "default", "name": "testvm"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}, blue]}},
            "networks": [{"name": "default", "pod": {}}, {"name": "blue", "multus": {"networkName": "second"}}],
        },
    });
    serde_json::from_value(vmi).unwrap()
}

fn bridged() -> VirtualMachineInstance {
    vmi(json!({"name": "blue", "bridge": {}}))
}

fn link(index: u32, name: &str, mac: MacAddr, addresses: &[&str]) -> ObservedLink {
    ObservedLink {
        index,
        name: name.to_string(),
        kind: Some("veth".to_string()),
        mac: Some(mac),
        mtu: 1400,
        up: true,
        master: None,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

/// A Pod on its own network and on `blue`, with these addresses and routes there.
fn pod(addresses: &[&str], routes: &[(&str, Option<&str>)]) -> Observed {
    let routes = routes.iter().map(|(destination, gateway)| ObservedRoute {
        link: 3,
        destination: destination.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    });
    let eth0 = link(2, "eth0", MacAddr([2, 0, 0, 0, 0, 5]), &["10.244.1.7/24"]);
    let of_eth0 =
        ObservedRoute { link: 2, destination: "0.0.0.0/0".parse().unwrap(), gateway: "10.244.1.1".parse().ok() };
    Observed {
        links: vec![eth0, link(3, BLUE, GUEST, addresses)],
        routes: [of_eth0].into_iter().chain(routes).collect(),
    }
}

fn pod_net() -> PodNet {
    let link = |mac, mtu| PodLink { mtu, mac };
    PodNet {
        links: [
            ("eth0".parse().unwrap(), link(MacAddr([2, 0, 0, 0, 0, 5]), 1450)),
            (BLUE.parse().unwrap(), link(GUEST, 1400)),
        ]
        .into(),
        resolv_conf: "nameserver 10.96.0.10\nsearch default.svc.cluster.local\n".to_string(),
        hostname: "testvm".to_string(),
    }
}

#[test]
fn the_guest_takes_the_place_of_the_pod() {
    let plan = netplan::phase1(&bridged(), &pod(&["10.79.0.7/24", "fe80::1/64", "fd00::7/64"], &[])).unwrap();
    let of_blue: Vec<_> = plan.links.iter().filter(|link| link.name.contains("16477688c0e")).collect();
    insta::assert_debug_snapshot!("bridge", (&plan.renames, of_blue, &plan.sysctls));
}

#[test]
fn without_an_address_there_is_no_server_and_nothing_to_keep_to_itself() {
    let observed = pod(&["fe80::1/64"], &[]);
    let plan = netplan::phase1(&bridged(), &observed).unwrap();
    let bridge = plan.links.iter().find(|link| link.name.as_str() == "k6t-16477688c0e").unwrap();
    assert!(bridge.addresses.is_empty() && !plan.sysctls.iter().any(|sysctl| sysctl.key.contains("arp_ignore")));
    let found = netplan::discover(&bridged(), &observed).unwrap();
    assert_eq!((found[1].addresses.len(), &found[1].lease), (0, &None));
    let servers = netplan::dhcp::config(&bridged(), &pod_net(), &[]).unwrap();
    assert_eq!(servers.iter().map(|server| server.bridge.as_str()).collect::<Vec<_>>(), ["k6t-eth0"]);
}

fn route(destination: &str, gateway: Option<&str>) -> LeaseRoute {
    let net: ipnet::Ipv4Net = destination.parse().unwrap();
    LeaseRoute {
        destination: net.network(),
        prefix_len: net.prefix_len(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    }
}

#[test]
fn the_guest_is_leased_the_pods_address_and_routes() {
    let routes = [
        ("0.0.0.0/0", Some("10.79.0.1")),
        ("10.79.0.0/24", None),
        ("10.80.0.0/16", Some("10.79.0.9")),
        ("192.0.2.0/24", None),
    ];
    let found = netplan::discover(&bridged(), &pod(&["10.79.0.7/24", "fd00::7/64"], &routes)).unwrap();
    assert_eq!(found[0].lease, None);
    assert_eq!(found[1].addresses, ["10.79.0.7".parse::<IpAddr>().unwrap()], "nothing tells the guest of IPv6");
    let default = route("0.0.0.0/0", Some("10.79.0.1"));
    let others = [route("10.80.0.0/16", Some("10.79.0.9")), route("192.0.2.0/24", None)];
    let lease = found[1].lease.clone().unwrap();
    let expected = Lease {
        network: "blue".to_string(),
        address: "10.79.0.7".parse().unwrap(),
        prefix_len: 24,
        routes: [vec![default.clone()], others.to_vec()].concat(),
    };
    assert_eq!(lease, expected);

    let servers = netplan::dhcp::config(&bridged(), &pod_net(), &[lease]).unwrap();
    let of_blue = &servers[1];
    assert_eq!((of_blue.bridge.as_str(), of_blue.server.to_string()), ("k6t-16477688c0e", "169.254.75.11".to_string()));
    assert_eq!((of_blue.client.to_string(), of_blue.prefix_len, of_blue.mtu), ("10.79.0.7".to_string(), 24, 1400));
    assert_eq!(of_blue.router, default.gateway);
    assert_eq!(of_blue.routes, [others.to_vec(), vec![default]].concat(), "the default route is last");
    assert_eq!(of_blue.client_mac, Some(GUEST));
}

#[test]
fn the_card_has_the_vmis_mac_or_the_one_it_had_or_the_pods() {
    let mac = |vmi: &VirtualMachineInstance| {
        let of_blue = netplan::domain_interfaces(vmi, &pod_net()).unwrap().remove(1);
        assert_eq!((of_blue.tap.as_str(), of_blue.mtu), ("tap16477688c0e", 1400));
        of_blue.mac.to_string()
    };
    assert_eq!(mac(&bridged()), "0a:58:0a:4f:00:07");
    let mut moved = bridged();
    moved.status_mut().interfaces =
        serde_json::from_value(json!([{"name": "blue", "mac": "0a:58:00:00:00:01"}])).unwrap();
    assert_eq!(mac(&moved), "0a:58:00:00:00:01");
    let mut named = vmi(json!({"name": "blue", "bridge": {}, "macAddress": "02:00:00:00:00:07"}));
    named.status = moved.status;
    assert_eq!(mac(&named), "02:00:00:00:00:07");
}

#[test]
fn what_a_bridge_cannot_be_made_for_is_refused_with_its_field() {
    let interfaces = |interfaces: Value, networks: Value| {
        let spec = json!({"spec": {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}});
        let vmi: VirtualMachineInstance = serde_json::from_value(spec).unwrap();
        netplan::phase1(&vmi, &pod(&[], &[])).unwrap_err().to_string()
    };
    let multus = |more: Value| {
        let mut multus = json!({"networkName": "n"});
        multus.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{"name": "blue", "multus": multus}])
    };
    let bridge = || json!({"name": "blue", "bridge": {}});
    for (told, expected) in [
        (
            interfaces(json!([bridge()]), multus(json!({"default": true}))),
            "spec.networks[0].multus.default: replacing the Pod network",
        ),
        (
            interfaces(json!([bridge(), bridge()]), multus(json!({}))),
            "spec.domain.devices.interfaces[1]: a second interface on the same",
        ),
        (
            interfaces(
                json!([bridge()]),
                json!([{"name": "blue", "resourceClaim": {"claimName": "c", "requestName": "r"}}]),
            ),
            "spec.networks[0]: a network that is neither",
        ),
    ] {
        assert!(told.starts_with(expected), "{told}");
    }
    let missing = netplan::phase1(&bridged(), &Observed { links: vec![pod(&[], &[]).links.remove(0)], routes: vec![] });
    assert!(matches!(missing, Err(PlanError::NoPodLink { .. })), "{missing:?}");
}

/// A namespace, to which the parts of a plan are applied one by one as `netlink` does.
#[derive(Clone, Debug, PartialEq)]
struct Model(Observed);

/// The smallest part that takes effect at once, or not at all.
type Step = Box<dyn Fn(&mut Observed)>;

/// One of a single link, with a look at all.
type Change = Box<dyn Fn(&mut ObservedLink, &Observed)>;

impl Model {
    fn apply(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| step(&mut self.0));
    }

    /// Without what the kernel chooses: indices.
    fn links(&self) -> BTreeMap<String, String> {
        let name_of = |index: u32| self.0.links.iter().find(|link| link.index == index).unwrap().name.clone();
        let shown = self.0.links.iter().map(|link| {
            let ObservedLink { kind, mac, mtu, up, addresses, .. } = link;
            let master = link.master.map(name_of);
            (link.name.clone(), format!("{kind:?} {mac:?} {mtu} {up} {master:?} {addresses:?}"))
        });
        shown.collect()
    }
}

fn steps(plan: &NetPlan) -> Vec<Step> {
    let mut steps: Vec<Step> = vec![];
    for rename in plan.renames.clone() {
        steps.push(Box::new(move |all| {
            if all.link(&rename.to).is_none() {
                let renamed = all.links.iter_mut().find(|link| link.name == *rename.from).unwrap();
                renamed.name = rename.to.to_string();
            }
        }));
    }
    for link in plan.links.clone() {
        let name = link.name.to_string();
        let change = |change: Change| -> Step {
            let name = name.clone();
            Box::new(move |all: &mut Observed| {
                let before = all.clone();
                change(all.links.iter_mut().find(|link| link.name == name).unwrap(), &before);
            })
        };
        let kind = match link.kind {
            LinkKind::Bridge => "bridge",
            LinkKind::Port => "",
            LinkKind::Tap(_) => "tun",
        };
        if !kind.is_empty() {
            let name = name.clone();
            steps.push(Box::new(move |all| match all.link(&name) {
                Some(found) => assert_eq!(found.kind.as_deref(), Some(kind), "{name} is of another kind"),
                None => {
                    let index = all.links.iter().map(|link| link.index).max().unwrap() + 1;
                    let random = MacAddr([6, 6, 6, 6, 6, index as u8]);
                    let new = ObservedLink {
                        kind: Some(kind.into()),
                        mtu: 1500,
                        up: false,
                        ..super_link(index, &name, random)
                    };
                    all.links.push(new);
                }
            }));
        }
        if let Some(master) = link.master {
            let master = master.to_string();
            steps.push(change(Box::new(move |link, all| link.master = Some(all.link(&master).unwrap().index))));
        }
        if let Some(mac) = link.mac {
            steps.push(change(Box::new(move |link, _| link.mac = Some(mac))));
        }
        if let Some(mtu) = link.mtu {
            steps.push(change(Box::new(move |link, _| link.mtu = mtu)));
        }
        steps.push(change(Box::new(move |found, _| found.addresses.clone_from(&link.addresses))));
        steps.push(change(Box::new(|link, _| link.up = true)));
    }
    steps
}

fn super_link(index: u32, name: &str, mac: MacAddr) -> ObservedLink {
    link(index, name, mac, &[])
}

proptest! {
    /// Whoever is interrupted can begin again, and who has finished changes nothing.
    #[test]
    fn over_any_first_part_of_itself_a_plan_is_the_same(
        v4: bool, v6: bool, named: bool, cut in 0_usize..200, again in 0_usize..200,
    ) {
        let mut addresses = vec![];
        addresses.extend(v4.then_some("10.79.0.7/24"));
        addresses.extend(v6.then_some("fd00::7/64"));
        let vmi = match named {
            true => vmi(json!({"name": "blue", "bridge": {}, "macAddress": "02:00:00:00:00:07"})),
            false => bridged(),
        };
        let fresh = Model(pod(&addresses, &[]));
        let plan = netplan::phase1(&vmi, &fresh.0).unwrap();
        let mut finished = fresh.clone();
        finished.apply(&steps(&plan));
        prop_assert_eq!(&netplan::phase1(&vmi, &finished.0).unwrap(), &plan);

        let mut interrupted = fresh;
        for cut in [cut, again] {
            let plan = netplan::phase1(&vmi, &interrupted.0).unwrap();
            let all = steps(&plan);
            interrupted.apply(&all[..cut.min(all.len())]);
            let found = netplan::discover(&vmi, &interrupted.0).unwrap();
            prop_assert_eq!(found[1].lease.is_some(), v4, "the address is known at any time");
        }
        prop_assert_eq!(&netplan::phase1(&vmi, &interrupted.0).unwrap(), &plan);
        interrupted.apply(&steps(&plan));
        prop_assert_eq!(interrupted.links(), finished.links());
        prop_assert_eq!(finished.0.link(NIC).unwrap().mac == Some(GUEST), false, "the bridge would keep the guest's frames");
    }
}

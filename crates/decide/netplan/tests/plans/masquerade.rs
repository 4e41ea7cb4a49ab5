//! Plans and nft scripts of the masquerade binding, against golden files.

use api::v1::VirtualMachineInstance;
use netplan::{MacAddr, Observed, ObservedLink, PlanError, PodLink, PodNet};
use proptest::prelude::*;
use serde_json::{Value, json};

fn vmi(interface: Value, network: Value) -> VirtualMachineInstance {
    let vmi = json!({
        "metadata": {"namespace": "default", "name": "testvm"},
        "spec": {"domain": {"devices": {"interfaces": [interface]}}, "networks": [network]},
    });
    serde_json::from_value(vmi).unwrap()
}

fn default_vmi() -> VirtualMachineInstance {
    vmi(json!({"name": "default", "masquerade": {}}), json!({"name": "default", "pod": {}}))
}

fn pod(addresses: &[&str]) -> Observed {
    let link = |index: u32, name: &str, addresses: &[&str]| ObservedLink {
        index,
        name: name.to_string(),
        kind: None,
        mac: Some(MacAddr([0x0a, 0x58, 10, 244, 1, 7])),
        mtu: 1450,
        up: true,
        master: None,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    };
    let links = vec![link(1, "lo", &["127.0.0.1/8", "::1/128"]), link(2, "eth0", addresses)];
    Observed { links, routes: vec![] }
}

fn pod_net() -> PodNet {
    PodNet {
        links: [("eth0".parse().unwrap(), PodLink { mtu: 1450, mac: MacAddr([0x0a, 0x58, 10, 244, 1, 7]) })].into(),
        resolv_conf: "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local\n".to_string(),
        hostname: "testvm".to_string(),
    }
}

#[test]
fn a_default_masquerade_interface_gets_a_bridge_a_tap_and_all_ports() {
    let plan = netplan::phase1(&default_vmi(), &pod(&["10.244.1.7/24", "fe80::1/64"])).unwrap();
    insta::assert_debug_snapshot!("default_links", (&plan.links, &plan.routes, &plan.sysctls));
    insta::assert_snapshot!("default_nft", netplan::nft::script(&plan.nft));
}

#[test]
fn listed_ports_are_the_only_ones_forwarded() {
    let ports = json!([{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 22, "protocol": "tcp"}]);
    let vmi = vmi(
        json!({"name": "default", "masquerade": {}, "ports": ports}),
        json!({"name": "default", "pod": {"vmNetworkCIDR": "192.168.50.0/29"}}),
    );
    let plan = netplan::phase1(&vmi, &pod(&["10.244.1.7/24"])).unwrap();
    insta::assert_snapshot!("ports_nft", netplan::nft::script(&plan.nft));
}

#[test]
fn a_dual_stack_pod_gets_both_families() {
    let plan = netplan::phase1(&default_vmi(), &pod(&["fd00:10:244::7/64", "10.244.1.7/24"])).unwrap();
    insta::assert_debug_snapshot!("dual_stack_links", (&plan.links, &plan.sysctls));
    insta::assert_snapshot!("dual_stack_nft", netplan::nft::script(&plan.nft));
}

#[test]
fn absent_interfaces_and_vmis_without_interfaces_need_nothing() {
    let absent =
        vmi(json!({"name": "default", "masquerade": {}, "state": "absent"}), json!({"name": "default", "pod": {}}));
    for vmi in [absent, VirtualMachineInstance::default()] {
        assert_eq!(netplan::phase1(&vmi, &pod(&[])), Ok(netplan::NetPlan::default()));
        assert_eq!(netplan::discover(&vmi, &pod(&[])), Ok(vec![]));
    }
}

#[test]
fn what_cannot_be_planned_is_refused_with_its_field() {
    let pod_network = || json!({"name": "default", "pod": {}});
    let masquerade = |extra: Value| {
        let mut interface = json!({"name": "default", "masquerade": {}});
        interface.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        interface
    };
    let cases = [
        (
            json!({"name": "default", "bridge": {}}),
            pod_network(),
            "spec.domain.devices.interfaces[0]: the bridge binding on the Pod network",
        ),
        (
            json!({"name": "default"}),
            pod_network(),
            "spec.domain.devices.interfaces[0]: an interface without a binding",
        ),
        (
            masquerade(json!({})),
            json!({"name": "other", "pod": {}}),
            "spec.domain.devices.interfaces[0].name: there is no network named \"default\"",
        ),
        (
            masquerade(json!({})),
            json!({"name": "default", "multus": {"networkName": "blue"}}),
            "spec.networks[0]: a network other than the Pod's",
        ),
        (
            masquerade(json!({"portRanges": [{"start": 1, "end": 2}]})),
            pod_network(),
            "spec.domain.devices.interfaces[0].portRanges",
        ),
        (
            masquerade(json!({"ports": [{"port": 70000}]})),
            pod_network(),
            "spec.domain.devices.interfaces[0].ports[0].port: 70000",
        ),
        (
            masquerade(json!({"ports": [{"port": 0}]})),
            pod_network(),
            "spec.domain.devices.interfaces[0].ports[0].port: 0",
        ),
        (
            masquerade(json!({"ports": [{"port": 1}, {"port": 2, "protocol": "SCTP"}]})),
            pod_network(),
            "spec.domain.devices.interfaces[0].ports[1].protocol: \"SCTP\"",
        ),
        (
            masquerade(json!({})),
            json!({"name": "default", "pod": {"vmNetworkCIDR": "10.0.0.0/31"}}),
            "spec.networks[0].pod.vmNetworkCIDR: 10.0.0.0/31 is too small",
        ),
    ];
    for (interface, network, expected) in cases {
        let err = netplan::phase1(&vmi(interface, network), &pod(&["10.244.1.7/24"])).unwrap_err().to_string();
        assert!(err.starts_with(expected), "{err:?} should start with {expected:?}");
    }
}

#[test]
fn multiqueue_and_a_mesh_sidecar_are_refused() {
    let mut multiqueue = default_vmi();
    multiqueue.spec.domain.devices.network_interface_multiqueue = Some(true);
    let mut mesh = default_vmi();
    mesh.metadata.annotations = Some([("sidecar.istio.io/inject".to_string(), "true".to_string())].into());
    for vmi in [multiqueue, mesh] {
        let err = netplan::phase1(&vmi, &pod(&["10.244.1.7/24"])).unwrap_err();
        assert!(matches!(err, PlanError::Unsupported { .. }), "{err}");
    }
}

#[test]
fn a_pod_without_link_or_address_is_an_error_that_says_so() {
    let no_link = netplan::phase1(&default_vmi(), &Observed::default()).unwrap_err();
    assert_eq!(no_link.to_string(), "the Pod has no link eth0 for network \"default\"; did its CNI plugin run?");
    let no_address = netplan::phase1(&default_vmi(), &pod(&["fe80::1/64", "169.254.1.1/16"])).unwrap_err();
    assert!(matches!(no_address, PlanError::NoPodAddress { .. }), "{no_address}");
}

#[test]
fn the_first_global_address_of_each_family_is_discovered_ipv4_first() {
    let observed = pod(&["fe80::1/64", "fd00::7/64", "169.254.0.1/16", "10.244.1.7/24", "10.244.1.8/24", "fd00::8/64"]);
    let found = netplan::discover(&default_vmi(), &observed).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].network.as_str(), found[0].link.as_str()), ("default", "eth0"));
    let addresses: Vec<String> = found[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.244.1.7", "fd00::7"]);
}

#[test]
fn the_domain_gets_the_pods_mac_and_mtu_unless_the_vmi_names_a_mac() {
    let interfaces = netplan::domain_interfaces(&default_vmi(), &pod_net()).unwrap();
    assert_eq!(interfaces.len(), 1);
    assert_eq!(interfaces[0].tap.as_str(), "tap0");
    assert_eq!(interfaces[0].mac.to_string(), "0a:58:0a:f4:01:07");
    assert_eq!(interfaces[0].mtu, 1450);

    let with_mac = |mac: &str| {
        let interface = json!({"name": "default", "masquerade": {}, "macAddress": mac});
        netplan::domain_interfaces(&vmi(interface, json!({"name": "default", "pod": {}})), &pod_net())
    };
    assert_eq!(with_mac("02-00-00-00-00-01").unwrap()[0].mac.to_string(), "02:00:00:00:00:01");
    let err = with_mac("nonsense").unwrap_err();
    assert_eq!(err.to_string(), "spec.domain.devices.interfaces[0].macAddress is not usable");

    // As at the target of a migration, whose Pod has another one.
    let mut moving = default_vmi();
    moving.status_mut().interfaces =
        serde_json::from_value(json!([{"name": "default", "mac": "0a:58:0a:f4:02:09"}])).unwrap();
    let interfaces = netplan::domain_interfaces(&moving, &pod_net()).unwrap();
    assert_eq!(interfaces[0].mac.to_string(), "0a:58:0a:f4:02:09");
}

#[test]
fn the_guest_is_told_everything_by_dhcp() {
    let mut vmi = vmi(
        json!({
            "name": "default", "masquerade": {},
            "dhcpOptions": {
                "bootFileName": "pxe.0", "tftpServerName": "tftp.example", "ntpServers": ["192.0.2.1", "fd00::1"],
                "privateOptions": [{"option": 240, "value": "x"}],
            },
        }),
        json!({"name": "default", "pod": {"vmNetworkCIDR": "10.11.12.0/24"}}),
    );
    vmi.spec.subdomain = Some("web".to_string());
    insta::assert_debug_snapshot!("dhcp", netplan::dhcp::config(&vmi, &pod_net(), &[]).unwrap());

    vmi.spec.domain.devices.interfaces[0].dhcp_options.as_mut().unwrap().private_options[0].option = 12;
    let err = netplan::dhcp::config(&vmi, &pod_net(), &[]).unwrap_err().to_string();
    assert!(err.starts_with("spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option: 12"), "{err}");
}

proptest! {
    /// Whatever the object says, planning neither panics nor lets a foreign byte into the nft script.
    #[test]
    fn no_text_of_a_vmi_reaches_the_script_unchecked(
        cidr in ".*", pod_interface in ".*", protocol in ".*", port: i32, mac in ".*", resolv_conf in ".*",
    ) {
        let mut vmi = vmi(
            json!({"name": "default", "masquerade": {}, "macAddress": mac, "ports": [{"port": port, "protocol": protocol}]}),
            json!({"name": "default", "pod": {"vmNetworkCIDR": cidr}}),
        );
        let reported = json!([{"name": "default", "podInterfaceName": pod_interface}]);
        vmi.status_mut().interfaces = serde_json::from_value(reported).unwrap();
        let mut observed = pod(&["10.244.1.7/24"]);
        observed.links[1].name = pod_interface;
        if let Ok(plan) = netplan::phase1(&vmi, &observed) {
            let script = netplan::nft::script(&plan.nft);
            prop_assert!(script.lines().all(|line| line.starts_with("add ") || line.starts_with("flush chain ")));
        }
        let _ = netplan::domain_interfaces(&vmi, &pod_net());
        let _ = netplan::dhcp::config(&vmi, &PodNet { resolv_conf, ..pod_net() }, &[]);
    }
}

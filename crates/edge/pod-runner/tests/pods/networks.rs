//! Pods on networks: two nodes, each with a bridge, joined by a third one.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use hostfs::ns;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Pod;
use netlink::blocking::Links;
use netplan::{LinkName, Route};
use serde_json::json;

use crate::harness::{TestNode, observe, shell, until_running};

/// Connects the nodes by a link and routes, as a fabric would.
fn join(a: &TestNode, b: &TestNode) {
    ns::run_in_netns(&a.netns, || Links::new().unwrap().create_veth("eth0", "eth0", Some(b.netns.as_fd())).unwrap())
        .unwrap();
    for (node, own, peer, cidr) in [(a, 11, 12, "10.244.2.0/24"), (b, 12, 11, "10.244.1.0/24")] {
        ns::run_in_netns(&node.netns, || {
            netlink::sysctl("net/ipv4/ip_forward", "1").unwrap();
            let mut links = Links::new().unwrap();
            links.add_address("eth0", Ipv4Net::new(Ipv4Addr::new(10, 201, 0, own), 24).unwrap().into()).unwrap();
            links.set_up("eth0").unwrap();
            links
                .add_route(&Route {
                    destination: cidr.parse().unwrap(),
                    gateway: Some(Ipv4Addr::new(10, 201, 0, peer).into()),
                    link: LinkName::new("eth0").ok(),
                })
                .unwrap();
        })
        .unwrap();
    }
}

fn start(node: &TestNode) -> (Pod, Ipv4Addr) {
    let pod = node.pod(json!({"restartPolicy": "Never", "containers": [shell("sleep 1000")]}));
    let sandbox = node.start(&pod);
    until_running(&sandbox);
    (pod, observe(&sandbox).address.unwrap())
}

pub(crate) fn pods_of_two_nodes_reach_each_other() {
    let (one, two) = (TestNode::numbered(1), TestNode::numbered(2));
    join(&one, &two);
    let (pod_a, address_a) = start(&one);
    let (pod_b, address_b) = start(&one);
    let (pod_c, address_c) = start(&two);
    assert_eq!(address_a.octets()[..3], [10, 244, 1]);
    assert_eq!(address_c.octets()[..3], [10, 244, 2]);
    assert_ne!(address_a, address_b);
    for (node, pod, target) in [(&one, &pod_a, address_b), (&one, &pod_b, address_c), (&two, &pod_c, address_a)] {
        let ping = node.exec(pod, &["ping", "-c", "1", "-W", "5", &target.to_string()]);
        assert!(
            ping.status.success(),
            "{}{}",
            String::from_utf8_lossy(&ping.stdout),
            String::from_utf8_lossy(&ping.stderr)
        );
    }
    let mtu = one.exec(&pod_a, &["cat", "/sys/class/net/eth0/mtu"]);
    assert_eq!(String::from_utf8_lossy(&mtu.stdout), "1450\n");
    // The command is in the Pod's other namespaces, too, and its code comes back.
    let inside = one.exec(&pod_a, &["sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '; exit 5"]);
    assert_eq!(inside.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&inside.stdout), "sh -c sleep 1000 ");
    ns::run_in_netns(&one.netns, || Links::new().unwrap().delete("eth0").unwrap()).unwrap();
}

//! The masquerade plan with real traffic: a client, a Pod and a guest, each in a network namespace of its own. The
//! guest is a namespace on a veth pair instead of QEMU on the tap device; the rules cannot tell the difference.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use netlink::blocking::Links;
use netplan::Route;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A network namespace that lives as long as the descriptor.
struct NetNs(std::fs::File);

impl NetNs {
    fn new() -> rustix::io::Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: only the network namespace of this thread changes; no file descriptors or memory are unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(NetNs(std::fs::File::open("/proc/thread-self/ns/net").unwrap()))
        });
        made.join().unwrap()
    }

    fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                what()
            });
            thread.join().expect("work in the namespace failed")
        })
    }
}

fn address(link: &str, net: &str) {
    let mut links = Links::new().unwrap();
    links.add_address(link, net.parse().unwrap()).unwrap();
    links.set_up(link).unwrap();
    links.set_up("lo").unwrap();
}

fn default_route(gateway: Ipv4Addr) {
    let route = Route { destination: "0.0.0.0/0".parse().unwrap(), gateway: Some(gateway.into()), link: None };
    Links::new().unwrap().add_route(&route).unwrap();
}

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
    let (client, pod, guest) = match (NetNs::new(), NetNs::new(), NetNs::new()) {
        (Ok(client), Ok(pod), Ok(guest)) => (client, pod, guest),
        (Err(err), ..) | (_, Err(err), _) | (.., Err(err)) => {
            eprintln!("skipped: cannot make a network namespace ({err}); run as root");
            return None;
        }
    };
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

/// Answers every connection with the address it came from.
fn serve(netns: &NetNs, port: u16) {
    let listener = netns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let peer = stream.peer_addr().unwrap().ip();
            write!(stream, "{peer}").unwrap();
        }
    });
}

fn ask(netns: &NetNs, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    netns.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })
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

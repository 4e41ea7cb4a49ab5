//! Phase 1 of the masquerade binding: the guest is behind a bridge in the Pod's network namespace, and NAT maps it to
//! the Pod's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::v1::{Interface, PodNetwork};

use crate::binding::Attached;
use crate::cidr::{self, GuestNet};
use crate::discovery::global_addresses;
use crate::nft::{Base, Chain, Family, Hook, Match, Protocol, Rule, Table, Verdict};
use crate::{Link, LinkKind, MacAddr, NetPlan, Observed, PlanError, QEMU_UID, Sysctl, TapOptions};

/// The same in every Pod, so that a guest's ARP entry for its gateway stays valid after a migration. Users may not
/// request it.
const BRIDGE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);

const PREINBOUND: &str = "KUBEVIRT_PREINBOUND";
const POSTINBOUND: &str = "KUBEVIRT_POSTINBOUND";

pub(crate) fn add(
    interface: &Attached<'_>,
    pod_network: &PodNetwork,
    observed: &Observed,
    plan: &mut NetPlan,
) -> Result<(), PlanError> {
    let network = || interface.spec.name.clone();
    let link = || interface.pod_interface.to_string();
    let pod = observed
        .link(&interface.pod_interface)
        .ok_or_else(|| PlanError::NoPodLink { network: network(), link: link() })?;
    let addresses = global_addresses(pod);
    if addresses.is_empty() {
        return Err(PlanError::NoPodAddress { network: network(), link: link() });
    }
    let ports = ports(interface.spec, &interface.field)?;
    let mut bridge_addresses = Vec::new();
    for address in addresses {
        match address {
            IpAddr::V4(_) => {
                let net = cidr::ipv4(pod_network, &interface.pod_field())?;
                bridge_addresses.push(net.gateway_net());
                // Routes the Pod's own loopback traffic to the guest.
                let route_localnet = format!("net/ipv4/conf/{}/route_localnet", interface.bridge);
                plan.sysctls.push(Sysctl::new(route_localnet, "1"));
                plan.sysctls.push(Sysctl::new("net/ipv4/ip_forward", "1"));
                plan.nft.push(nat(Family::Ip, interface, net, Ipv4Addr::LOCALHOST, &ports));
            }
            IpAddr::V6(_) => {
                let net = cidr::ipv6(pod_network, &interface.pod_field())?;
                bridge_addresses.push(net.gateway_net());
                plan.sysctls.push(Sysctl::new("net/ipv6/conf/all/forwarding", "1"));
                plan.nft.push(nat(Family::Ip6, interface, net, Ipv6Addr::LOCALHOST, &ports));
            }
        }
    }
    plan.links.push(Link {
        name: interface.bridge.clone(),
        kind: LinkKind::Bridge,
        mac: Some(BRIDGE_MAC),
        mtu: Some(pod.mtu),
        master: None,
        addresses: bridge_addresses,
    });
    plan.links.push(Link {
        name: interface.tap.clone(),
        kind: LinkKind::Tap(TapOptions { owner: QEMU_UID, group: QEMU_UID, queues: 1 }),
        mac: None,
        mtu: Some(pod.mtu),
        master: Some(interface.bridge.clone()),
        addresses: Vec::new(),
    });
    Ok(())
}

type ForwardedPort = (Protocol, u16);

/// The ports that are forwarded to the guest; empty means all.
fn ports(interface: &Interface, field: &str) -> Result<Vec<ForwardedPort>, PlanError> {
    let ports = interface.ports.iter().enumerate();
    ports
        .map(|(index, port)| {
            let number = u16::try_from(port.port).ok().filter(|number| *number > 0).ok_or_else(|| {
                PlanError::BadPort { field: format!("{field}.ports[{index}].port"), value: port.port }
            })?;
            let protocol = match port.protocol.as_deref().unwrap_or_default().to_ascii_uppercase().as_str() {
                "" | "TCP" => Protocol::Tcp,
                "UDP" => Protocol::Udp,
                other => {
                    let field = format!("{field}.ports[{index}].protocol");
                    return Err(PlanError::BadProtocol { field, value: other.to_string() });
                }
            };
            Ok((protocol, number))
        })
        .collect()
}

/// The rules of one address family: traffic to the Pod is forwarded to the guest, the guest's traffic leaves with the
/// Pod's address, and the Pod's own loopback reaches the guest.
fn nat<A: Into<IpAddr> + Copy>(
    family: Family,
    interface: &Attached<'_>,
    net: GuestNet<A>,
    loopback: A,
    ports: &[ForwardedPort],
) -> Table {
    let (gateway, guest, loopback) = (net.gateway.into(), net.guest.into(), loopback.into());
    let pod_link = Match::InputLink(interface.pod_interface.clone());
    let bridge = Match::OutputLink(interface.bridge.clone());
    let from_loopback = |ports| [ports, vec![Match::Source(loopback)]].concat();
    let to_loopback = |ports| [vec![Match::Destination(loopback)], ports].concat();
    Table {
        family,
        name: "nat",
        chains: vec![
            Chain {
                name: "prerouting",
                base: Some(Base { hook: Hook::Prerouting, priority: -100 }),
                rules: vec![rule(vec![pod_link], Verdict::Jump(PREINBOUND))],
            },
            Chain { name: "input", base: Some(Base { hook: Hook::Input, priority: 100 }), rules: Vec::new() },
            Chain {
                name: "output",
                base: Some(Base { hook: Hook::Output, priority: -100 }),
                rules: per_port(ports, to_loopback, Verdict::Dnat(guest)),
            },
            Chain {
                name: "postrouting",
                base: Some(Base { hook: Hook::Postrouting, priority: 100 }),
                rules: vec![
                    rule(vec![Match::Source(guest)], Verdict::Masquerade),
                    rule(vec![bridge], Verdict::Jump(POSTINBOUND)),
                ],
            },
            Chain { name: PREINBOUND, base: None, rules: per_port(ports, |port| port, Verdict::Dnat(guest)) },
            Chain { name: POSTINBOUND, base: None, rules: per_port(ports, from_loopback, Verdict::Snat(gateway)) },
        ],
    }
}

/// One rule per port, or one for all ports if none is listed.
fn per_port(ports: &[ForwardedPort], matches: impl Fn(Vec<Match>) -> Vec<Match>, verdict: Verdict) -> Vec<Rule> {
    if ports.is_empty() {
        return vec![rule(matches(Vec::new()), verdict)];
    }
    ports
        .iter()
        .map(|(protocol, port)| rule(matches(vec![Match::DestinationPort(*protocol, *port)]), verdict.clone()))
        .collect()
}

fn rule(matches: Vec<Match>, verdict: Verdict) -> Rule {
    Rule { matches, verdict }
}

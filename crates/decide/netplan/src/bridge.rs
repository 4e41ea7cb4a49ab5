//! Phase 1 of the bridge binding: the guest takes the place of the Pod on a secondary network. The Pod's link becomes a
//! port of a bridge, beside the guest's tap.
//!
//! ```text
//!   podHASH (veth)              HASH-nic ── k6t-HASH ── tapHASH
//!   MAC, addresses      ──►                 169.254.75.1N, for the DHCP server
//!                               podHASH: MAC, addresses
//! ```
//!
//! The new link of the Pod's name keeps what the network plugin has given the Pod where plugins look for it. It is a bridge
//! without ports, where KubeVirt makes a dummy: not every kernel has that driver, and every kernel has this one.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use launcher_contract::types::{Lease, LeaseRoute};
use sha2::{Digest, Sha256};

use crate::binding::Attached;
use crate::discovery::global_addresses;
use crate::{
    Link, LinkKind, LinkName, MacAddr, NetPlan, Observed, ObservedLink, PlanError, QEMU_UID, Rename, Sysctl,
    TapOptions, names,
};

/// The last byte of a bridge's address is 1 and the interface's position, as digits: 169.254.75.10, …, 169.254.75.199.
const ADVERTISED: [u8; 3] = [169, 254, 75];

pub(crate) fn add(interface: &Attached<'_>, observed: &Observed, plan: &mut NetPlan) -> Result<(), PlanError> {
    let nic = nic(interface)?;
    let pod = original(interface, &nic, observed).ok_or_else(|| interface.no_pod_link())?;
    let network = || interface.spec.name.clone();
    let mac =
        pod.mac.ok_or_else(|| PlanError::NoPodMac { network: network(), link: interface.pod_interface.to_string() })?;
    let has_ipv4 = global_addresses(pod).iter().any(IpAddr::is_ipv4);
    let own_address = match has_ipv4 {
        true => vec![IpNet::V4(Ipv4Net::from(advertised(interface)?))],
        false => Vec::new(),
    };
    let link = |name: &LinkName, kind: LinkKind| Link {
        name: name.clone(),
        kind,
        mac: None,
        mtu: Some(pod.mtu),
        master: None,
        addresses: Vec::new(),
    };
    plan.renames.push(Rename { from: interface.pod_interface.clone(), to: nic.clone() });
    plan.links.extend([
        Link { mac: Some(own_mac(mac)), addresses: own_address, ..link(&interface.bridge, LinkKind::Bridge) },
        // Before the renamed link loses them: until it is a port, its MAC and addresses are the ones to keep.
        Link { mac: Some(mac), addresses: kept_addresses(pod), ..link(&interface.pod_interface, LinkKind::Bridge) },
        // Another MAC, since the bridge keeps frames for the MAC of a port to itself, and the guest may have this one.
        Link { mac: Some(own_mac(mac)), master: Some(interface.bridge.clone()), ..link(&nic, LinkKind::Port) },
        Link {
            master: Some(interface.bridge.clone()),
            ..link(&interface.tap, LinkKind::Tap(TapOptions { owner: QEMU_UID, group: QEMU_UID, queues: 1 }))
        },
    ]);
    if has_ipv4 {
        // Only the guest answers for the address, which the placeholder has as well.
        let arp_ignore = Sysctl::new("net/ipv4/conf/all/arp_ignore", "1");
        plan.sysctls.retain(|sysctl| *sysctl != arp_ignore);
        plan.sysctls.push(arp_ignore);
    }
    Ok(())
}

/// The link that has the MAC and the addresses that the Pod was given: the one with the Pod's name, except between the
/// renaming and the moment when the renamed one becomes a port.
pub(crate) fn original<'a>(
    interface: &Attached<'_>,
    nic: &LinkName,
    observed: &'a Observed,
) -> Option<&'a ObservedLink> {
    match observed.link(nic) {
        Some(renamed) if renamed.master.is_none() => Some(renamed),
        _ => observed.link(&interface.pod_interface),
    }
}

pub(crate) fn nic(interface: &Attached<'_>) -> Result<LinkName, PlanError> {
    let bad_name = |err| PlanError::BadLinkName { network: interface.spec.name.clone(), err };
    names::nic(&interface.pod_interface).map_err(bad_name)
}

/// The address of the bridge, from which its DHCP server answers.
pub(crate) fn advertised(interface: &Attached<'_>) -> Result<Ipv4Addr, PlanError> {
    let last = format!("1{}", interface.index).parse::<u8>();
    let too_many = |_| PlanError::TooManyInterfaces { field: interface.field.clone() };
    let [a, b, c] = ADVERTISED;
    Ok(Ipv4Addr::new(a, b, c, last.map_err(too_many)?))
}

/// What the guest is told by DHCP: the Pod's own address and routes. None without an IPv4 address: then somebody else
/// gives out addresses on this network, or nobody.
pub(crate) fn lease(interface: &Attached<'_>, pod: &ObservedLink, observed: &Observed) -> Option<Lease> {
    let own = global_addresses(pod).into_iter().find(IpAddr::is_ipv4)?;
    let own = pod.addresses.iter().find_map(|net| match net {
        IpNet::V4(net) if IpAddr::V4(net.addr()) == own => Some(*net),
        IpNet::V4(_) | IpNet::V6(_) => None,
    })?;
    let routes = observed.routes.iter().filter(|route| route.link == pod.index).filter_map(|route| {
        let IpNet::V4(destination) = route.destination else { return None };
        let gateway = if let Some(IpAddr::V4(gateway)) = route.gateway { Some(gateway) } else { None };
        Some(LeaseRoute { destination: destination.network(), prefix_len: destination.prefix_len(), gateway })
    });
    let local = |route: &LeaseRoute| {
        route.gateway.is_none() && (route.destination, route.prefix_len) == (own.network(), own.prefix_len())
    };
    Some(Lease {
        network: interface.spec.name.clone(),
        address: own.addr(),
        prefix_len: own.prefix_len(),
        routes: routes.filter(|route| !local(route)).collect(),
    })
}

/// Link-local addresses of IPv6 are the kernel's.
fn kept_addresses(pod: &ObservedLink) -> Vec<IpNet> {
    let kernels = |net: &&IpNet| matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local());
    pod.addresses.iter().filter(|net| !kernels(net)).copied().collect()
}

/// The MAC of the bridge and of its port: any that is not the Pod's, and always the same.
fn own_mac(pods: MacAddr) -> MacAddr {
    let digest = Sha256::new().chain_update("bridge ").chain_update(pods.0).finalize();
    let mut mac = pods.0;
    mac.iter_mut().zip(digest).for_each(|(byte, random)| *byte = random);
    mac[0] = mac[0] & !1 | 2; // of one station, administered locally
    if mac == pods.0 {
        mac[5] ^= 1;
    }
    MacAddr(mac)
}

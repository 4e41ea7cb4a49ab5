//! `status.interfaces`: combines what the domain, the Pod and the guest agent report about each network interface.

use std::net::IpAddr;

use api::v1::VirtualMachineInstanceNetworkInterface as Status;
use api::v1::{Binding, VirtualMachineInstance};

use crate::{DomainInterface, DomainState, GuestAgent, GuestInterface, Network, World};

const DOMAIN: &str = "domain";
const GUEST_AGENT: &str = "guest-agent";
const MULTUS_STATUS: &str = "multus-status";
/// Limits the interfaces that a guest can add to the object.
const MAX_GUEST_ONLY: usize = 10;

pub(crate) fn interfaces(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    domain: &DomainState,
    agent: Option<&GuestAgent>,
    previous: &[Status],
) -> Vec<Status> {
    let mut list: Vec<Status> = domain.interfaces.iter().map(from_domain).collect();
    pod_addresses(w, &mut list);
    if let Some(agent) = agent {
        guest_addresses(vmi, agent, &mut list);
    }
    primary_first(vmi, previous, &mut list);
    multus(previous, &mut list);
    for entry in &mut list {
        if let Some(old) = previous.iter().find(|old| old.name.is_some() && old.name == entry.name) {
            entry.pod_interface_name = old.pod_interface_name.clone();
        }
    }
    list
}

fn from_domain(interface: &DomainInterface) -> Status {
    let link_state = if interface.link_state.is_empty() { "up" } else { &interface.link_state };
    Status {
        name: Some(interface.alias.clone()),
        mac: Some(interface.mac.clone()),
        info_source: Some(DOMAIN.to_string()),
        queue_count: Some(i32::try_from(interface.queues.max(1)).unwrap_or(i32::MAX)),
        link_state: Some(link_state.to_string()),
        ..Status::default()
    }
}

fn pod_addresses(w: &World<'_>, list: &mut [Status]) {
    let Network::Finished(networks) = w.network else { return };
    for entry in list {
        if let Some(pod) = networks.iter().find(|pod| Some(&pod.network) == entry.name.as_ref()) {
            set_ips(entry, pod.addresses.iter().map(ToString::to_string).collect());
        }
    }
}

fn set_ips(entry: &mut Status, ips: Vec<String>) {
    entry.ip_address = ips.first().cloned();
    entry.ip_addresses = ips;
}

/// Interfaces are matched by MAC address; those not in the domain are appended.
fn guest_addresses(vmi: &VirtualMachineInstance, agent: &GuestAgent, list: &mut Vec<Status>) {
    let mut guest_only = Vec::new();
    for guest in &agent.interfaces {
        let same_mac =
            |entry: &&mut Status| entry.mac.as_deref().is_some_and(|mac| mac.eq_ignore_ascii_case(&guest.mac));
        match list.iter_mut().find(same_mac) {
            Some(entry) => {
                let masquerade = is_masquerade(vmi, entry.name.as_deref().unwrap_or_default());
                merge(entry, guest, masquerade);
            }
            None => guest_only.push(from_guest(guest)),
        }
    }
    guest_only.truncate(MAX_GUEST_ONLY);
    list.extend(guest_only);
}

fn is_masquerade(vmi: &VirtualMachineInstance, name: &str) -> bool {
    let mut interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.any(|interface| interface.name == name && interface.bound_by() == Binding::Masquerade)
}

/// Per address family: the Pod's address is the reachable one, so it stays as long as the guest has any address of that
/// family; a guest without one cannot be reached.
fn merge(entry: &mut Status, guest: &GuestInterface, masquerade: bool) {
    let keep = |ip: &&String| !masquerade || !is_link_local(ip);
    let (guest_v4, guest_v6): (Vec<&String>, Vec<&String>) = guest.ips.iter().filter(keep).partition(|ip| is_v4(ip));
    let (pod_v4, pod_v6): (Vec<&String>, Vec<&String>) = entry.ip_addresses.iter().partition(|ip| is_v4(ip));
    let ips = usable(pod_v4, guest_v4).into_iter().chain(usable(pod_v6, guest_v6)).cloned().collect();
    set_ips(entry, ips);
    entry.interface_name = Some(guest.name.clone());
    entry.info_source = Some(format!("{DOMAIN}, {GUEST_AGENT}"));
}

fn usable<'a>(pod: Vec<&'a String>, guest: Vec<&'a String>) -> Vec<&'a String> {
    if pod.is_empty() || guest.is_empty() { guest } else { pod }
}

fn from_guest(guest: &GuestInterface) -> Status {
    let mut entry = Status {
        mac: Some(guest.mac.clone()),
        interface_name: Some(guest.name.clone()),
        info_source: Some(GUEST_AGENT.to_string()),
        ..Status::default()
    };
    set_ips(&mut entry, guest.ips.clone());
    entry
}

fn is_v4(ip: &str) -> bool {
    ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4())
}

fn is_link_local(ip: &str) -> bool {
    match ip.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_unicast_link_local(),
        Err(_) => false,
    }
}

/// Clients take the first entry for the VMI's address.
fn primary_first(vmi: &VirtualMachineInstance, previous: &[Status], list: &mut Vec<Status>) {
    let Some(primary) = vmi.spec.networks.iter().find(|network| network.source().is_primary()) else { return };
    let named = |entry: &Status| entry.name.as_deref() == Some(primary.name.as_str());
    match list.iter().position(named) {
        Some(index) => {
            let entry = list.remove(index);
            list.insert(0, entry);
        }
        None if previous.iter().any(named) => {
            list.insert(0, Status { name: Some(primary.name.clone()), ..Status::default() });
        }
        None => {}
    }
}

/// Keeps what the controller recorded from the Pod's network status.
fn multus(previous: &[Status], list: &mut Vec<Status>) {
    let sources = |entry: &Status| -> Vec<String> {
        entry
            .info_source
            .iter()
            .flat_map(|text| text.split(", "))
            .filter(|s| !s.is_empty())
            .map(str::to_string)
            .collect()
    };
    for old in previous.iter().filter(|old| sources(old).iter().any(|source| source == MULTUS_STATUS)) {
        match list.iter_mut().find(|entry| entry.name.is_some() && entry.name == old.name) {
            Some(entry) => {
                let mut all = sources(entry);
                all.push(MULTUS_STATUS.to_string());
                entry.info_source = Some(all.join(", "));
            }
            None => list.push(Status {
                name: old.name.clone(),
                info_source: Some(MULTUS_STATUS.to_string()),
                ..Status::default()
            }),
        }
    }
}

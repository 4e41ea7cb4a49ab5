//! Networks and the interfaces plugged into them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use api::v1::{DHCPOptions, Interface, Network, PodNetwork, Port, VirtualMachineInstanceSpec};
use ipnet::{Ipv4Net, Ipv6Net};
use machinery::field::{FieldError, FieldPath};

const MODELS: [&str; 7] = ["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio"];
const STATES: [&str; 3] = ["absent", "down", "up"];
const PROTOCOLS: [&str; 2] = ["TCP", "UDP"];

/// The address the masquerade binding gives to the Pod's end of the wire.
const RESERVED_MAC: &str = "02:00:00:00:00:00";

/// DHCP options a site may use as it likes.
const PRIVATE_DHCP_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;

pub(super) fn check(field: &FieldPath, devices: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let interfaces_field = devices.child("interfaces");
    let interfaces = &spec.domain.devices.interfaces;
    let mut errors = networks(&field.child("networks"), spec);
    let mut seen = BTreeSet::new();
    for (index, interface) in interfaces.iter().enumerate() {
        let field = interfaces_field.index(index);
        let network = spec.networks.iter().find(|network| network.name == interface.name);
        if !seen.insert(interface.name.as_str()) {
            errors.push(FieldError::duplicate(field.child("name"), interface.name.as_str()));
        }
        if network.is_none() {
            let detail = "no network has this name";
            errors.push(FieldError::invalid(field.child("name"), interface.name.as_str(), detail));
        }
        errors.extend(binding(&field, interface, network));
        errors.extend(state(&field, interface));
        errors.extend(card(&field, interface));
        if network.is_some_and(|network| network.pod.is_some()) {
            errors.extend(ports(&field.child("ports"), &interface.ports));
        }
        if let Some(options) = &interface.dhcp_options {
            errors.extend(dhcp_options(&field.child("dhcpOptions"), options));
        }
    }
    errors
}

fn networks(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec.networks.iter().filter(|network| network.pod.is_some()).count() > 1 {
        errors.push(FieldError::duplicate(field.clone(), "more than one Pod network"));
    }
    let mut seen = BTreeSet::new();
    for (index, network) in spec.networks.iter().enumerate() {
        let field = field.index(index);
        let sources = [network.pod.is_some(), network.multus.is_some(), network.resource_claim.is_some()];
        if sources.iter().filter(|set| **set).count() != 1 {
            let detail = "exactly one kind of network has to be set, such as pod";
            errors.push(FieldError::required(field.clone(), detail));
        }
        if let Some(pod) = &network.pod {
            errors.extend(guest_networks(&field.child("pod"), pod));
        }
        if !seen.insert(network.name.as_str()) {
            errors.push(FieldError::duplicate(field.child("name"), network.name.as_str()));
        }
        if !spec.domain.devices.interfaces.iter().any(|interface| interface.name == network.name) {
            errors.push(FieldError::required(field.child("name"), "no interface has this name"));
        }
    }
    errors
}

/// The small networks between Pod and guest: room for both ends of the wire.
fn guest_networks(field: &FieldPath, pod: &PodNetwork) -> Vec<FieldError> {
    let v4 = |text: &str| text.parse::<Ipv4Net>().is_ok_and(|net| net.prefix_len() <= 30);
    let v6 = |text: &str| text.parse::<Ipv6Net>().is_ok_and(|net| net.prefix_len() <= 126);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut errors = Vec::new();
    if let Some(text) = given(&pod.vm_network_cidr).filter(|text| !v4(text)) {
        let detail = "must be an IPv4 network of at least four addresses such as 10.0.2.0/24";
        errors.push(FieldError::invalid(field.child("vmNetworkCIDR"), text, detail));
    }
    if let Some(text) = given(&pod.vm_ipv6_network_cidr).filter(|text| !v6(text)) {
        let detail = "must be an IPv6 network of at least four addresses such as fd10:0:2::/120";
        errors.push(FieldError::invalid(field.child("vmIPv6NetworkCIDR"), text, detail));
    }
    errors
}

fn binding(field: &FieldPath, interface: &Interface, network: Option<&Network>) -> Vec<FieldError> {
    let bindings = [
        interface.bridge.is_some(),
        interface.masquerade.is_some(),
        interface.sriov.is_some(),
        interface.passt_binding.is_some(),
        interface.binding.is_some(),
        interface.slirp.is_some(),
        interface.macvtap.is_some(),
        interface.passt.is_some(),
    ];
    let mut errors = Vec::new();
    if bindings.iter().filter(|set| **set).count() != 1 {
        let detail = "exactly one binding has to be set, such as masquerade";
        errors.push(FieldError::invalid(field.clone(), interface.name.as_str(), detail));
    }
    if interface.masquerade.is_none() {
        return errors;
    }
    if network.is_some_and(|network| network.pod.is_none()) {
        let detail = "masquerade works on the Pod network only";
        errors.push(FieldError::invalid(field.child("name"), interface.name.as_str(), detail));
    }
    if let Some(mac) = interface.mac_address.as_deref().filter(|mac| mac.replace('-', ":") == RESERVED_MAC) {
        let detail = "is the address of the Pod's end of the wire";
        errors.push(FieldError::invalid(field.child("macAddress"), mac, detail));
    }
    errors
}

fn state(field: &FieldPath, interface: &Interface) -> Option<FieldError> {
    let state = interface.state.as_deref().filter(|state| !state.is_empty())?;
    let field = field.child("state");
    if !STATES.contains(&state) {
        let detail = format!("must be one of {}", STATES.join(", "));
        return Some(FieldError::invalid(field, state, detail));
    }
    let detail = "only an interface with the bridge binding on a secondary network can be absent";
    (state == "absent" && interface.bridge.is_none()).then(|| FieldError::invalid(field, state, detail))
}

fn card(field: &FieldPath, interface: &Interface) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = interface.name.as_str();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        let detail = "must consist of letters, digits, - and _";
        errors.push(FieldError::invalid(field.child("name"), name, detail));
    }
    let model = interface.model.as_deref().filter(|model| !model.is_empty() && !MODELS.contains(model));
    if let Some(model) = model {
        errors.push(FieldError::not_supported(field.child("model"), model, &MODELS));
    }
    if let Some(mac) = interface.mac_address.as_deref().filter(|mac| !mac.is_empty() && !is_mac(mac)) {
        let detail = "must be six octets such as 02:42:ac:11:00:02";
        errors.push(FieldError::invalid(field.child("macAddress"), mac, detail));
    }
    errors
}

/// Six octets in hexadecimal, all separated by `:` or all by `-`.
fn is_mac(text: &str) -> bool {
    let octet = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    [':', '-'].iter().any(|separator| {
        let parts: Vec<&str> = text.split(*separator).collect();
        parts.len() == 6 && parts.iter().all(|part| octet(part))
    })
}

fn ports(field: &FieldPath, ports: &[Port]) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let field = field.index(index);
        if port.port == 0 {
            errors.push(FieldError::required(field.child("port"), "a port has to be named"));
        } else if !(1..65536).contains(&port.port) {
            let detail = "must be greater than 0 and less than 65536";
            errors.push(FieldError::invalid(field.child("port"), port.port, detail));
        }
        if let Some(protocol) = port.protocol.as_deref().filter(|p| !p.is_empty() && !PROTOCOLS.contains(p)) {
            let detail = format!("must be one of {}", PROTOCOLS.join(", "));
            errors.push(FieldError::invalid(field.child("protocol"), protocol, detail));
        }
        let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field.child("name"), name));
        }
        if !is_port_name(name) {
            let detail = "must be at most 15 lower case letters, digits and single dashes, with at least one letter";
            errors.push(FieldError::invalid(field.child("name"), name, detail));
        }
    }
    errors
}

/// A service name as the IANA defines it, which is what a container's port may be called.
fn is_port_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=15).contains(&name.len())
        && name.bytes().all(allowed)
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn dhcp_options(field: &FieldPath, options: &DHCPOptions) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for (index, one) in options.private_options.iter().enumerate() {
        let field = field.child("privateOptions").index(index).child("option");
        if !PRIVATE_DHCP_OPTIONS.contains(&one.option) {
            errors.push(FieldError::invalid(field, one.option, "must be in the range 224-254"));
        } else if !seen.insert(one.option) {
            errors.push(FieldError::invalid(field, one.option, "is given twice"));
        }
    }
    for (index, server) in options.ntp_servers.iter().enumerate().filter(|(_, s)| s.parse::<Ipv4Addr>().is_err()) {
        let field = field.child("ntpServers").index(index);
        errors.push(FieldError::invalid(field, server.as_str(), "must be an IPv4 address"));
    }
    errors
}

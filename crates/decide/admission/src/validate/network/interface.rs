//! One interface: its binding, its device in the guest, and its forwarded ports.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use api::config::ClusterConfig;
use api::v1::{Binding, DHCPOptions, Interface, Network, Port, PortRange};
use machinery::field::{Cause, Path};

use super::super::findings::{Findings, given};
use super::super::{needs_gate, pci_address};

const MODELS: [&str; 7] = ["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio"];
const PROTOCOLS: [&str; 2] = ["TCP", "UDP"];

/// The MAC address that the masquerade binding uses for the Pod's side.
const RESERVED_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// DHCP options for private use.
const PRIVATE_DHCP_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;

const MAX_PORT_RANGES: usize = 10;

/// The interface's binding.
pub(super) fn binding(
    found: &mut Findings,
    field: &Path<'_>,
    interface: &Interface,
    network: Option<&Network>,
    config: &ClusterConfig,
) {
    let plugin = interface.plugin().is_some();
    // Removed bindings are rejected separately, and still count as the binding of an old object.
    let gone = interface.bindings().filter(|binding| binding.discontinued().is_some()).count();
    let methods = interface.bindings().count() - gone - usize::from(plugin);
    if plugin && methods > 0 {
        let message = "a binding plugin excludes the other bindings";
        found.refuse(Cause::Invalid, &field.child("binding"), message);
    } else if methods > 1 || interface.bound_by() == Binding::Unset {
        let detail = "exactly one binding has to be set, such as masquerade";
        found.invalid(field, interface.name.as_str(), detail);
    }
    let on_pod = network.is_some_and(super::is_pod);
    for binding in interface.bindings() {
        permitted(found, field, interface, binding, on_pod, config);
    }
}

/// Whether the network and the cluster allow a binding.
fn permitted(
    found: &mut Findings,
    field: &Path<'_>,
    interface: &Interface,
    binding: Binding<'_>,
    on_pod: bool,
    config: &ClusterConfig,
) {
    let name = field.child("name");
    match binding {
        Binding::Masquerade => {
            if !on_pod {
                found.invalid(&name, interface.name.as_str(), "masquerade works on the Pod network only");
            }
            if let Some(mac) = given(&interface.mac_address).filter(|mac| parse_mac(mac) == Some(RESERVED_MAC)) {
                found.invalid(&field.child("macAddress"), mac, "is the address of the Pod's end of the wire");
            }
        }
        Binding::Bridge => {
            if on_pod && !config.permit_bridge_on_pod_network() {
                let detail = "the cluster does not permit the bridge binding on the Pod network; use masquerade";
                found.invalid(&name, interface.name.as_str(), detail);
            }
        }
        Binding::Passt => {
            needs_gate(found, &name, "PasstBinding", config);
            if !on_pod {
                found.invalid(&name, interface.name.as_str(), "passt works on the Pod network only");
            }
        }
        Binding::Sriov
        | Binding::Plugin(_)
        | Binding::Macvtap
        | Binding::OldPasst
        | Binding::Slirp
        | Binding::Unset => {}
    }
}

/// The interface's own fields.
pub(super) fn check(
    found: &mut Findings,
    field: &Path<'_>,
    interface: &Interface,
    network: Option<&Network>,
    config: &ClusterConfig,
) {
    let name = interface.name.as_str();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        found.invalid(&field.child("name"), name, "must consist of letters, digits, - and _");
    }
    if let Some(model) = given(&interface.model).filter(|model| !MODELS.contains(model)) {
        found.not_supported(&field.child("model"), model, &MODELS);
    }
    if let Some(mac) = given(&interface.mac_address).filter(|mac| parse_mac(mac).is_none()) {
        found.invalid(&field.child("macAddress"), mac, "must be six octets such as 02:42:ac:11:00:02");
    }
    if let Some(address) = given(&interface.pci_address) {
        pci_address(found, &field.child("pciAddress"), address);
    }
    forwarding(found, field, interface, network.is_some_and(super::is_pod), config);
    if let Some(options) = &interface.dhcp_options {
        dhcp_options(found, &field.child("dhcpOptions"), options);
    }
}

/// Six octets in hexadecimal: in pairs separated by `:` or `-`, in groups of four digits separated by `.`, or in one row.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let separator = text.chars().find(|character| !character.is_ascii_hexdigit());
    let digits = match separator {
        None => 12,
        Some('.') => 4,
        Some(_) => 2,
    };
    let mut octets = Vec::with_capacity(6);
    for group in text.split(|character| Some(character) == separator) {
        if group.len() != digits || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for pair in 0..digits / 2 {
            octets.push(u8::from_str_radix(&group[pair * 2..pair * 2 + 2], 16).ok()?);
        }
    }
    octets.try_into().ok().filter(|_| matches!(separator, None | Some(':' | '-' | '.')))
}

fn forwarding(found: &mut Findings, field: &Path<'_>, interface: &Interface, on_pod: bool, config: &ClusterConfig) {
    let ranges_field = field.child("portRanges");
    if !interface.port_ranges.is_empty() && !config.feature_gate("PortRangesSpec") {
        return needs_gate(found, &ranges_field, "PortRangesSpec", config);
    }
    if !on_pod {
        return;
    }
    ports(found, &field.child("ports"), &interface.ports);
    if interface.port_ranges.is_empty() {
        return;
    }
    if !interface.ports.is_empty() {
        found.refuse(Cause::Invalid, &ranges_field, "ports and portRanges exclude each other");
    }
    if !interface.has_binding(Binding::Masquerade) {
        found.refuse(Cause::Invalid, &ranges_field, "ranges are forwarded by the masquerade binding only");
    }
    port_ranges(found, &ranges_field, &interface.port_ranges);
}

fn ports(found: &mut Findings, field: &Path<'_>, ports: &[Port]) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = field.index(index);
        if let Some(name) = given(&port.name) {
            if !seen.insert(name) {
                found.duplicate(&field.child("name"), name);
            }
            if !is_port_name(name) {
                let detail = "must be at most 15 lower case letters, digits and single dashes, one of them a letter";
                found.invalid(&field.child("name"), name, detail);
            }
        }
        if port.port == 0 {
            found.required(&field, "the port has to be named");
        } else if !is_port(port.port) {
            found.invalid(&field, port.port, "port must be greater than 0 and less than 65536");
        }
        if let Some(protocol) = given(&port.protocol).filter(|protocol| !PROTOCOLS.contains(protocol)) {
            found.invalid(&field.child("protocol"), protocol, "must be TCP or UDP");
        }
    }
}

fn is_port(port: i32) -> bool {
    (1..65536).contains(&port)
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

fn port_ranges(found: &mut Findings, field: &Path<'_>, ranges: &[PortRange]) {
    if ranges.len() > MAX_PORT_RANGES {
        let message = format!("at most {MAX_PORT_RANGES} ranges can be forwarded");
        found.refuse(Cause::Invalid, field, message);
    }
    for (index, range) in ranges.iter().enumerate() {
        let at = field.index(index);
        if !PROTOCOLS.contains(&range.protocol.as_str()) {
            found.invalid(&at.child("protocol"), range.protocol.as_str(), "must be TCP or UDP");
        }
        for (name, port) in [("start", range.start), ("end", range.end)] {
            if !is_port(port) {
                found.invalid(&at.child(name), port, "must be greater than 0 and less than 65536");
            }
        }
        if range.start > range.end && is_port(range.start) && is_port(range.end) {
            found.invalid(&at.child("start"), range.start, "must not be greater than end");
        }
        let overlaps = |other: &&PortRange| {
            other.protocol == range.protocol && range.start <= other.end && other.start <= range.end
        };
        if let Some(other) = ranges[..index].iter().find(overlaps) {
            let PortRange { protocol, start, end } = range;
            let message = format!("{protocol} ranges {start}-{end} and {}-{} overlap", other.start, other.end);
            found.refuse(Cause::Invalid, field, message);
        }
    }
}

fn dhcp_options(found: &mut Findings, field: &Path<'_>, options: &DHCPOptions) {
    let mut seen = BTreeSet::new();
    let private = field.child("privateOptions");
    for (index, one) in options.private_options.iter().enumerate() {
        let at = private.index(index);
        if !PRIVATE_DHCP_OPTIONS.contains(&one.option) {
            found.invalid(&at.child("option"), one.option, "must be in the range 224-254");
        } else if !seen.insert(one.option) {
            found.invalid(&at.child("option"), one.option, "is given twice");
        }
    }
    let servers = field.child("ntpServers");
    for (index, server) in options.ntp_servers.iter().enumerate().filter(|(_, s)| s.parse::<Ipv4Addr>().is_err()) {
        found.invalid(&servers.index(index), server.as_str(), "must be an IPv4 address");
    }
}

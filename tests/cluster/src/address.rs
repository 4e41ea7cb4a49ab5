//! Who has which address. A node is known by its number, from 1.

use std::net::Ipv4Addr;

/// The control plane.
pub(crate) const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const SERVICES: &str = "10.97.0.0/16";
/// The API server's Service: the first address of the range.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
/// As in `manifests/dns.yaml`.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 10);
pub(crate) const ALL_PODS: &str = "10.78.0.0/16";

const NAMES: [&str; 9] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
/// So many nodes have addresses and names of the same form.
pub(crate) const MOST_NODES: u8 = NAMES.len() as u8;

/// The name of a node; of the first one, if there is none with this number.
pub(crate) fn name(node: u8) -> &'static str {
    NAMES.get(usize::from(node).wrapping_sub(1)).copied().unwrap_or(NAMES[0])
}

pub(crate) fn of_node(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + node)
}

/// The network of a node's Pods.
pub(crate) fn pods_of(node: u8) -> String {
    format!("10.78.{node}.0/24")
}

/// A hardware address that stays: neighbours remember the old one for seconds after a restart.
pub(crate) fn hardware(node: u8, interface: u8) -> String {
    format!("02:77:00:00:{interface:02x}:{node:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_and_addresses_of_their_own() {
        assert_eq!((name(1), name(3), name(MOST_NODES)), ("n1", "n3", "n9"));
        assert_eq!((of_node(3).to_string(), pods_of(3)), ("10.77.0.13".to_owned(), "10.78.3.0/24".to_owned()));
        assert_eq!(hardware(3, 1), "02:77:00:00:01:03");
        assert_ne!(hardware(3, 0), hardware(3, 1));
    }
}

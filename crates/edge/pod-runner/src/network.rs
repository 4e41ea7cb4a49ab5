//! The Pod's network: a netns, a veth pair to the node's bridge, an address and a default route.
//!
//! Functions run in the calling thread's netns, which is the node's. Each is idempotent.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hostfs::ns;
use ipnet::{IpNet, Ipv4Net};
use netlink::blocking::Links;
use netplan::{LinkName, MacAddr, Route};

use crate::paths::{PodUid, digest};

/// The interface inside the Pod.
const POD_LINK: &str = "eth0";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error("veth pair vanished during creation; retrying")]
    HalfPair,
}

/// How Pods of this node reach the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// The node's bridge, which must exist and have the gateway's address.
    pub bridge: String,
    /// The network of this node's Pods; its first address is the gateway.
    pub cidr: Ipv4Net,
    pub mtu: u32,
}

impl PodNetwork {
    fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.cidr.network()) + 1)
    }
}

/// Name of the node's end of the veth pair.
pub(crate) fn node_link(uid: &PodUid) -> String {
    format!("veth{:011x}", digest(uid) >> 20)
}

/// Connects the netns to the bridge and assigns its address.
pub(crate) fn connect(network: &PodNetwork, uid: &PodUid, address: Ipv4Addr, netns: &OwnedFd) -> Result<(), Error> {
    let node_link = node_link(uid);
    let mut links = Links::new()?;
    links.create_veth(&node_link, POD_LINK, Some(netns.as_fd()))?;
    let configured = ns::run_in_netns(netns, || configure(network, address))?;
    if let Err(Error::HalfPair) = configured {
        // The pair belongs to an earlier netns that the kernel is still removing.
        links.delete(&node_link)?;
    }
    configured?;
    links.set_mtu(&node_link, network.mtu)?;
    links.set_master(&node_link, Some(&network.bridge))?;
    links.set_up(&node_link)?;
    Ok(())
}

fn configure(network: &PodNetwork, address: Ipv4Addr) -> Result<(), Error> {
    let mut links = Links::new()?;
    links.set_up("lo")?;
    let Some(link) = links.get(POD_LINK)? else { return Err(Error::HalfPair) };
    let [a, b, c, d] = address.octets();
    let mac = MacAddr([0x0a, 0x58, a, b, c, d]);
    if link.mac != Some(mac) {
        links.set_mac(POD_LINK, mac)?;
    }
    links.set_mtu(POD_LINK, network.mtu)?;
    let wanted = Ipv4Net::new(address, network.cidr.prefix_len()).unwrap_or(network.cidr);
    links.replace_addresses(POD_LINK, &[IpNet::V4(wanted)])?;
    links.set_up(POD_LINK)?;
    links.add_route(&Route {
        destination: IpNet::V4(Ipv4Net::default()),
        gateway: Some(IpAddr::V4(network.gateway())),
        link: LinkName::new(POD_LINK).ok(),
    })?;
    Ok(())
}

/// Removes the veth pair and the netns; succeeds if they are absent.
pub(crate) fn disconnect(uid: &PodUid, netns: &Path) -> Result<(), Error> {
    Links::new()?.delete(&node_link(uid))?;
    ns::remove_netns(netns)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_end_has_a_name_that_the_kernel_takes() {
        for uid in ["a", "0d6f1c0e-1111-4222-8333-444455556666"] {
            let name = node_link(&uid.parse().unwrap());
            assert_eq!(name.len(), 15, "{name}");
            assert!(LinkName::new(&name).is_ok());
        }
    }
}

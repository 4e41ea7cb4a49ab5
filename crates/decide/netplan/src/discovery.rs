use std::net::IpAddr;

use api::v1::VirtualMachineInstance;
use launcher_contract::types::Lease;

use crate::binding::{Bound, attached};
use crate::{LinkName, Observed, ObservedLink, PlanError, bridge};

/// Addresses under which a network of the VMI is reachable in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInterface {
    pub network: String,
    pub link: LinkName,
    /// The first global IPv4 and the first global IPv6 address, in this order. There is no IPv6 address for a bridged
    /// guest, since nothing tells it of one.
    pub addresses: Vec<IpAddr>,
    /// What a bridged guest is told by DHCP.
    pub lease: Option<Lease>,
}

/// Reads the Pod's addresses, before phase 1 or after. Only before it there are the routes of a bridged network.
pub fn discover(vmi: &VirtualMachineInstance, observed: &Observed) -> Result<Vec<PodInterface>, PlanError> {
    attached(vmi)?
        .into_iter()
        .map(|interface| {
            let found = match interface.bound {
                Bound::Masquerade(_) => observed.link(&interface.pod_interface),
                Bound::Bridge => bridge::original(&interface, &bridge::nic(&interface)?, observed),
            };
            let link = found.ok_or_else(|| interface.no_pod_link())?;
            let mut addresses = global_addresses(link);
            let lease = match interface.bound {
                Bound::Masquerade(_) => None,
                Bound::Bridge => {
                    addresses.retain(IpAddr::is_ipv4);
                    bridge::lease(&interface, link, observed)
                }
            };
            Ok(PodInterface { network: interface.spec.name.clone(), addresses, lease, link: interface.pod_interface })
        })
        .collect()
}

pub(crate) fn global_addresses(link: &ObservedLink) -> Vec<IpAddr> {
    let all = || link.addresses.iter().map(|net| net.addr()).filter(is_global);
    all().find(IpAddr::is_ipv4).into_iter().chain(all().find(IpAddr::is_ipv6)).collect()
}

/// Reachable from other machines; private ranges count, since Pod networks use them.
fn is_global(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_unspecified()),
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified()),
    }
}

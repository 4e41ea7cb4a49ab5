use std::net::IpAddr;

use api::v1::VirtualMachineInstance;

use crate::binding::attached;
use crate::{LinkName, Observed, ObservedLink, PlanError};

/// Addresses under which a network of the VMI is reachable in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInterface {
    pub network: String,
    pub link: LinkName,
    /// The first global IPv4 and the first global IPv6 address, in this order.
    pub addresses: Vec<IpAddr>,
}

/// Reads the Pod's addresses, before phase 1 or after.
pub fn discover(vmi: &VirtualMachineInstance, observed: &Observed) -> Result<Vec<PodInterface>, PlanError> {
    attached(vmi)?
        .into_iter()
        .map(|interface| {
            let network = interface.spec.name.clone();
            let Some(link) = observed.link(&interface.pod_interface) else {
                return Err(PlanError::NoPodLink { network, link: interface.pod_interface.to_string() });
            };
            Ok(PodInterface { network, addresses: global_addresses(link), link: interface.pod_interface })
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

use std::net::IpAddr;

use ipnet::IpNet;

use crate::MacAddr;

/// The observed state of a network namespace, before any change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    pub links: Vec<ObservedLink>,
    /// Unicast routes of the main table, in the kernel's order.
    pub routes: Vec<ObservedRoute>,
}

/// One route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRoute {
    /// Index of the link that it leaves by.
    pub link: u32,
    pub destination: IpNet,
    /// `None` for what is reached without a router.
    pub gateway: Option<IpAddr>,
}

/// One link as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLink {
    pub index: u32,
    pub name: String,
    /// rtnetlink's kind (`bridge`, `veth`, `tun`, …); `None` for loopback and physical links.
    pub kind: Option<String>,
    /// `None` for links without an Ethernet address.
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    /// Administratively up; says nothing about the carrier.
    pub up: bool,
    /// Index of the bridge (or other controller) it is a port of.
    pub master: Option<u32>,
    /// All addresses, link-local ones included.
    pub addresses: Vec<IpNet>,
}

impl Observed {
    pub fn link(&self, name: &str) -> Option<&ObservedLink> {
        self.links.iter().find(|link| link.name == name)
    }
}

use std::net::IpAddr;

use ipnet::IpNet;

use crate::nft;
use crate::{LinkName, MacAddr};

/// The desired state of (a part of) one network namespace. Applied in the order of the fields; links in list order, so
/// a bridge comes before its ports. Everything else is left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetPlan {
    pub renames: Vec<Rename>,
    pub links: Vec<Link>,
    pub routes: Vec<Route>,
    pub sysctls: Vec<Sysctl>,
    pub nft: Vec<nft::Table>,
}

/// A link gets another name. Done if there is a link of the new name, also if another one has the old name by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    pub from: LinkName,
    pub to: LinkName,
}

/// A link that exists, is up, and has exactly these addresses (link-local IPv6 addresses are left to the kernel).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: LinkName,
    pub kind: LinkKind,
    /// `None` keeps the kernel's choice.
    pub mac: Option<MacAddr>,
    /// `None` keeps the kernel's choice.
    pub mtu: Option<u32>,
    /// The bridge it is a port of; `None` leaves its membership unchanged.
    pub master: Option<LinkName>,
    pub addresses: Vec<IpNet>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    Bridge,
    /// A link of any kind that is there already, to become a port of a bridge that does not learn addresses from it.
    Port,
    Tap(TapOptions),
}

/// A persistent tap device that one unprivileged user may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapOptions {
    pub owner: u32,
    pub group: u32,
    /// More than one makes the device multi-queue; QEMU must then request that many, and must not if it is 1.
    pub queues: u16,
}

/// A unicast route of the main table. At least one of `gateway` and `link` is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    pub gateway: Option<IpAddr>,
    pub link: Option<LinkName>,
}

/// A kernel setting below `/proc/sys/net`, written with slashes (`net/ipv4/ip_forward`), because a link's name may
/// contain dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    pub key: String,
    pub value: String,
}

impl Sysctl {
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Sysctl { key: key.into(), value: value.into() }
    }
}

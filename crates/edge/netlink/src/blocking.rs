//! Links, addresses and routes of a netns.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::IpNet;
use netplan::{MacAddr, ObservedLink, ObservedRoute, Route, TapOptions};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{AddressMessageBuilder, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;

use crate::error::{Error, KernelError};
use crate::socket::Netlink;
use crate::tap;

/// The links of the netns in which [`Links::new`] was called.
pub struct Links {
    netlink: Netlink,
}

impl Links {
    pub fn new() -> Result<Self, Error> {
        Ok(Links { netlink: Netlink::open().map_err(Error::Socket)? })
    }

    pub fn list(&mut self) -> Result<Vec<ObservedLink>, Error> {
        let get = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answer = self.netlink.dump(get).map_err(failed("list", "links"))?;
        let addresses = self.addresses()?;
        Ok(answer.into_iter().filter_map(link_message).filter_map(|message| observed(message, &addresses)).collect())
    }

    /// `None` if there is no such link.
    pub fn get(&mut self, name: &str) -> Result<Option<ObservedLink>, Error> {
        let Some(message) = self.find(name)? else { return Ok(None) };
        let addresses = self.addresses()?;
        Ok(observed(message, &addresses))
    }

    /// Unicast routes of the main table, those of IPv4 first.
    pub fn routes(&mut self) -> Result<Vec<ObservedRoute>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RouteMessage::default();
            all.header.address_family = family;
            let answer = self.netlink.dump(RouteNetlinkMessage::GetRoute(all)).map_err(failed("list", "routes"))?;
            routes.extend(answer.into_iter().filter_map(route));
        }
        Ok(routes)
    }

    pub fn create_bridge(&mut self, name: &str) -> Result<(), Error> {
        self.create(name, "bridge", LinkMessageBuilder::<LinkBridge>::new(name).build())
    }

    /// Creates a veth pair, with `peer` in `peer_netns` if given. The kernel creates both ends or none, so a pair is
    /// complete if `name` exists.
    pub fn create_veth(&mut self, name: &str, peer: &str, peer_netns: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let mut other_end = LinkMessageBuilder::<LinkUnspec>::new().name(peer);
        if let Some(fd) = peer_netns {
            other_end = other_end.setns_by_fd(fd.as_raw_fd());
        }
        let pair = LinkMessageBuilder::<LinkVeth>::new(name, peer)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(other_end.build())))
            .build();
        self.create(name, "veth", pair)
    }

    /// Creates a persistent tap device with virtio-net headers.
    pub fn create_tap(&mut self, name: &str, options: &TapOptions) -> Result<(), Error> {
        let Some(existing) = self.find(name)? else {
            return tap::create(name, options).map_err(|err| Error::Tap { name: name.to_string(), err });
        };
        let found = tap::Description::of(&existing);
        let wanted = tap::Description::wanted(options);
        if found == wanted { Ok(()) } else { Err(mismatch(name, found.to_string(), wanted.to_string())) }
    }

    /// Deletes the link; for a veth pair that deletes both ends.
    pub fn delete(&mut self, name: &str) -> Result<(), Error> {
        let Some(message) = self.find(name)? else { return Ok(()) };
        let delete = LinkUnspec::new_with_index(message.header.index).build();
        match self.netlink.change(RouteNetlinkMessage::DelLink(delete), 0) {
            Err(err) if err.is(Errno::NODEV) => Ok(()), // already deleted by someone else
            other => other.map_err(failed("delete link", name)),
        }
    }

    pub fn set_up(&mut self, name: &str) -> Result<(), Error> {
        self.change(name, "bring up link", |link| link.up())
    }

    pub fn set_down(&mut self, name: &str) -> Result<(), Error> {
        self.change(name, "take down link", |link| link.down())
    }

    /// Makes the link a port of `master`, or detaches it.
    pub fn set_master(&mut self, name: &str, master: Option<&str>) -> Result<(), Error> {
        let index = master.map(|master| self.index(master)).transpose()?.unwrap_or(0);
        self.change(name, "set the master of link", |link| link.controller(index))
    }

    /// The bridge of which the link is a port no longer learns addresses from it, and sends it every frame for an address
    /// that no other port has.
    pub fn stop_learning(&mut self, name: &str) -> Result<(), Error> {
        self.change(name, "turn off learning on the port", |link| {
            link.set_port_kind(InfoPortKind::Bridge)
                .set_port_data(InfoPortData::BridgePort(vec![InfoBridgePort::Learning(false)]))
        })
    }

    pub fn set_mac(&mut self, name: &str, mac: MacAddr) -> Result<(), Error> {
        self.change(name, "set the MAC address of link", |link| link.address(mac.0.to_vec()))
    }

    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), Error> {
        self.change(name, "set the MTU of link", |link| link.mtu(mtu))
    }

    /// Done if there is a link of the new name. Kernels before 6.2 rename links only while they are down; then it stays
    /// down, and loses its routes and IPv6 addresses.
    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<(), Error> {
        if self.find(new_name)?.is_some() {
            return Ok(());
        }
        let index = self.index(name)?;
        let message = LinkUnspec::new_with_index(index).name(new_name).build();
        match self.netlink.change(RouteNetlinkMessage::NewLink(message), 0) {
            Err(err) if err.is(Errno::BUSY) => {
                self.set_down(name)?;
                self.change(name, "rename link", |link| link.name(new_name))
            }
            other => other.map_err(failed("rename link", name)),
        }
    }

    pub fn add_address(&mut self, name: &str, address: IpNet) -> Result<(), Error> {
        let message = address_message(self.index(name)?, address);
        self.netlink
            .change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
            .map_err(|err| request("add an address to link", &format!("{name} ({address})"), err))
    }

    /// Sets exactly these addresses on the link. IPv6 link-local addresses belong to the kernel and stay.
    pub fn replace_addresses(&mut self, name: &str, wanted: &[IpNet]) -> Result<(), Error> {
        let index = self.index(name)?;
        let present: Vec<IpNet> = self.addresses()?.into_iter().filter(|(i, _)| *i == index).map(|(_, a)| a).collect();
        for address in present.iter().filter(|a| !wanted.contains(a) && !is_link_local_v6(a)) {
            let message = address_message(index, *address);
            match self.netlink.change(RouteNetlinkMessage::DelAddress(message), 0) {
                // A secondary address is removed with its primary one.
                Err(err) if err.is(Errno::ADDRNOTAVAIL) => {}
                other => {
                    other.map_err(|err| request("remove an address from link", &format!("{name} ({address})"), err))?
                }
            }
        }
        wanted.iter().filter(|a| !present.contains(a)).try_for_each(|address| self.add_address(name, *address))
    }

    /// Adds the route, or replaces the one with the same destination.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        let Route { destination, gateway, link } = route;
        let bad_route = |err: String| request("add route to", &destination.to_string(), io::Error::other(err).into());
        let mut message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(destination.network(), destination.prefix_len())
            .map_err(|err| bad_route(err.to_string()))?;
        match gateway {
            Some(gateway) => message = message.gateway(*gateway).map_err(|err| bad_route(err.to_string()))?,
            None => message = message.scope(RouteScope::Link),
        }
        if let Some(link) = link {
            message = message.output_interface(self.index(link)?);
        }
        self.netlink
            .change(RouteNetlinkMessage::NewRoute(message.build()), NLM_F_CREATE | NLM_F_REPLACE)
            .map_err(failed("add route to", &destination.to_string()))
    }

    fn create(&mut self, name: &str, kind: &str, message: LinkMessage) -> Result<(), Error> {
        match self.netlink.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL) {
            // For a veth pair EEXIST may also refer to its other end.
            Err(err) if err.is(Errno::EXIST) => match self.find(name)? {
                Some(existing) if kind_of(&existing).as_deref() == Some(kind) => Ok(()),
                Some(existing) => {
                    let found = kind_of(&existing).unwrap_or_else(|| "a physical link".to_string());
                    Err(mismatch(name, found, kind.to_string()))
                }
                None => Err(request("create link", name, err)),
            },
            other => other.map_err(failed("create link", name)),
        }
    }

    fn change(
        &mut self,
        name: &str,
        doing: &'static str,
        what: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), Error> {
        let message = what(LinkUnspec::new_with_index(self.index(name)?)).build();
        self.netlink.change(RouteNetlinkMessage::NewLink(message), 0).map_err(failed(doing, name))
    }

    fn index(&mut self, name: &str) -> Result<u32, Error> {
        let found = self.find(name)?.ok_or_else(|| Error::NoSuchLink { name: name.to_string() })?;
        Ok(found.header.index)
    }

    fn find(&mut self, name: &str) -> Result<Option<LinkMessage>, Error> {
        let get = RouteNetlinkMessage::GetLink(LinkUnspec::new_with_name(name).build());
        match self.netlink.get(get) {
            Ok(answer) => Ok(answer.into_iter().find_map(link_message)),
            Err(err) if err.is(Errno::NODEV) => Ok(None),
            Err(err) => Err(request("look up link", name, err)),
        }
    }

    /// All addresses, with the index of their link.
    fn addresses(&mut self) -> Result<Vec<(u32, IpNet)>, Error> {
        let get = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answer = self.netlink.dump(get).map_err(failed("list", "addresses"))?;
        Ok(answer.into_iter().filter_map(address).collect())
    }
}

fn failed<'a>(doing: &'static str, object: &'a str) -> impl FnOnce(KernelError) -> Error + 'a {
    move |err| request(doing, object, err)
}

fn request(doing: &'static str, object: &str, err: KernelError) -> Error {
    Error::Request { doing, object: object.to_string(), err }
}

fn mismatch(name: &str, found: String, wanted: String) -> Error {
    Error::Mismatch { name: name.to_string(), found, wanted }
}

fn is_link_local_v6(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(net) if net.addr().is_unicast_link_local())
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    match address {
        IpNet::V4(net) => AddressMessageBuilder::<std::net::Ipv4Addr>::new()
            .index(index)
            .address(net.addr(), net.prefix_len())
            .build(),
        IpNet::V6(net) => AddressMessageBuilder::<std::net::Ipv6Addr>::new()
            .index(index)
            .address(net.addr(), net.prefix_len())
            .build(),
    }
}

/// None for routes of other tables, to this machine itself, or that end somewhere.
fn route(message: RouteNetlinkMessage) -> Option<ObservedRoute> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let header = &message.header;
    if header.kind != RouteType::Unicast || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let (mut destination, mut gateway, mut link) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => destination = ip(to),
            RouteAttribute::Gateway(via) => gateway = ip(via),
            RouteAttribute::Oif(index) => link = Some(*index),
            _ => {}
        }
    }
    let any = match header.address_family {
        AddressFamily::Inet6 => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    };
    let destination = IpNet::new(destination.unwrap_or(any), header.destination_prefix_length).ok()?;
    Some(ObservedRoute { link: link?, destination, gateway })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn link_message(message: RouteNetlinkMessage) -> Option<LinkMessage> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

fn observed(message: LinkMessage, addresses: &[(u32, IpNet)]) -> Option<ObservedLink> {
    let index = message.header.index;
    let kind = kind_of(&message);
    let (mut name, mut mac, mut mtu, mut master) = (None, None, 0, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Address(bytes) => mac = bytes.try_into().ok().map(MacAddr),
            LinkAttribute::Mtu(value) => mtu = value,
            LinkAttribute::Controller(value) if value != 0 => master = Some(value),
            _ => {}
        }
    }
    Some(ObservedLink {
        index,
        name: name?,
        kind,
        mac,
        mtu,
        up: message.header.flags.contains(LinkFlags::Up),
        master,
        addresses: addresses.iter().filter(|(i, _)| *i == index).map(|(_, a)| *a).collect(),
    })
}

fn kind_of(message: &LinkMessage) -> Option<String> {
    infos(message).find_map(|info| match info {
        LinkInfo::Kind(InfoKind::Other(kind)) => Some(kind.clone()),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

pub(crate) fn infos(message: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    message
        .attributes
        .iter()
        .filter_map(|a| if let LinkAttribute::LinkInfo(infos) = a { Some(infos) } else { None })
        .flatten()
}

/// The local address: on a point-to-point link IFA_ADDRESS is the peer's, and IFA_LOCAL ours.
fn address(message: RouteNetlinkMessage) -> Option<(u32, IpNet)> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let local =
        message.attributes.iter().find_map(|a| if let AddressAttribute::Local(ip) = a { Some(*ip) } else { None });
    let other =
        message.attributes.iter().find_map(|a| if let AddressAttribute::Address(ip) = a { Some(*ip) } else { None });
    let net = IpNet::new(local.or(other)?, message.header.prefix_len).ok()?;
    Some((message.header.index, net))
}

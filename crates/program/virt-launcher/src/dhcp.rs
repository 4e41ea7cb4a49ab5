//! The DHCP server for one guest: one address, one answer.
//!
//! It listens on the bridge between the Pod's network and the guest's tap. On a bridged network others can be heard there,
//! so only the guest's MAC address is answered. There is one client, so no leases are kept: every request gets the
//! guest's address. Malformed requests are ignored. Only two options of a
//! request matter, so they are parsed here: a general decoder does more with untrusted bytes than needed (the one used
//! in the tests panics on some of them).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;

use launcher_contract::types::LeaseRoute;
use netplan::dhcp::DhcpConfig;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// More than an Ethernet frame carries.
const REQUEST_MAX: usize = 2048;
const REPLY_MIN: usize = 300;
/// Size of the fixed header including the magic cookie.
const HEADER: usize = 240;
/// Bytes of an option.
const OPTION_MAX: usize = 255;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

// Options, RFC 2132, RFC 3397 and RFC 3442.
const PAD: u8 = 0;
const SUBNET_MASK: u8 = 1;
const ROUTER: u8 = 3;
const NAME_SERVERS: u8 = 6;
const HOSTNAME: u8 = 12;
const DOMAIN_NAME: u8 = 15;
const MTU: u8 = 26;
const NTP_SERVERS: u8 = 42;
const LEASE_TIME: u8 = 51;
const MESSAGE_TYPE: u8 = 53;
const SERVER_IDENTIFIER: u8 = 54;
const TFTP_SERVER: u8 = 66;
const BOOT_FILE: u8 = 67;
const SEARCH_LIST: u8 = 119;
const CLASSLESS_ROUTES: u8 = 121;
const END: u8 = 255;

/// A bound server. Dropping its task closes the socket.
pub(crate) struct Server {
    socket: tokio::net::UdpSocket,
    config: DhcpConfig,
}

impl Server {
    /// Binds port 67 on the bridge only. Needs CAP_NET_BIND_SERVICE.
    pub(crate) fn bind(config: DhcpConfig) -> io::Result<Server> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::sockopt::set_socket_broadcast(&socket, true)?;
        bind_to_device(socket.as_raw_fd(), &config.bridge)?;
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVER_PORT)))?;
        let socket = tokio::net::UdpSocket::from_std(UdpSocket::from(socket))?;
        Ok(Server { socket, config })
    }

    /// Serves for ever.
    pub(crate) async fn serve(self) {
        let mut buffer = vec![0; REQUEST_MAX];
        loop {
            let length = match self.socket.recv_from(&mut buffer).await {
                Ok((length, _)) => length,
                Err(error) => {
                    tracing::warn!(%error, "cannot receive DHCP requests");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    continue;
                }
            };
            let Some((reply, to)) = answer(&self.config, &buffer[..length]) else { continue };
            if let Err(error) = self.socket.send_to(&reply, (to, CLIENT_PORT)).await {
                tracing::warn!(%error, %to, "cannot send a DHCP reply");
            }
        }
    }
}

fn bind_to_device(socket: i32, device: &str) -> io::Result<()> {
    let length = device.len() as libc::socklen_t;
    let value = device.as_ptr().cast();
    // SAFETY: pointer and length describe the device name, which the kernel only reads.
    let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, value, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The reply to a request and its destination; `None` if there is nothing to reply.
fn answer(config: &DhcpConfig, request: &[u8]) -> Option<(Vec<u8>, Ipv4Addr)> {
    let request = Request::parse(request)?;
    if config.client_mac.is_some_and(|mac| !request.hardware.starts_with(&mac.0)) {
        return None;
    }
    let kind = match request.kind {
        DISCOVER => OFFER,
        REQUEST if request.server.is_none_or(|server| server == config.server) => ACK,
        _ => return None,
    };
    let mut reply = request.reply_header(config);
    options(config, kind, &mut reply);
    // Pad to BOOTP's minimum size, below which some clients drop a reply.
    reply.resize(reply.len().max(REPLY_MIN), 0);
    // A client without an address receives broadcasts only.
    let renewing = !request.client.is_unspecified() && !request.broadcast();
    Some((reply, if renewing { config.client } else { Ipv4Addr::BROADCAST }))
}

/// The fields of a request that determine the reply or are echoed in it.
struct Request<'a> {
    /// Operation, hardware type and address length, hops.
    start: &'a [u8; 4],
    transaction: &'a [u8; 4],
    flags: &'a [u8; 2],
    client: Ipv4Addr,
    hardware: &'a [u8; 16],
    kind: u8,
    server: Option<Ipv4Addr>,
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, mut rest) = bytes.split_first_chunk::<HEADER>()?;
        let field = |range: Range<usize>| &header[range];
        if header[0] != BOOT_REQUEST || field(236..240) != MAGIC {
            return None;
        }
        let (mut kind, mut server) = (None, None);
        while let Some((&code, after)) = rest.split_first() {
            if code == PAD {
                rest = after;
                continue;
            }
            if code == END {
                break;
            }
            let (&length, after) = after.split_first()?;
            let (value, after) = after.split_at_checked(length.into())?;
            match (code, value) {
                (MESSAGE_TYPE, &[value]) => kind = Some(value),
                (SERVER_IDENTIFIER, &[a, b, c, d]) => server = Some(Ipv4Addr::new(a, b, c, d)),
                _ => {}
            }
            rest = after;
        }
        Some(Request {
            start: field(0..4).first_chunk()?,
            transaction: field(4..8).first_chunk()?,
            flags: field(10..12).first_chunk()?,
            client: Ipv4Addr::from(*field(12..16).first_chunk::<4>()?),
            hardware: field(28..44).first_chunk()?,
            kind: kind?,
            server,
        })
    }

    fn broadcast(&self) -> bool {
        self.flags[0] & 0x80 != 0
    }

    /// The fixed part of the reply, to which options are appended.
    fn reply_header(&self, config: &DhcpConfig) -> Vec<u8> {
        let [_, hardware_type, address_length, _] = *self.start;
        let mut out = vec![BOOT_REPLY, hardware_type, address_length, 0];
        out.extend(self.transaction);
        // The elapsed seconds are not echoed.
        out.extend([0, 0]);
        out.extend(self.flags);
        for address in [self.client, config.client, config.server, Ipv4Addr::UNSPECIFIED] {
            out.extend(address.octets());
        }
        out.extend(self.hardware);
        // Server name and boot file; the latter ends with a NUL.
        out.resize(108, 0);
        out.extend(config.boot_file.iter().flat_map(|file| file.bytes()).take(127));
        out.resize(236, 0);
        out.extend(MAGIC);
        out
    }
}

fn options(config: &DhcpConfig, kind: u8, out: &mut Vec<u8>) {
    let mut put = |code: u8, value: &[u8]| {
        // Longer values are truncated.
        let value = value.get(..OPTION_MAX).unwrap_or(value);
        if !value.is_empty() {
            out.extend([code, value.len() as u8]);
            out.extend(value);
        }
    };
    let addresses = |list: &[Ipv4Addr]| -> Vec<u8> { list.iter().flat_map(Ipv4Addr::octets).collect() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    let mask = u32::MAX.checked_shl(32 - u32::from(config.prefix_len.min(32))).unwrap_or(0);
    put(MESSAGE_TYPE, &[kind]);
    put(SERVER_IDENTIFIER, &config.server.octets());
    put(LEASE_TIME, &config.lease_seconds.to_be_bytes());
    put(SUBNET_MASK, &mask.to_be_bytes());
    put(ROUTER, &addresses(config.router.as_slice()));
    put(NAME_SERVERS, &addresses(&config.dns));
    put(HOSTNAME, config.hostname.as_bytes());
    put(DOMAIN_NAME, &text(&config.domain));
    put(MTU, &config.mtu.to_be_bytes());
    put(NTP_SERVERS, &addresses(&config.ntp));
    put(TFTP_SERVER, &text(&config.tftp_server));
    put(BOOT_FILE, &text(&config.boot_file));
    put(SEARCH_LIST, &search_list(&config.search));
    put(CLASSLESS_ROUTES, &classless_routes(&config.routes));
    for (code, value) in &config.private {
        put(*code, value.as_bytes());
    }
    out.push(END);
}

/// Each with the bytes of its destination that matter. Those that do not fit in an option are left out whole.
fn classless_routes(routes: &[LeaseRoute]) -> Vec<u8> {
    let mut out = Vec::new();
    for route in routes {
        let prefix_len = route.prefix_len.min(32);
        let mut encoded = vec![prefix_len];
        encoded.extend(route.destination.octets().iter().take(usize::from(prefix_len.div_ceil(8))));
        encoded.extend(route.gateway.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        if out.len() + encoded.len() <= OPTION_MAX {
            out.extend(encoded);
        }
    }
    out
}

/// Encodes domain names in DNS format without compression. The plan has validated label and total lengths.
fn search_list(domains: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for domain in domains {
        for label in domain.split('.').filter(|label| (1..=63).contains(&label.len())) {
            out.push(label.len() as u8);
            out.extend(label.as_bytes());
        }
        out.push(0);
    }
    out
}

#[cfg(test)]
mod tests {
    use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
    use dhcproto::{Decodable, Decoder, Encodable};
    use proptest::prelude::*;

    use super::*;

    fn config() -> DhcpConfig {
        DhcpConfig {
            bridge: "k6t-eth0".parse().unwrap(),
            server: Ipv4Addr::new(10, 0, 2, 1),
            client: Ipv4Addr::new(10, 0, 2, 2),
            prefix_len: 24,
            router: Some(Ipv4Addr::new(10, 0, 2, 1)),
            routes: vec![],
            client_mac: None,
            dns: vec![Ipv4Addr::new(10, 96, 0, 10)],
            search: vec!["default.svc.cluster.local".into(), "cluster.local".into()],
            domain: Some("default.svc.cluster.local".into()),
            mtu: 1450,
            hostname: "vm".into(),
            lease_seconds: 86_313_600,
            tftp_server: Some("tftp.example".into()),
            boot_file: Some("pxelinux.0".into()),
            ntp: vec![Ipv4Addr::new(1, 2, 3, 4)],
            private: vec![(240, "x".into())],
        }
    }

    fn request(kind: MessageType) -> Message {
        let mut message = Message::default();
        message.set_xid(7).set_chaddr(&[2, 0, 0, 0, 0, 1]).opts_mut().insert(DhcpOption::MessageType(kind));
        message
    }

    fn ask(message: &Message) -> Option<(Message, Ipv4Addr)> {
        ask_of(&config(), message)
    }

    fn ask_of(config: &DhcpConfig, message: &Message) -> Option<(Message, Ipv4Addr)> {
        let (bytes, to) = answer(config, &message.to_vec().unwrap())?;
        assert!(bytes.len() >= REPLY_MIN);
        Some((Message::decode(&mut Decoder::new(&bytes)).unwrap(), to))
    }

    #[test]
    fn discover_is_answered_with_the_guests_address_by_broadcast() {
        let (offer, to) = ask(&request(MessageType::Discover)).unwrap();
        assert_eq!(offer.opts().msg_type(), Some(MessageType::Offer));
        assert_eq!((offer.xid(), offer.yiaddr(), to), (7, config().client, Ipv4Addr::BROADCAST));
        assert_eq!(offer.chaddr(), [2, 0, 0, 0, 0, 1]);
        let get = |code| offer.opts().get(code).cloned();
        assert_eq!(get(OptionCode::SubnetMask), Some(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))));
        assert_eq!(get(OptionCode::InterfaceMtu), Some(DhcpOption::InterfaceMtu(1450)));
        assert_eq!(get(OptionCode::Hostname), Some(DhcpOption::Hostname("vm".into())));
        let Some(DhcpOption::DomainSearch(names)) = get(OptionCode::DomainSearch) else { panic!("no search list") };
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].to_string().trim_end_matches('.'), "default.svc.cluster.local");
        let private = UnknownOption::new(OptionCode::from(240), b"x".to_vec());
        assert_eq!(get(OptionCode::from(240)), Some(DhcpOption::Unknown(private)));
    }

    #[test]
    fn a_renewing_client_is_answered_at_its_address() {
        let mut renew = request(MessageType::Request);
        renew.set_ciaddr(config().client);
        let (ack, to) = ask(&renew).unwrap();
        assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
        assert_eq!(to, config().client);
        renew.set_flags(Flags::default().set_broadcast());
        assert_eq!(ask(&renew).unwrap().1, Ipv4Addr::BROADCAST);
    }

    #[test]
    fn on_a_bridged_network_only_the_guest_is_answered_and_told_of_its_routes() {
        let route = |destination: [u8; 4], prefix_len, gateway: Option<[u8; 4]>| LeaseRoute {
            destination: destination.into(),
            prefix_len,
            gateway: gateway.map(Ipv4Addr::from),
        };
        let config = DhcpConfig {
            router: None,
            routes: vec![
                route([10, 80, 0, 0], 15, Some([10, 79, 0, 9])),
                route([192, 0, 2, 0], 24, None),
                route([0, 0, 0, 0], 0, Some([10, 79, 0, 1])),
            ],
            client_mac: Some(netplan::MacAddr([2, 0, 0, 0, 0, 1])),
            ..config()
        };
        let (offer, _) = ask_of(&config, &request(MessageType::Discover)).unwrap();
        assert_eq!(offer.opts().get(OptionCode::Router), None);
        let Some(DhcpOption::ClasslessStaticRoute(routes)) = offer.opts().get(OptionCode::ClasslessStaticRoute) else {
            panic!("no routes")
        };
        let routes: Vec<String> = routes.iter().map(|(to, via)| format!("{to} {via}")).collect();
        assert_eq!(routes, ["10.80.0.0/15 10.79.0.9", "192.0.2.0/24 0.0.0.0", "0.0.0.0/0 10.79.0.1"]);
        let mut neighbour = request(MessageType::Discover);
        neighbour.set_chaddr(&[2, 0, 0, 0, 0, 2]);
        assert!(ask_of(&config, &neighbour).is_none());
    }

    #[test]
    fn more_routes_than_an_option_holds_are_left_out_whole() {
        let route = LeaseRoute { destination: Ipv4Addr::new(10, 1, 1, 0), prefix_len: 24, gateway: None };
        assert_eq!(classless_routes(&vec![route; 100]).len(), 248);
    }

    #[test]
    fn what_is_not_for_us_is_not_answered() {
        let mut other = request(MessageType::Request);
        other.opts_mut().insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 0, 2, 9)));
        assert!(ask(&other).is_none());
        for kind in [MessageType::Release, MessageType::Decline, MessageType::Offer, MessageType::Ack] {
            assert!(ask(&request(kind)).is_none(), "{kind:?}");
        }
        let mut reply = request(MessageType::Discover);
        reply.set_opcode(Opcode::BootReply);
        assert!(ask(&reply).is_none());
    }

    proptest! {
        #[test]
        fn no_packet_makes_the_server_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = answer(&config(), &bytes);
        }

        #[test]
        fn a_damaged_request_does_not_make_it_panic(at in 0usize..300, to: u8, cut in 0usize..300) {
            let mut bytes = request(MessageType::Discover).to_vec().unwrap();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = answer(&config(), &bytes);
            bytes.truncate(cut);
            let _ = answer(&config(), &bytes);
        }
    }
}

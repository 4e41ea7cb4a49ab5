//! The DHCP configuration of the guest, which is how it gets its address.

use std::net::{IpAddr, Ipv4Addr};

use api::v1::{DHCPOptions, VirtualMachineInstance};
use launcher_contract::types::{Lease, LeaseRoute};

use crate::binding::{Attached, Bound, attached, guest_mac};
use crate::{LinkName, MacAddr, PlanError, PodNet, bridge, cidr};

/// 999 days: the address never changes while the guest runs, so there is nothing to renew.
const LEASE_SECONDS: u32 = 999 * 24 * 60 * 60;
/// Used if the Pod has no name server of either family.
const FALLBACK_DNS: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
/// Used when the Pod has no search list.
const FALLBACK_SEARCH: &str = "cluster.local";
/// A DHCP option holds 255 bytes.
const MAX_SEARCH_BYTES: usize = 255;

/// One DHCP server: its interface, and its only lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpConfig {
    /// The link the server is bound to.
    pub bridge: LinkName,
    /// The server's own address.
    pub server: Ipv4Addr,
    /// The address that it leases.
    pub client: Ipv4Addr,
    pub prefix_len: u8,
    pub router: Option<Ipv4Addr>,
    /// Routes besides the one to the client's own network, the default route last. A client that is told of any ignores
    /// `router`.
    pub routes: Vec<LeaseRoute>,
    /// Who is answered; on a bridged network others can be heard, too.
    pub client_mac: Option<MacAddr>,
    pub dns: Vec<Ipv4Addr>,
    /// Fits one DHCP option when encoded without compression.
    pub search: Vec<String>,
    pub domain: Option<String>,
    pub mtu: u16,
    pub hostname: String,
    pub lease_seconds: u32,
    pub tftp_server: Option<String>,
    pub boot_file: Option<String>,
    pub ntp: Vec<Ipv4Addr>,
    /// Options 224 to 254 with their values.
    pub private: Vec<(u8, String)>,
}

/// The DHCP servers the launcher has to run, one per interface. Bridged interfaces have one if there is a lease.
pub fn config(vmi: &VirtualMachineInstance, pod: &PodNet, leases: &[Lease]) -> Result<Vec<DhcpConfig>, PlanError> {
    let mut servers = Vec::new();
    for interface in attached(vmi)? {
        let offer = match interface.bound {
            Bound::Masquerade(network) => {
                let net = cidr::ipv4(network, &interface.pod_field())?;
                Some(Offer {
                    server: net.gateway,
                    client: net.guest,
                    prefix_len: net.prefix_len,
                    router: Some(net.gateway),
                    routes: Vec::new(),
                    client_mac: None,
                })
            }
            Bound::Bridge => match leases.iter().find(|lease| lease.network == interface.spec.name) {
                Some(lease) => Some(of_lease(vmi, &interface, pod, lease)?),
                None => None,
            },
        };
        if let Some(offer) = offer {
            servers.push(one(vmi, &interface, pod, offer)?);
        }
    }
    Ok(servers)
}

/// The part that depends on the binding.
struct Offer {
    server: Ipv4Addr,
    client: Ipv4Addr,
    prefix_len: u8,
    router: Option<Ipv4Addr>,
    routes: Vec<LeaseRoute>,
    client_mac: Option<MacAddr>,
}

fn of_lease(
    vmi: &VirtualMachineInstance,
    interface: &Attached<'_>,
    pod: &PodNet,
    lease: &Lease,
) -> Result<Offer, PlanError> {
    let mut routes = lease.routes.clone();
    let is_default = |route: &LeaseRoute| route.prefix_len == 0;
    routes.sort_by_key(is_default);
    Ok(Offer {
        server: bridge::advertised(interface)?,
        client: lease.address,
        prefix_len: lease.prefix_len,
        router: routes.iter().find(|route| is_default(route)).and_then(|route| route.gateway),
        routes,
        client_mac: Some(guest_mac(vmi, interface, pod.link(interface)?)?),
    })
}

fn one(
    vmi: &VirtualMachineInstance,
    interface: &Attached<'_>,
    pod: &PodNet,
    offer: Offer,
) -> Result<DhcpConfig, PlanError> {
    let resolv_conf = ResolvConf::parse(&pod.resolv_conf);
    let domain = resolv_conf.longest_search().map(str::to_string);
    let subdomain = vmi.spec.subdomain.as_deref().unwrap_or_default();
    let no_options = DHCPOptions::default();
    let options = interface.spec.dhcp_options.as_ref().unwrap_or(&no_options);
    Ok(DhcpConfig {
        bridge: interface.bridge.clone(),
        server: offer.server,
        client: offer.client,
        prefix_len: offer.prefix_len,
        router: offer.router,
        routes: offer.routes,
        client_mac: offer.client_mac,
        dns: resolv_conf.dns(),
        search: resolv_conf.search_with(subdomain),
        domain,
        mtu: u16::try_from(pod.link(interface)?.mtu).unwrap_or(u16::MAX),
        hostname: pod.hostname.clone(),
        lease_seconds: LEASE_SECONDS,
        tftp_server: options.tftp_server_name.clone(),
        boot_file: options.boot_file_name.clone(),
        ntp: options.ntp_servers.iter().filter_map(|server| server.parse().ok()).collect(),
        private: private_options(options, &interface.field)?,
    })
}

fn private_options(options: &DHCPOptions, field: &str) -> Result<Vec<(u8, String)>, PlanError> {
    let options = options.private_options.iter().enumerate();
    options
        .map(|(index, option)| match u8::try_from(option.option) {
            Ok(number @ 224..=254) => Ok((number, option.value.clone())),
            _ => Err(PlanError::BadDhcpOption {
                field: format!("{field}.dhcpOptions.privateOptions[{index}].option"),
                value: option.option,
            }),
        })
        .collect()
}

/// The relevant lines of a `resolv.conf`. Malformed entries are skipped, as the resolver does.
#[derive(Debug, Default)]
struct ResolvConf {
    nameservers: Vec<IpAddr>,
    search: Vec<String>,
}

impl ResolvConf {
    fn parse(text: &str) -> Self {
        let mut parsed = ResolvConf::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    parsed.nameservers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok()))
                }
                // The last search line wins.
                Some("search") => parsed.search = words.filter_map(domain_name).collect(),
                _ => {}
            }
        }
        parsed
    }

    fn dns(&self) -> Vec<Ipv4Addr> {
        if self.nameservers.is_empty() {
            return vec![FALLBACK_DNS];
        }
        let is_v4 = |ip: &IpAddr| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None };
        self.nameservers.iter().filter_map(is_v4).collect()
    }

    /// In a cluster this is the namespace's own domain, `<namespace>.svc.<cluster domain>`.
    fn longest_search(&self) -> Option<&str> {
        // max_by_key prefers the last of equals, the resolver the first.
        self.search.iter().rev().map(String::as_str).max_by_key(|domain| domain.len())
    }

    /// The search list; guests of one subdomain find each other by their bare names.
    fn search_with(&self, subdomain: &str) -> Vec<String> {
        if self.search.is_empty() {
            return vec![FALLBACK_SEARCH.to_string()];
        }
        let own = self
            .longest_search()
            .filter(|longest| !subdomain.is_empty() && !longest.starts_with(&format!("{subdomain}.")))
            .map(|longest| format!("{subdomain}.{longest}"));
        let mut room = MAX_SEARCH_BYTES;
        let fits = |domain: &String| match room.checked_sub(domain.len() + 2) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        own.into_iter().chain(self.search.iter().cloned()).take_while(fits).collect()
    }
}

/// The name without a trailing dot, if it is valid in DNS.
fn domain_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    (name.len() <= 253 && name.split('.').all(label)).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(conf: &str, subdomain: &str) -> Vec<String> {
        ResolvConf::parse(conf).search_with(subdomain)
    }

    #[test]
    fn name_servers_of_the_pod_are_passed_on_without_ipv6_ones() {
        for (conf, expected) in [
            ("nameserver 10.96.0.10\nnameserver 1.1.1.1\n", vec!["10.96.0.10", "1.1.1.1"]),
            ("nameserver fd00::1\nnameserver 10.96.0.10", vec!["10.96.0.10"]),
            ("nameserver fd00::1", vec![]),
            ("", vec!["8.8.8.8"]),
            ("# nameserver 1.1.1.1\nnameserver\nnameserver ten\n", vec!["8.8.8.8"]),
        ] {
            let dns: Vec<String> = ResolvConf::parse(conf).dns().iter().map(ToString::to_string).collect();
            assert_eq!(dns, expected, "{conf:?}");
        }
    }

    #[test]
    fn the_last_search_line_counts_and_odd_domains_are_skipped() {
        assert_eq!(search("search a.b\nsearch c.d e.f.", ""), ["c.d", "e.f"]);
        assert_eq!(search("search . ok.example bad..name sp/ace", ""), ["ok.example"]);
        assert_eq!(search("search .", ""), ["cluster.local"]);
        assert_eq!(search("", "web"), ["cluster.local"]);
    }

    #[test]
    fn a_subdomain_is_searched_first_below_the_namespaces_domain() {
        let conf = "search ns1.svc.cluster.local svc.cluster.local cluster.local";
        assert_eq!(search(conf, "web")[0], "web.ns1.svc.cluster.local");
        assert_eq!(search(conf, "web").len(), 4);
        assert_eq!(search("search web.ns1.svc.cluster.local svc.cluster.local", "web")[0], "web.ns1.svc.cluster.local");
    }

    #[test]
    fn the_domain_is_the_longest_search_entry_and_the_first_of_equals() {
        assert_eq!(ResolvConf::parse("search b.cd a.bcd a.bce").longest_search(), Some("a.bcd"));
        assert_eq!(ResolvConf::parse("").longest_search(), None);
    }

    #[test]
    fn the_search_list_never_outgrows_a_dhcp_option() {
        let domain = format!("{}.example", "a".repeat(60));
        let conf = format!("search {}", [domain.as_str(); 10].join(" "));
        let list = search(&conf, "");
        let encoded: usize = list.iter().map(|d| d.len() + 2).sum();
        assert!(encoded <= MAX_SEARCH_BYTES && list.len() == 3, "{encoded} {}", list.len());
    }
}

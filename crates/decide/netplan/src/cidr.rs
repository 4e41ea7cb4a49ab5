//! The guest's side of a masqueraded network: gateway and guest are the first two hosts of a small private network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::v1::PodNetwork;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::PlanError;

const DEFAULT_V4: &str = "10.0.2.0/24";
const DEFAULT_V6: &str = "fd10:0:2::/120";

/// The bridge's address, which is also the guest's gateway, and the guest's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestNet<A> {
    pub(crate) gateway: A,
    pub(crate) guest: A,
    pub(crate) prefix_len: u8,
}

impl<A: Into<IpAddr>> GuestNet<A> {
    /// The gateway address with its prefix length, as assigned to the bridge.
    pub(crate) fn gateway_net(self) -> IpNet {
        IpNet::new(self.gateway.into(), self.prefix_len).expect("the length was that of a parsed network")
    }
}

pub(crate) fn ipv4(network: &PodNetwork, field: &str) -> Result<GuestNet<Ipv4Addr>, PlanError> {
    let field = format!("{field}.vmNetworkCIDR");
    let text = network.vm_network_cidr.as_deref().filter(|text| !text.is_empty()).unwrap_or(DEFAULT_V4);
    let net: Ipv4Net = parse(text, &field, DEFAULT_V4)?;
    big_enough(net.prefix_len(), 30, text, &field)?;
    let first = u32::from(net.network());
    Ok(GuestNet { gateway: (first + 1).into(), guest: (first + 2).into(), prefix_len: net.prefix_len() })
}

pub(crate) fn ipv6(network: &PodNetwork, field: &str) -> Result<GuestNet<Ipv6Addr>, PlanError> {
    let field = format!("{field}.vmIPv6NetworkCIDR");
    let text = network.vm_ipv6_network_cidr.as_deref().filter(|text| !text.is_empty()).unwrap_or(DEFAULT_V6);
    let net: Ipv6Net = parse(text, &field, DEFAULT_V6)?;
    big_enough(net.prefix_len(), 126, text, &field)?;
    let first = u128::from(net.network());
    Ok(GuestNet { gateway: (first + 1).into(), guest: (first + 2).into(), prefix_len: net.prefix_len() })
}

fn parse<N: std::str::FromStr>(text: &str, field: &str, example: &'static str) -> Result<N, PlanError> {
    text.parse().map_err(|_| PlanError::BadCidr { field: field.to_string(), value: text.to_string(), example })
}

fn big_enough(prefix_len: u8, longest_prefix: u8, text: &str, field: &str) -> Result<(), PlanError> {
    if prefix_len <= longest_prefix {
        return Ok(());
    }
    Err(PlanError::SmallCidr { field: field.to_string(), value: text.to_string(), longest_prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(cidr: Option<&str>) -> Result<String, String> {
        let network = PodNetwork { vm_network_cidr: cidr.map(str::to_string), ..PodNetwork::default() };
        let net = ipv4(&network, "f").map_err(|err| err.to_string())?;
        Ok(format!("{} {} {}", net.gateway, net.guest, net.gateway_net()))
    }

    #[test]
    fn gateway_and_guest_are_the_first_two_hosts() {
        for (cidr, expected) in [
            (None, "10.0.2.1 10.0.2.2 10.0.2.1/24"),
            (Some(""), "10.0.2.1 10.0.2.2 10.0.2.1/24"),
            (Some("10.11.12.0/24"), "10.11.12.1 10.11.12.2 10.11.12.1/24"),
            (Some("192.168.7.77/16"), "192.168.0.1 192.168.0.2 192.168.0.1/16"),
            (Some("10.0.0.252/30"), "10.0.0.253 10.0.0.254 10.0.0.253/30"),
            (Some("255.255.255.252/30"), "255.255.255.253 255.255.255.254 255.255.255.253/30"),
            (Some("0.0.0.0/0"), "0.0.0.1 0.0.0.2 0.0.0.1/0"),
        ] {
            assert_eq!(v4(cidr).as_deref(), Ok(expected), "{cidr:?}");
        }
    }

    #[test]
    fn networks_without_room_for_both_are_refused_with_the_field() {
        for cidr in ["10.0.2.0/31", "10.0.2.0/32"] {
            let err = v4(Some(cidr)).unwrap_err();
            assert_eq!(
                err,
                format!("f.vmNetworkCIDR: {cidr} is too small; a guest network needs at least four addresses (/30)")
            );
        }
        for cidr in ["10.0.2.0", "10.0.2.0/33", "fd10::/120", "ten", "10.0.2.0/24 ", "10.0.2/24"] {
            let err = v4(Some(cidr)).unwrap_err();
            assert!(err.starts_with("f.vmNetworkCIDR:") && err.contains("10.0.2.0/24"), "{err}");
        }
    }

    #[test]
    fn ipv6_follows_the_same_rule() {
        let v6 = |cidr: Option<&str>| {
            let network = PodNetwork { vm_ipv6_network_cidr: cidr.map(str::to_string), ..PodNetwork::default() };
            ipv6(&network, "f").map(|net| format!("{} {}", net.gateway_net(), net.guest)).map_err(|err| err.to_string())
        };
        assert_eq!(v6(None).as_deref(), Ok("fd10:0:2::1/120 fd10:0:2::2"));
        assert_eq!(v6(Some("fd00::4/126")).as_deref(), Ok("fd00::5/126 fd00::6"));
        assert!(v6(Some("fd00::4/127")).unwrap_err().contains("at least four addresses (/126)"));
        assert!(v6(Some("10.0.2.0/24")).is_err());
    }
}

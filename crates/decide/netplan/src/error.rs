use crate::{InvalidLinkName, InvalidMacAddr};

/// Why no plan can be made. Each error names the field of the VMI that causes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "{field}: {what} is not supported by this build; use masquerade on the Pod network and bridge on networks of Multus"
    )]
    Unsupported { field: String, what: String },
    #[error("{field}: there is no network named {name:?} in spec.networks")]
    NoSuchNetwork { field: String, name: String },
    #[error("the Pod has no link {link} for network {network:?}; did its CNI plugin run?")]
    NoPodLink { network: String, link: String },
    #[error("the Pod's link {link} has no global address, so network {network:?} cannot be masqueraded")]
    NoPodAddress { network: String, link: String },
    #[error("the Pod's link {link} for network {network:?} has no Ethernet address, so it cannot be bridged")]
    NoPodMac { network: String, link: String },
    #[error("{field}: a bridge is set up for the first 100 interfaces only")]
    TooManyInterfaces { field: String },
    #[error("{field}: {value:?} is not a network in CIDR notation such as {example}")]
    BadCidr { field: String, value: String, example: &'static str },
    #[error("{field}: {value} is too small; a guest network needs at least four addresses (/{longest_prefix})")]
    SmallCidr { field: String, value: String, longest_prefix: u8 },
    #[error("{field}: {value} is not a port number; use 1 to 65535")]
    BadPort { field: String, value: i32 },
    #[error("{field}: {value:?} is not a protocol that can be forwarded; use TCP or UDP")]
    BadProtocol { field: String, value: String },
    #[error("{field}: {value} is not a private DHCP option; use 224 to 254")]
    BadDhcpOption { field: String, value: i64 },
    #[error("{field} is not usable")]
    BadMac {
        field: String,
        #[source]
        err: InvalidMacAddr,
    },
    #[error("network {network:?} has no usable link name")]
    BadLinkName {
        network: String,
        #[source]
        err: InvalidLinkName,
    },
}

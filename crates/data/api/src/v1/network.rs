//! Interfaces and networks.

#![allow(clippy::disallowed_fields, reason = "derived code reads every member")]

use super::Empty;
use crate::kind::null_as_empty;
use serde::{Deserialize, Serialize};

/// A network interface of the guest; the network of the same name is its other end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Interface {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DHCPOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub port_ranges: Vec<PortRange>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub ports: Vec<Port>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// A network binding plugin registered in the cluster configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginBinding {
    pub name: String,
}

/// What the DHCP server for this interface adds to its answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DHCPOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub ntp_servers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub private_options: Vec<DHCPPrivateOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
}

/// One option of the private DHCP range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DHCPPrivateOptions {
    pub option: i64,
    pub value: String,
}

/// A range of ports forwarded to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PortRange {
    pub end: i32,
    pub protocol: String,
    pub start: i32,
}

/// A port forwarded to the guest; no port listed means all are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub port: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A network an interface can be plugged into; exactly one source is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Network {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim: Option<ResourceClaimNetworkSource>,
}

/// A network described by a NetworkAttachmentDefinition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MultusNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
    pub network_name: String,
}

/// The Pod's own network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodNetwork {
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
}

/// A network device that a resource claim of the Pod allocates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimNetworkSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
}

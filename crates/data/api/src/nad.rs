//! NetworkAttachmentDefinition, which defines a secondary network of Pods, and the annotations with which Pods request
//! such networks.
//!
//! We only read the definitions, and only the fields below: Multus and its plugins interpret the rest.

use serde::{Deserialize, Serialize};

use crate::kind::resource;

/// The group of the definitions.
pub const GROUP: &str = "k8s.cni.cncf.io";

/// On definitions: the extended resource that a Pod on the network must request.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// On Pods: the requested secondary networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The link of a virt-handler to the network for migrations, if there is one.
pub const MIGRATION_LINK: &str = "migration0";
/// On Pods: the networks they have joined, written by Multus.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// On Pods: the network that replaces the Pod network.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

resource! {
    /// A secondary network.
    NetworkAttachmentDefinition, "k8s.cni.cncf.io" / "v1" / "network-attachment-definitions",
    spec: NetworkAttachmentDefinitionSpec
}

/// The configuration of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkAttachmentDefinitionSpec {
    /// The configuration of the network plugin, as JSON in text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

//! Annotations that tell Multus and Istio about the Pod's networks.
//!
//! Inside the Pod a secondary network has a name of its own: `pod` and a hash of the network's name, or, in Pods of
//! older versions, `net` and a number. Both sides of a migration must agree on it.

use std::collections::BTreeMap;

use api::annotations;
use api::config::ClusterConfig;
use api::v1::{Binding, Interface, InterfaceBindingPlugin, Network, NetworkSource, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::traits::interfaces;

/// Read by Multus: the networks a Pod joins besides its own.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Written by Multus: the networks a Pod has joined.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// Read by Multus: the network a Pod joins instead of the cluster's.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// On network definitions: the device plugin resource that joining takes one of.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

/// The name of the primary network inside the Pod.
const PRIMARY: &str = "eth0";

/// How secondary networks are named inside a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By a hash of the network's name.
    Hashed,
    /// By its position, as in older versions.
    Ordinal,
}

impl Naming {
    /// The naming of a running Pod.
    pub fn of_pod(pod: &Pod) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            interface: String,
        }
        let text = machinery::meta::annotation(&pod.metadata, NETWORK_STATUS).unwrap_or_default();
        let statuses: Vec<Status> = serde_json::from_str(text).unwrap_or_default();
        let ordinal = |name: &str| {
            name.strip_prefix("net").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        if statuses.iter().any(|status| ordinal(&status.interface)) { Naming::Ordinal } else { Naming::Hashed }
    }

    /// Each network's name inside the Pod.
    pub fn names(self, networks: &[Network]) -> BTreeMap<String, String> {
        let secondary = networks.iter().filter(|network| network.source().is_secondary());
        let mut names: BTreeMap<String, String> = match self {
            Naming::Hashed => secondary.map(|network| (network.name.clone(), hashed(&network.name))).collect(),
            Naming::Ordinal => {
                secondary.enumerate().map(|(i, network)| (network.name.clone(), format!("net{}", i + 1))).collect()
            }
        };
        let primary = networks.iter().find(|network| network.source().is_primary());
        names.extend(primary.map(|network| (network.name.clone(), PRIMARY.to_owned())));
        names
    }
}

fn hashed(network: &str) -> String {
    let hash: String = Sha256::digest(network).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("pod{}", &hash[..11])
}

/// The annotations of a new launcher Pod.
pub(crate) fn annotations(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
) -> Result<BTreeMap<String, String>, Error> {
    let present: Vec<&Interface> =
        interfaces(vmi).iter().filter(|interface| interface.state.as_deref() != Some("absent")).collect();
    let attached: Vec<&Network> =
        vmi.spec.networks.iter().filter(|network| present.iter().any(|i| i.name == network.name)).collect();
    let names = Naming::Hashed.names(&vmi.spec.networks);
    let mut all = BTreeMap::new();
    let list = networks_annotation(vmi, &present, &attached, &names, config)?;
    all.extend(list.map(|list| (NETWORKS.to_owned(), list)));
    let default = vmi.spec.networks.iter().map(Network::source).find(|source| source.is_multus_default());
    let default = default.and_then(NetworkSource::multus).map(|multus| multus.network_name.clone());
    all.extend(default.map(|name| (DEFAULT_NETWORK.to_owned(), name)));
    if interfaces(vmi).iter().any(|interface| interface.bound_by() == Binding::Masquerade) {
        for key in [annotations::ISTIO_KUBEVIRT_INTERFACES, annotations::ISTIO_REROUTE_VIRTUAL_INTERFACES] {
            all.insert(key.to_owned(), "k6t-eth0".to_owned());
        }
    }
    Ok(all)
}

/// The networks of a migration target, named as in the source Pod.
pub(crate) fn ordinal_annotation(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
) -> Result<Option<String>, Error> {
    let networks: Vec<&Network> = vmi.spec.networks.iter().collect();
    let interfaces: Vec<&Interface> = interfaces(vmi).iter().collect();
    networks_annotation(vmi, &interfaces, &networks, &Naming::Ordinal.names(&vmi.spec.networks), config)
}

/// One element of the list that Multus reads.
#[derive(Serialize)]
struct Element<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    #[serde(rename = "cni-args", skip_serializing_if = "Option::is_none")]
    cni_args: Option<BTreeMap<&'static str, &'a str>>,
}

fn networks_annotation(
    vmi: &VirtualMachineInstance,
    interfaces: &[&Interface],
    networks: &[&Network],
    names: &BTreeMap<String, String>,
    config: &ClusterConfig,
) -> Result<Option<String>, Error> {
    let own = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let mut elements = vec![];
    for network in networks {
        let interface = interfaces.iter().find(|interface| interface.name == network.name);
        if let Some(multus) = network.source().multus().filter(|_| network.source().is_secondary()) {
            let (namespace, name) = definition(own, &multus.network_name);
            let mac = interface.and_then(|i| i.mac_address.as_deref()).filter(|mac| !mac.is_empty());
            let interface = names.get(&network.name).map(String::as_str);
            elements.push(Element { name, namespace, mac, interface, cni_args: None });
        }
        let Some(interface) = interface else { continue };
        let plugin = plugin(interface, config)?;
        let named = plugin.and_then(|plugin| plugin.network_attachment_definition.as_deref());
        if let Some(named) = named.filter(|name| !name.is_empty()) {
            let (namespace, name) = definition(own, named);
            let cni_args = Some(BTreeMap::from([("logicNetworkName", network.name.as_str())]));
            elements.push(Element { name, namespace, mac: None, interface: None, cni_args });
        }
    }
    let text = || serde_json::to_string(&elements).expect("names encode as JSON");
    Ok((!elements.is_empty()).then(text))
}

/// The namespace and name of a definition, which may have its namespace as a prefix.
pub(crate) fn definition<'a>(own: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((own, name))
}

/// The binding plugin of an interface; `None` if it has another binding.
pub(crate) fn plugin<'a>(
    interface: &Interface,
    config: &'a ClusterConfig,
) -> Result<Option<&'a InterfaceBindingPlugin>, Error> {
    let Some(binding) = interface.plugin() else { return Ok(None) };
    let unknown = || Error::UnknownBinding { interface: interface.name.clone(), plugin: binding.name.clone() };
    registered(&binding.name, config).map(Some).ok_or_else(unknown)
}

fn registered<'a>(name: &str, config: &'a ClusterConfig) -> Option<&'a InterfaceBindingPlugin> {
    config.configuration.network.as_ref()?.binding.get(name)
}

/// The plugins of all interfaces, without duplicates, sorted by name.
pub(crate) fn plugins<'a>(
    vmi: &'a VirtualMachineInstance,
    config: &'a ClusterConfig,
) -> Result<BTreeMap<&'a str, &'a InterfaceBindingPlugin>, Error> {
    let mut all = BTreeMap::new();
    for interface in interfaces(vmi) {
        if let (Some(binding), Some(plugin)) = (interface.plugin(), plugin(interface, config)?) {
            all.insert(binding.name.as_str(), plugin);
        }
    }
    Ok(all)
}

pub(crate) fn wants_device_info(plugin: &InterfaceBindingPlugin) -> bool {
    plugin.downward_api.as_deref() == Some("device-info")
}

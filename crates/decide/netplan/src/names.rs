//! Names of links, derived from the network's name so that virt-handler and the launcher agree without communicating.

use api::v1::{Network, VirtualMachineInstance};
use sha2::{Digest, Sha256};

use crate::{InvalidLinkName, LinkName};

const PRIMARY_POD_INTERFACE: &str = "eth0";
const PRIMARY_TAP: &str = "tap0";
const SECONDARY_PREFIX: &str = "pod";
const BRIDGE_PREFIX: &str = "k6t-";
const NIC_SUFFIX: &str = "-nic";
/// `pod` and these leave a name of 14 bytes; the bridge's prefix is one byte longer than `pod`.
const HASH_DIGITS: usize = 11;

/// The Pod's link for a network. The CNI plugin may have given the primary one another name, which the controller then
/// records in the status.
pub fn pod_interface(vmi: &VirtualMachineInstance, network: &Network) -> Result<LinkName, InvalidLinkName> {
    if !network.source().is_primary() {
        return LinkName::new(format!("{SECONDARY_PREFIX}{}", hash(&network.name)));
    }
    let reported = vmi.status.as_ref().and_then(|status| {
        let interface = status.interfaces.iter().find(|i| i.name.as_deref() == Some(&network.name))?;
        interface.pod_interface_name.clone().filter(|name| !name.is_empty())
    });
    LinkName::new(reported.unwrap_or_else(|| PRIMARY_POD_INTERFACE.to_string()))
}

/// The bridge between the Pod's link and the guest's tap device.
pub fn bridge(pod_interface: &LinkName) -> Result<LinkName, InvalidLinkName> {
    let rest = pod_interface.strip_prefix(SECONDARY_PREFIX).unwrap_or(pod_interface);
    LinkName::new(format!("{BRIDGE_PREFIX}{rest}"))
}

/// The Pod's link once a bridge has taken its place.
pub fn nic(pod_interface: &LinkName) -> Result<LinkName, InvalidLinkName> {
    let rest = pod_interface.strip_prefix(SECONDARY_PREFIX).unwrap_or(pod_interface);
    LinkName::new(format!("{rest}{NIC_SUFFIX}"))
}

/// The tap device QEMU opens.
pub fn tap(network: &Network, pod_interface: &LinkName) -> Result<LinkName, InvalidLinkName> {
    if network.source().is_primary() {
        return LinkName::new(PRIMARY_TAP);
    }
    LinkName::new(format!("tap{}", pod_interface.get(3..).unwrap_or_default()))
}

fn hash(network: &str) -> String {
    let digest = Sha256::digest(network.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex[..HASH_DIGITS].to_string()
}

#[cfg(test)]
mod tests {
    use api::v1::{MultusNetwork, PodNetwork, VirtualMachineInstanceNetworkInterface};

    use super::*;

    fn pod_network() -> Network {
        Network { name: "default".into(), pod: Some(PodNetwork::default()), ..Network::default() }
    }

    fn multus(name: &str, default: bool) -> Network {
        let multus = MultusNetwork { network_name: "ns/net".into(), default: Some(default) };
        Network { name: name.into(), multus: Some(multus), ..Network::default() }
    }

    #[test]
    fn the_primary_network_uses_the_familiar_names() {
        let vmi = VirtualMachineInstance::default();
        for network in [pod_network(), multus("blue", true)] {
            let pod = pod_interface(&vmi, &network).unwrap();
            assert_eq!(pod.as_str(), "eth0");
            assert_eq!(bridge(&pod).unwrap().as_str(), "k6t-eth0");
            assert_eq!(tap(&network, &pod).unwrap().as_str(), "tap0");
        }
    }

    #[test]
    fn a_reported_pod_interface_wins_on_the_primary_network() {
        let mut vmi = VirtualMachineInstance::default();
        vmi.status_mut().interfaces.push(VirtualMachineInstanceNetworkInterface {
            name: Some("default".into()),
            pod_interface_name: Some("ovn-udn1".into()),
            ..Default::default()
        });
        let pod = pod_interface(&vmi, &pod_network()).unwrap();
        assert_eq!(pod.as_str(), "ovn-udn1");
        assert_eq!(bridge(&pod).unwrap().as_str(), "k6t-ovn-udn1");
    }

    #[test]
    fn secondary_networks_are_named_by_a_hash_that_fits_a_link_name() {
        let network = multus("blue", false);
        let pod = pod_interface(&VirtualMachineInstance::default(), &network).unwrap();
        // sha256("blue") = 16477688c0e00699c6cfa4497a3612d7e83c532062b64b250fed8908128ed548
        assert_eq!(pod.as_str(), "pod16477688c0e");
        assert_eq!(bridge(&pod).unwrap().as_str(), "k6t-16477688c0e");
        assert_eq!(tap(&network, &pod).unwrap().as_str(), "tap16477688c0e");
        assert_eq!(nic(&pod).unwrap().as_str(), "16477688c0e-nic");
    }

    #[test]
    fn a_hostile_reported_name_is_refused() {
        let mut vmi = VirtualMachineInstance::default();
        vmi.status_mut().interfaces.push(VirtualMachineInstanceNetworkInterface {
            name: Some("default".into()),
            pod_interface_name: Some("x\" accept\n".into()),
            ..Default::default()
        });
        assert!(pod_interface(&vmi, &pod_network()).is_err());
    }
}

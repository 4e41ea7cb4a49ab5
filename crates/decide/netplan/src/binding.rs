//! The interfaces of a VMI, and the names and values that virt-handler and the launcher derive for them.

use api::v1::{Binding, Interface, Network, NetworkSource, PodNetwork, VirtualMachineInstance};

use crate::{LinkName, MacAddr, PlanError, names};

const ABSENT: &str = "absent";

/// The Pod's primary network, as seen by the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNet {
    pub mtu: u32,
    pub mac: MacAddr,
    /// Content of the Pod's `/etc/resolv.conf`.
    pub resolv_conf: String,
    pub hostname: String,
}

/// What the domain needs to know about an interface with a prepared tap device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainInterface {
    /// The interface's name in the VMI.
    pub name: String,
    pub tap: LinkName,
    pub mac: MacAddr,
    pub mtu: u32,
}

/// One entry per attached interface of the VMI. Must agree with [`crate::phase1`].
pub fn domain_interfaces(vmi: &VirtualMachineInstance, pod: &PodNet) -> Result<Vec<DomainInterface>, PlanError> {
    attached(vmi)?
        .into_iter()
        .map(|interface| {
            let mac = match interface.spec.mac_address.as_deref().filter(|mac| !mac.is_empty()) {
                Some(text) => text
                    .parse()
                    .map_err(|err| PlanError::BadMac { field: format!("{}.macAddress", interface.field), err })?,
                None => pod.mac,
            };
            Ok(DomainInterface { name: interface.spec.name.clone(), tap: interface.tap, mac, mtu: pod.mtu })
        })
        .collect()
}

/// An attached interface, with its network and its links.
#[derive(Debug)]
pub(crate) struct Attached<'a> {
    /// Path of the interface in the VMI, for messages.
    pub(crate) field: String,
    pub(crate) network_field: String,
    pub(crate) spec: &'a Interface,
    pub(crate) pod_network: &'a PodNetwork,
    pub(crate) pod_interface: LinkName,
    pub(crate) bridge: LinkName,
    pub(crate) tap: LinkName,
}

/// The VMI's attached interfaces, in order. Everything but masquerade on the Pod network is rejected: admission does so
/// too, but an object may be older than a rule.
pub(crate) fn attached(vmi: &VirtualMachineInstance) -> Result<Vec<Attached<'_>>, PlanError> {
    let devices = &vmi.spec.domain.devices;
    let unsupported =
        |field: &str, what: &str| PlanError::Unsupported { field: field.to_string(), what: what.to_string() };
    if devices.network_interface_multiqueue == Some(true) {
        return Err(unsupported("spec.domain.devices.networkInterfaceMultiqueue", "more than one queue"));
    }
    let annotation = vmi.metadata.annotations.as_ref().and_then(|all| all.get(ISTIO_INJECT));
    if annotation.is_some_and(|value| value == "true") {
        return Err(unsupported(&format!("metadata.annotations[{ISTIO_INJECT}]"), "a service mesh sidecar"));
    }
    let mut attached = Vec::new();
    for (index, spec) in devices.interfaces.iter().enumerate() {
        if spec.state.as_deref() == Some(ABSENT) {
            continue;
        }
        let field = format!("spec.domain.devices.interfaces[{index}]");
        let other = match spec.bound_by() {
            Binding::Masquerade => None,
            Binding::Bridge => Some("the bridge binding"),
            Binding::Sriov => Some("the sriov binding"),
            Binding::Passt | Binding::OldPasst => Some("the passt binding"),
            Binding::Slirp => Some("the slirp binding"),
            Binding::Macvtap => Some("the macvtap binding"),
            Binding::Plugin(_) => Some("a binding plugin"),
            Binding::Unset => Some("an interface without a binding"),
        };
        if let Some(binding) = other {
            return Err(unsupported(&field, binding));
        }
        if !spec.port_ranges.is_empty() {
            return Err(unsupported(&format!("{field}.portRanges"), "forwarding a range of ports"));
        }
        attached.push(attach(vmi, spec, field)?);
    }
    if attached.len() > 1 {
        let field = attached[1].field.clone();
        return Err(unsupported(&field, "a second interface on the Pod network"));
    }
    Ok(attached)
}

/// Requests a sidecar that intercepts the Pod's traffic, which needs additional rules.
const ISTIO_INJECT: &str = "sidecar.istio.io/inject";

fn attach<'a>(vmi: &'a VirtualMachineInstance, spec: &'a Interface, field: String) -> Result<Attached<'a>, PlanError> {
    let position = vmi.spec.networks.iter().position(|network| network.name == spec.name);
    let Some(index) = position else {
        return Err(PlanError::NoSuchNetwork { field: format!("{field}.name"), name: spec.name.clone() });
    };
    let network: &Network = &vmi.spec.networks[index];
    let network_field = format!("spec.networks[{index}]");
    let pod_network = match network.source() {
        NetworkSource::Pod(pod) => pod,
        NetworkSource::Multus(_) | NetworkSource::ResourceClaim(_) | NetworkSource::Unset => {
            let what = "a network other than the Pod's".to_string();
            return Err(PlanError::Unsupported { field: network_field, what });
        }
    };
    let bad_name = |err| PlanError::BadLinkName { network: network.name.clone(), err };
    let pod_interface = names::pod_interface(vmi, network).map_err(bad_name)?;
    Ok(Attached {
        bridge: names::bridge(&pod_interface).map_err(bad_name)?,
        tap: names::tap(network, &pod_interface).map_err(bad_name)?,
        network_field: format!("{network_field}.pod"),
        field,
        spec,
        pod_network,
        pod_interface,
    })
}

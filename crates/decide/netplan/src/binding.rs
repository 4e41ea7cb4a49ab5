//! The interfaces of a VMI, and the names and values that virt-handler and the launcher derive for them.

use std::collections::BTreeMap;

use api::v1::{Binding, Interface, Network, NetworkSource, PodNetwork, VirtualMachineInstance};

use crate::{LinkName, MacAddr, PlanError, names};

const ABSENT: &str = "absent";

/// The Pod's networks, as seen by the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNet {
    /// Those of [`pod_links`], by name.
    pub links: BTreeMap<LinkName, PodLink>,
    /// Content of the Pod's `/etc/resolv.conf`.
    pub resolv_conf: String,
    pub hostname: String,
}

/// A link in the Pod, as an unprivileged process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodLink {
    pub mtu: u32,
    pub mac: MacAddr,
}

impl PodNet {
    pub(crate) fn link(&self, interface: &Attached<'_>) -> Result<PodLink, PlanError> {
        let link = self.links.get(&interface.pod_interface).copied();
        link.ok_or_else(|| interface.no_pod_link())
    }
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

/// The Pod's links that the VMI's interfaces are attached to.
pub fn pod_links(vmi: &VirtualMachineInstance) -> Result<Vec<LinkName>, PlanError> {
    Ok(attached(vmi)?.into_iter().map(|interface| interface.pod_interface).collect())
}

/// One entry per attached interface of the VMI. Must agree with [`crate::phase1`].
pub fn domain_interfaces(vmi: &VirtualMachineInstance, pod: &PodNet) -> Result<Vec<DomainInterface>, PlanError> {
    attached(vmi)?
        .into_iter()
        .map(|interface| {
            let link = pod.link(&interface)?;
            let mac = guest_mac(vmi, &interface, link)?;
            Ok(DomainInterface { name: interface.spec.name.clone(), tap: interface.tap, mac, mtu: link.mtu })
        })
        .collect()
}

/// The MAC address of the guest's card: the one that the VMI names; else the one that the card has had at the source of
/// a migration, where the Pod's was another; else the Pod's.
pub(crate) fn guest_mac(
    vmi: &VirtualMachineInstance,
    interface: &Attached<'_>,
    pod: PodLink,
) -> Result<MacAddr, PlanError> {
    let given = |mac: &Option<String>| mac.clone().filter(|mac| !mac.is_empty());
    if let Some(text) = given(&interface.spec.mac_address) {
        let field = format!("{}.macAddress", interface.field);
        return text.parse().map_err(|err| PlanError::BadMac { field, err });
    }
    let reported = vmi.status.as_ref().and_then(|status| {
        let reported = status.interfaces.iter().find(|i| i.name.as_deref() == Some(&interface.spec.name))?;
        given(&reported.mac)
    });
    match reported {
        Some(text) => {
            let field = format!("status.interfaces[name={}].mac", interface.spec.name);
            text.parse().map_err(|err| PlanError::BadMac { field, err })
        }
        None => Ok(pod.mac),
    }
}

/// An attached interface, with its network and its links.
#[derive(Debug)]
pub(crate) struct Attached<'a> {
    /// Position among the VMI's interfaces, absent ones included: it stays the same when another one is unplugged.
    pub(crate) index: usize,
    /// Path of the interface in the VMI, for messages.
    pub(crate) field: String,
    pub(crate) network_field: String,
    pub(crate) spec: &'a Interface,
    pub(crate) bound: Bound<'a>,
    pub(crate) pod_interface: LinkName,
    pub(crate) bridge: LinkName,
    pub(crate) tap: LinkName,
}

/// How an interface is attached to its network.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound<'a> {
    Masquerade(&'a PodNetwork),
    /// To a secondary network of Multus.
    Bridge,
}

impl Attached<'_> {
    /// Path of the Pod network's settings in the VMI.
    pub(crate) fn pod_field(&self) -> String {
        format!("{}.pod", self.network_field)
    }

    pub(crate) fn no_pod_link(&self) -> PlanError {
        PlanError::NoPodLink { network: self.spec.name.clone(), link: self.pod_interface.to_string() }
    }
}

/// The VMI's attached interfaces, in order. Everything but masquerade on the Pod network and bridge on a secondary one is
/// rejected: admission does so too, but an object may be older than a rule.
pub(crate) fn attached(vmi: &VirtualMachineInstance) -> Result<Vec<Attached<'_>>, PlanError> {
    let devices = &vmi.spec.domain.devices;
    if devices.network_interface_multiqueue == Some(true) {
        return Err(unsupported("spec.domain.devices.networkInterfaceMultiqueue", "more than one queue"));
    }
    let annotation = vmi.metadata.annotations.as_ref().and_then(|all| all.get(ISTIO_INJECT));
    if annotation.is_some_and(|value| value == "true") {
        return Err(unsupported(&format!("metadata.annotations[{ISTIO_INJECT}]"), "a service mesh sidecar"));
    }
    let mut attached: Vec<Attached<'_>> = Vec::new();
    for (index, spec) in devices.interfaces.iter().enumerate() {
        if spec.state.as_deref() == Some(ABSENT) {
            continue;
        }
        let interface = attach(vmi, index, spec)?;
        if attached.iter().any(|other| other.spec.name == spec.name) {
            return Err(unsupported(&interface.field, "a second interface on the same network"));
        }
        let on_pod = |interface: &Attached<'_>| matches!(interface.bound, Bound::Masquerade(_));
        if on_pod(&interface) && attached.iter().any(on_pod) {
            return Err(unsupported(&interface.field, "a second interface on the Pod network"));
        }
        attached.push(interface);
    }
    Ok(attached)
}

/// Requests a sidecar that intercepts the Pod's traffic, which needs additional rules.
const ISTIO_INJECT: &str = "sidecar.istio.io/inject";

fn unsupported(field: &str, what: &str) -> PlanError {
    PlanError::Unsupported { field: field.to_string(), what: what.to_string() }
}

fn attach<'a>(vmi: &'a VirtualMachineInstance, index: usize, spec: &'a Interface) -> Result<Attached<'a>, PlanError> {
    let field = format!("spec.domain.devices.interfaces[{index}]");
    let binding = binding(spec, &field)?;
    if !spec.port_ranges.is_empty() {
        return Err(unsupported(&format!("{field}.portRanges"), "forwarding a range of ports"));
    }
    let position = vmi.spec.networks.iter().position(|network| network.name == spec.name);
    let Some(position) = position else {
        return Err(PlanError::NoSuchNetwork { field: format!("{field}.name"), name: spec.name.clone() });
    };
    let network: &Network = &vmi.spec.networks[position];
    let network_field = format!("spec.networks[{position}]");
    let bound = match (binding, network.source()) {
        (Supported::Masquerade, NetworkSource::Pod(pod)) => Bound::Masquerade(pod),
        (Supported::Bridge, NetworkSource::Multus(multus)) if multus.default != Some(true) => Bound::Bridge,
        (Supported::Bridge, NetworkSource::Pod(_)) => {
            return Err(unsupported(&field, "the bridge binding on the Pod network"));
        }
        (_, NetworkSource::Multus(multus)) if multus.default == Some(true) => {
            return Err(unsupported(&format!("{network_field}.multus.default"), "replacing the Pod network"));
        }
        (_, NetworkSource::Multus(_)) => {
            return Err(unsupported(&network_field, "a network other than the Pod's with the masquerade binding"));
        }
        (_, NetworkSource::ResourceClaim(_) | NetworkSource::Unset) => {
            return Err(unsupported(&network_field, "a network that is neither the Pod's nor one of Multus"));
        }
    };
    let bad_name = |err| PlanError::BadLinkName { network: network.name.clone(), err };
    let pod_interface = names::pod_interface(vmi, network).map_err(bad_name)?;
    Ok(Attached {
        index,
        bridge: names::bridge(&pod_interface).map_err(bad_name)?,
        tap: names::tap(network, &pod_interface).map_err(bad_name)?,
        network_field,
        field,
        spec,
        bound,
        pod_interface,
    })
}

/// The bindings that a plan is made for.
#[derive(Clone, Copy)]
enum Supported {
    Masquerade,
    Bridge,
}

fn binding(spec: &Interface, field: &str) -> Result<Supported, PlanError> {
    let other = match spec.bound_by() {
        Binding::Masquerade => return Ok(Supported::Masquerade),
        Binding::Bridge => return Ok(Supported::Bridge),
        Binding::Sriov => "the sriov binding",
        Binding::Passt | Binding::OldPasst => "the passt binding",
        Binding::Slirp => "the slirp binding",
        Binding::Macvtap => "the macvtap binding",
        Binding::Plugin(_) => "a binding plugin",
        Binding::Unset => "an interface without a binding",
    };
    Err(unsupported(field, other))
}

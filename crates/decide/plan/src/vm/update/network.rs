//! Interface hotplug, unplug and state changes.

use api::v1::{Binding, Interface, Network, VirtualMachineInstance, VirtualMachineInstanceSpec};

use super::{Draft, Obstacle};
use crate::vm::world::World;

const ABSENT: &str = "absent";

pub(super) fn sync(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    if w.instance().is_some() && draft.vmi.is_none() {
        return Ok(()); // it is being deleted, and the template applies to the next one
    }
    let template = &mut draft.spec.template.spec;
    if let Some(vmi) = &mut draft.vmi {
        plug(template, vmi);
        let reported: Vec<String> = reported(vmi).map(str::to_owned).collect();
        keep(&mut vmi.spec, |interface| !is_absent(interface) || reported.contains(&interface.name));
        lead(template, vmi);
    }
    let in_spec = |name: &str| draft.vmi.iter().any(|vmi| interface(&vmi.spec, name).is_some());
    let in_status = |name: &str| draft.vmi.iter().flat_map(reported).any(|reported| reported == name);
    keep(template, |interface| !is_absent(interface) || in_spec(&interface.name) || in_status(&interface.name));
    Ok(())
}

fn is_absent(interface: &Interface) -> bool {
    interface.state.as_deref() == Some(ABSENT)
}

fn interface<'a>(spec: &'a VirtualMachineInstanceSpec, name: &str) -> Option<&'a Interface> {
    spec.domain.devices.interfaces.iter().find(|interface| interface.name == name)
}

/// Whether an interface with this binding can be hot-plugged.
fn is_pluggable(binding: Binding<'_>) -> bool {
    match binding {
        Binding::Bridge | Binding::Sriov => true,
        Binding::Masquerade
        | Binding::Passt
        | Binding::Plugin(_)
        | Binding::Macvtap
        | Binding::OldPasst
        | Binding::Slirp
        | Binding::Unset => false,
    }
}

/// The interfaces reported in the guest's domain.
fn reported(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &str> {
    vmi.status.iter().flat_map(|status| &status.interfaces).filter_map(|interface| interface.name.as_deref())
}

/// Hot-plugs new interfaces where possible, and updates the state of existing ones.
fn plug(template: &VirtualMachineInstanceSpec, vmi: &mut VirtualMachineInstance) {
    let ordinal = has_ordinal_names(vmi);
    for wanted in &template.domain.devices.interfaces {
        let interfaces = &mut vmi.spec.domain.devices.interfaces;
        match interfaces.iter_mut().find(|interface| interface.name == wanted.name) {
            None => {
                let pluggable = is_pluggable(wanted.bound_by());
                let network = template.networks.iter().find(|network| network.name == wanted.name);
                if let Some(network) = network.filter(|_| pluggable && !is_absent(wanted)) {
                    interfaces.push(wanted.clone());
                    vmi.spec.networks.push(network.clone());
                }
            }
            // With ordinal names, removing an interface would rename all that follow.
            Some(current) if !(is_absent(current) || ordinal && is_absent(wanted)) => {
                current.state.clone_from(&wanted.state);
            }
            Some(_) => {}
        }
    }
}

/// The Pod's interfaces are called `net1`, `net2`, … as they were before names were derived from networks.
fn has_ordinal_names(vmi: &VirtualMachineInstance) -> bool {
    let is_ordinal = |name: &str| name.strip_prefix("net").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let interfaces = vmi.status.iter().flat_map(|status| &status.interfaces);
    interfaces.into_iter().filter_map(|interface| interface.pod_interface_name.as_deref()).any(is_ordinal)
}

/// Replaces a network if the guest can follow by migrating.
fn lead(template: &VirtualMachineInstanceSpec, vmi: &mut VirtualMachineInstance) {
    if !vmi.has_condition(api::conditions::LIVE_MIGRATABLE) {
        return;
    }
    for network in &mut vmi.spec.networks {
        let wanted = template.networks.iter().find(|wanted| wanted.name == network.name);
        let wanted = wanted.and_then(|wanted| wanted.source().multus());
        if let (Some(current), Some(wanted)) = (network.multus_mut(), wanted) {
            current.network_name.clone_from(&wanted.network_name);
        }
    }
}

/// Keeps some interfaces and their networks.
fn keep(spec: &mut VirtualMachineInstanceSpec, keeps: impl Fn(&Interface) -> bool) {
    let interfaces = &mut spec.domain.devices.interfaces;
    let gone: Vec<String> = interfaces.iter().filter(|one| !keeps(one)).map(|one| one.name.clone()).collect();
    if !gone.is_empty() {
        interfaces.retain(|interface| !gone.contains(&interface.name));
        spec.networks.retain(|network: &Network| !gone.contains(&network.name));
    }
}

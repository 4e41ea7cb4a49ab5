//! Networks and the interfaces plugged into them.

mod claims;
mod interface;

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{Binding, Network, NetworkSource, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};

use super::findings::{Findings, given};

const STATES: [&str; 3] = ["absent", "down", "up"];

/// Removed bindings. An existing VM keeps its binding until it is changed.
pub(super) fn discontinued(found: &mut Findings, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let field = devices.child("interfaces");
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        for name in interface.bindings().filter_map(Binding::discontinued) {
            let message = format!("the {name} binding was discontinued: use masquerade, bridge or a binding plugin");
            found.refuse(Cause::Invalid, &field.index(index).child(name), message);
        }
    }
}

pub(super) fn check(
    found: &mut Findings,
    field: &Path<'_>,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let networks = field.child("networks");
    let interfaces = devices.child("interfaces");
    sources(found, &networks, &spec.networks);
    states(found, &interfaces, spec);
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        interface::binding(found, &interfaces.index(index), interface, network_of(spec, &interface.name), config);
    }
    unique(found, &networks, spec.networks.iter().map(|network| network.name.as_str()));
    claims::check(found, &networks, &interfaces, spec, config);
    for (index, network) in spec.networks.iter().enumerate() {
        if !spec.domain.devices.interfaces.iter().any(|interface| interface.name == network.name) {
            found.required(&networks.index(index).child("name"), "no interface has this name");
        }
    }
    unique(found, &interfaces, spec.domain.devices.interfaces.iter().map(|interface| interface.name.as_str()));
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        let at = interfaces.index(index);
        let network = network_of(spec, &interface.name);
        if network.is_none() {
            found.invalid(&at.child("name"), interface.name.as_str(), "no network has this name");
        }
        interface::check(found, &at, interface, network, config);
    }
}

/// The network of this name; the last of several.
fn network_of<'a>(spec: &'a VirtualMachineInstanceSpec, name: &str) -> Option<&'a Network> {
    spec.networks.iter().rfind(|network| network.name == name)
}

fn unique<'a>(found: &mut Findings, field: &Path<'_>, names: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            found.duplicate(&field.index(index).child("name"), name);
        }
    }
}

/// Each network has exactly one type, and at most one of them is the primary one.
fn sources(found: &mut Findings, field: &Path<'_>, networks: &[Network]) {
    let pod = networks.iter().filter(|network| is_pod(network)).count();
    let default = networks.iter().filter(|network| is_multus_default(network)).count();
    if pod > 1 {
        found.duplicate(field, "more than one Pod network");
    }
    if default > 1 {
        found.refuse(Cause::Invalid, field, "at most one multus network can be the default");
    }
    if pod > 0 && default > 0 {
        found.refuse(Cause::Invalid, field, "a default multus network takes the place of the Pod network: remove one");
    }
    for (index, network) in networks.iter().enumerate() {
        if network.sources().count() != 1 {
            found.required(&field.index(index), "exactly one kind of network has to be set, such as pod");
        }
    }
    let unnamed = |network: &Network| {
        network.sources().filter_map(NetworkSource::multus).any(|multus| multus.network_name.is_empty())
    };
    if let Some(index) = networks.iter().position(unnamed) {
        let detail = "the NetworkAttachmentDefinition has to be named";
        found.required(&field.index(index).child("multus.networkName"), detail);
    }
}

fn is_pod(network: &Network) -> bool {
    network.sources().any(NetworkSource::is_pod)
}

fn is_multus_default(network: &Network) -> bool {
    network.sources().any(NetworkSource::is_multus_default)
}

fn states(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let default = spec.networks.iter().find(|network| !network.sources().any(NetworkSource::is_secondary));
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        let Some(state) = given(&interface.state) else { continue };
        let field = field.index(index);
        let at = field.child("state");
        match state {
            "up" | "down" if interface.has_binding(Binding::Sriov) => {
                found.invalid(&at, state, "the link of an SR-IOV device cannot be set");
            }
            "absent" => {
                if !interface.has_binding(Binding::Bridge) {
                    found.invalid(&at, state, "only an interface with the bridge binding can be absent");
                }
                if default.is_some_and(|default| default.name == interface.name) {
                    found.invalid(&at, state, "the interface of the default network cannot be absent");
                }
            }
            state if !STATES.contains(&state) => {
                found.invalid(&at, state, format_args!("must be one of {}", STATES.join(", ")));
            }
            _ => {}
        }
    }
}

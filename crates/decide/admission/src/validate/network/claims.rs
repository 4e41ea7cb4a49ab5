//! Networks whose device is allocated by a resource claim of the Pod.

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{Binding, Network, NetworkSource, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};

use super::super::findings::{Findings, given};
use super::super::needs_gate;

const GATE: &str = "NetworkDevicesWithDRA";

fn sources(spec: &VirtualMachineInstanceSpec) -> impl Iterator<Item = NetworkSource<'_>> {
    spec.networks.iter().flat_map(Network::sources)
}

fn takes_claimed_devices(binding: Binding<'_>) -> bool {
    match binding {
        Binding::Sriov | Binding::Plugin(_) => true,
        Binding::Bridge
        | Binding::Masquerade
        | Binding::Passt
        | Binding::Macvtap
        | Binding::OldPasst
        | Binding::Slirp
        | Binding::Unset => false,
    }
}

pub(super) fn check(
    found: &mut Findings,
    networks: &Path<'_>,
    interfaces: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    if !sources(spec).any(|source| source.resource_claim().is_some()) {
        return;
    }
    if !config.feature_gate(GATE) {
        return needs_gate(found, networks, GATE, config);
    }
    let mut pairs = BTreeSet::new();
    for (index, network) in spec.networks.iter().enumerate() {
        let Some(claim) = network.sources().find_map(NetworkSource::resource_claim) else { continue };
        let bound = spec.domain.devices.interfaces.iter().find(|interface| interface.name == network.name);
        if bound.is_some_and(|interface| !interface.bindings().any(takes_claimed_devices)) {
            let message = format!("network {:?} needs the sriov binding or a binding plugin", network.name);
            found.refuse(Cause::Invalid, interfaces, message);
        }
        let network = networks.index(index);
        let field = network.child("resourceClaim");
        for (name, value) in [("claimName", &claim.claim_name), ("requestName", &claim.request_name)] {
            if given(value).is_none() {
                found.required(&field.child(name), "the device has to be named by claim and request");
            }
        }
        let (Some(name), Some(request)) = (given(&claim.claim_name), given(&claim.request_name)) else { continue };
        if !spec.resource_claims.iter().any(|listed| listed.name == name) {
            let message = format!("spec.resourceClaims has no claim {name:?}");
            found.refuse(Cause::NotFound, &field.child("claimName"), message);
        }
        if !pairs.insert((name, request)) {
            found.duplicate(&network, &format!("{name}/{request}"));
        }
    }
    if sources(spec).any(|source| source.multus().is_some()) {
        let message = "multus networks and networks from resource claims exclude each other";
        found.refuse(Cause::Invalid, networks, message);
    }
}

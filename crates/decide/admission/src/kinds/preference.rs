//! Preferences, namespaced and cluster-scoped.

use api::instancetype::{PreferredCPUTopology as Topology, SpreadAcross, VirtualMachinePreferenceSpec};
use machinery::field::{FieldError, FieldPath};

use super::Found;

/// The default number of cores per socket, or threads per core.
const DEFAULT_RATIO: u32 = 2;

pub(super) fn rules(spec: &VirtualMachinePreferenceSpec) -> Found {
    let mut found = Found::default();
    let cpu = FieldPath::new("spec.cpu");
    let Some(topology) = spec.cpu.as_ref().and_then(|cpu| cpu.preferred_cpu_topology.as_ref()) else { return found };
    match topology {
        Topology::Other(unknown) => {
            let detail = "must be one of sockets, cores, threads, spread, any";
            found.causes.push(FieldError::invalid(cpu.child("preferredCPUTopology"), unknown.as_str(), detail));
        }
        Topology::Spread | Topology::PreferSpread => found.causes.extend(spread(&cpu.child("spreadOptions"), spec)),
        _ => {}
    }
    if let Some(current) = current_spelling(topology) {
        let old = topology.as_str();
        found.warnings.push(format!("spec.cpu.preferredCPUTopology {old} is deprecated, use {current} instead"));
    }
    found
}

fn spread(field: &FieldPath, spec: &VirtualMachinePreferenceSpec) -> Option<FieldError> {
    let options = spec.cpu.as_ref().and_then(|cpu| cpu.spread_options.clone()).unwrap_or_default();
    let shared_ratio = spec.prefer_spread_socket_to_core_ratio.filter(|&ratio| ratio != 0);
    let ratio = options.ratio.or(shared_ratio).unwrap_or(DEFAULT_RATIO);
    match options.across? {
        SpreadAcross::Other(unknown) => {
            let detail = "must be one of SocketsCores, CoresThreads, SocketsCoresThreads";
            Some(FieldError::invalid(field.child("across"), unknown, detail))
        }
        SpreadAcross::CoresThreads if ratio != 2 => {
            let detail = "a core has two threads: across CoresThreads the ratio must be 2";
            Some(FieldError::invalid(field.child("ratio"), ratio, detail))
        }
        _ => None,
    }
}

/// The current name of a deprecated topology.
fn current_spelling(topology: &Topology) -> Option<&'static str> {
    match topology {
        Topology::PreferSockets => Some("sockets"),
        Topology::PreferCores => Some("cores"),
        Topology::PreferThreads => Some("threads"),
        Topology::PreferSpread => Some("spread"),
        Topology::PreferAny => Some("any"),
        _ => None,
    }
}

//! Dependencies between Hyper-V enlightenments.

use api::v1::{CPUFeature, VirtualMachineInstanceSpec};

use crate::validate::{EVMCS_FLAG, HYPERV_DEPENDENCIES};

/// Enables the dependencies of the enabled enlightenments. What an owner has disabled stays off, and validation rejects
/// the one that needs it.
pub(super) fn dependencies(spec: &mut VirtualMachineInstanceSpec) {
    let Some(hyperv) = spec.domain.features.as_mut().and_then(|features| features.hyperv.as_mut()) else { return };
    for dependency in &HYPERV_DEPENDENCIES {
        if (dependency.enabled)(hyperv) != Some(true) {
            continue;
        }
        let needed = (dependency.needed)(hyperv).get_or_insert_default();
        if !*needed.enabled.get_or_insert(true) {
            return;
        }
    }
    if hyperv.evmcs.as_ref().is_some_and(|evmcs| evmcs.enabled != Some(false)) {
        require_flag(spec);
    }
}

fn require_flag(spec: &mut VirtualMachineInstanceSpec) {
    let (name, policy) = EVMCS_FLAG;
    let features = &mut spec.domain.cpu.get_or_insert_default().features;
    let policy = Some(policy.to_owned());
    match features.iter_mut().find(|feature| feature.name == name) {
        Some(feature) => feature.policy = policy,
        None => features.push(CPUFeature { name: name.to_owned(), policy }),
    }
}

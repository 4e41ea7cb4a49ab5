//! Hyper-V enlightenments and their dependencies.

use api::v1::{FeatureHyperv, FeatureState, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};

use super::findings::{Findings, text};

/// The CPU flag that eVMCS depends on, and its policy.
pub(crate) const EVMCS_FLAG: (&str, &str) = ("vmx", "require");

/// An enlightenment and its dependency.
pub(crate) struct Dependency {
    pub(crate) name: &'static str,
    pub(crate) enabled: fn(&FeatureHyperv) -> Option<bool>,
    pub(crate) needs: &'static str,
    pub(crate) needed: fn(&mut FeatureHyperv) -> &mut Option<FeatureState>,
    needed_enabled: fn(&FeatureHyperv) -> Option<bool>,
}

/// Leaves first, so that a dependency is set before another one needs it.
pub(crate) const DEPENDENCIES: [Dependency; 5] = [
    Dependency {
        name: "evmcs",
        enabled: |h| state(&h.evmcs),
        needs: "vapic",
        needed: |h| &mut h.vapic,
        needed_enabled: |h| state(&h.vapic),
    },
    Dependency {
        name: "ipi",
        enabled: |h| state(&h.ipi),
        needs: "vpindex",
        needed: |h| &mut h.vpindex,
        needed_enabled: |h| state(&h.vpindex),
    },
    Dependency {
        name: "tlbflush",
        enabled: |h| h.tlbflush.as_ref()?.enabled,
        needs: "vpindex",
        needed: |h| &mut h.vpindex,
        needed_enabled: |h| state(&h.vpindex),
    },
    Dependency {
        name: "synictimer",
        enabled: |h| h.synictimer.as_ref()?.enabled,
        needs: "synic",
        needed: |h| &mut h.synic,
        needed_enabled: |h| state(&h.synic),
    },
    Dependency {
        name: "synic",
        enabled: |h| state(&h.synic),
        needs: "vpindex",
        needed: |h| &mut h.vpindex,
        needed_enabled: |h| state(&h.vpindex),
    },
];

fn state(feature: &Option<FeatureState>) -> Option<bool> {
    feature.as_ref()?.enabled
}

pub(super) fn check(found: &mut Findings, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(features) = &spec.domain.features else { return };
    let Some(hyperv) = &features.hyperv else { return };
    let field = domain.child("features.hyperv");
    for dependency in &DEPENDENCIES {
        let on = (dependency.enabled)(hyperv) == Some(true);
        if on && (dependency.needed_enabled)(hyperv) != Some(true) {
            let message = format!("needs {}, which is turned off", dependency.needs);
            found.refuse(Cause::Invalid, &field.child(dependency.name), message);
        }
    }
    if hyperv.evmcs.as_ref().is_some_and(|evmcs| evmcs.enabled != Some(false)) {
        evmcs_flag(found, domain, spec);
    }
    if features.hyperv_passthrough.is_some() {
        found.refuse(Cause::Invalid, &field, "hyperv and hypervPassthrough exclude each other");
    }
}

fn evmcs_flag(found: &mut Findings, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let (flag, policy) = EVMCS_FLAG;
    let features = spec.domain.cpu.as_ref().map(|cpu| cpu.features.as_slice()).unwrap_or_default();
    let field = domain.child("cpu.features");
    if features.is_empty() {
        return found.required(&field, "evmcs needs the CPU flag vmx with the policy require");
    }
    for (index, feature) in features.iter().enumerate().filter(|(_, feature)| feature.name == flag) {
        let given = text(&feature.policy);
        if given != policy {
            found.invalid(&field.index(index).child("policy"), given, "must be require for evmcs");
        }
    }
}

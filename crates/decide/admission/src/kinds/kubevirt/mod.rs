//! The KubeVirt object, which configures the installation.
//!
//! KubeVirt only validates updates of it: its webhook is installed after the first object exists. Here it is validated
//! from the start, as an update from an empty object.

mod certificates;
mod configuration;
mod placement;
mod updates;

use api::config::{ClusterConfig, ConfigError};
use api::v1::{
    self, ComponentConfig, KubeVirt, KubeVirtPhase, KubeVirtSpec, NodePlacement, VirtualMachine,
    VirtualMachineInstance, VirtualMachineInstanceReplicaSet,
};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use super::{Case, Found, is_json};
use crate::decode::{encode, stored};
use crate::{Judged, Refusal, Wanted, unsupported};

/// Workloads that block an uninstallation, in the order in which they are looked up.
const WORKLOADS: [(&str, &str); 3] = [
    (VirtualMachineInstance::KIND, "Virtual Machine Instances"),
    (VirtualMachine::KIND, "Virtual Machines"),
    (VirtualMachineInstanceReplicaSet::KIND, "Virtual Machine Instance Replica Sets"),
];

/// Existing installations.
pub(super) fn wanted_to_create() -> Vec<Wanted> {
    vec![Wanted::all(v1::GROUP, KubeVirt::KIND, "")]
}

/// Existing workloads.
pub(super) fn wanted_to_delete(object: &Value) -> Vec<Wanted> {
    let kinds = WORKLOADS.iter().filter(|_| workloads_block(object));
    kinds.map(|(kind, _)| Wanted::all(v1::GROUP, kind, "")).collect()
}

pub(super) fn deletion(case: &Case<'_>) -> Result<Judged, Refusal> {
    let object = case.review.object;
    let is_there = |kind: &str| !case.world.all::<Value>(kind, "").is_empty();
    match WORKLOADS.iter().find(|(kind, _)| workloads_block(object) && is_there(kind)) {
        Some((_, workloads)) => Err(Refusal::BadRequest(format!(
            "Rejecting the uninstall request, since there are still {workloads} present: delete them, or set \
             spec.uninstallStrategy to RemoveWorkloads"
        ))),
        None => Ok(Judged::valid(object.clone())),
    }
}

/// Whether workloads block the deletion of the installation.
fn workloads_block(object: &Value) -> bool {
    let Some(kubevirt) = stored::<KubeVirt>(object) else { return false };
    let strategy = kubevirt.spec.uninstall_strategy.unwrap_or_default();
    let phase = kubevirt.status.and_then(|status| status.phase);
    !["", "RemoveWorkloads"].contains(&strategy.as_str()) && phase == Some(KubeVirtPhase::Deployed)
}

pub(super) fn rules(case: &Case<'_>, kubevirt: &mut KubeVirt, old: Option<&KubeVirt>) -> Result<Found, Refusal> {
    if old.is_none() && !case.world.all::<Value>(KubeVirt::KIND, "").is_empty() {
        let message = "Kubevirt is already created: a cluster has one, change it instead";
        return Err(Refusal::BadRequest(message.to_owned()));
    }
    let field = FieldPath::new("spec");
    let before = old.map(|old| old.spec.clone()).unwrap_or_default();
    let (spec, configuration_field) = (&kubevirt.spec, field.child("configuration"));
    let configuration = spec.configuration.clone().unwrap_or_default();
    let configuration_before = before.configuration.clone().unwrap_or_default();
    let mut causes = patches(&field.child("customizeComponents").child("patches"), spec);
    if let Some(strategy) = spec.certificate_rotate_strategy.as_ref().and_then(|one| one.self_signed.as_ref()) {
        causes.extend(certificates::check(&field.child("certificateRotateStrategy").child("selfSigned"), strategy));
    }
    causes.extend(configuration::check(&configuration_field, &configuration, &configuration_before));
    causes.extend(components(&field, spec, &before, case.config));
    let updates = spec.workload_update_strategy.clone().unwrap_or_default();
    let updates_field = field.child("workloadUpdateStrategy");
    causes.extend(updates::check(&updates_field, &updates));
    causes.extend(usable(kubevirt, &causes));
    let mut warnings = configuration::warnings(&configuration_field, &configuration, &configuration_before);
    warnings.extend(updates::warnings(&updates_field, &updates));
    warnings.extend(unsupported::kubevirt_spec(&field, &encode(&kubevirt.spec), case.shape));
    Ok(Found { causes, warnings, ..Found::default() })
}

fn patches(field: &FieldPath, spec: &KubeVirtSpec) -> Vec<FieldError> {
    let patches = spec.customize_components.iter().flat_map(|customize| &customize.patches).enumerate();
    let broken = patches.filter(|(_, patch)| !is_json(&patch.patch));
    let errors = broken.map(|(index, patch)| {
        let message = format!("patch {:?} is not valid JSON", patch.patch);
        FieldError::new(Cause::NotSupported, field.index(index).child("patch"), message)
    });
    errors.collect()
}

fn components(field: &FieldPath, new: &KubeVirtSpec, old: &KubeVirtSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, new, old) in [("infra", &new.infra, &old.infra), ("workloads", &new.workloads, &old.workloads)] {
        if let Some(placement) = placement_of(new).filter(|_| new != old) {
            errors.extend(placement::check(&field.child(name).child("nodePlacement"), placement, config));
        }
    }
    if new.infra.as_ref().is_some_and(|infra| infra.replicas == Some(0)) {
        let field = field.child("infra").child("replicas");
        errors.push(FieldError::invalid(field, 0, "infra replica count can't be 0"));
    }
    errors
}

fn placement_of(component: &Option<ComponentConfig>) -> Option<&NodePlacement> {
    component.as_ref()?.node_placement.as_ref()
}

/// Rejects a configuration that cannot be used, which would otherwise silently leave the previous one in force. `known`
/// are the errors already found.
fn usable(kubevirt: &KubeVirt, known: &[FieldError]) -> Option<FieldError> {
    match ClusterConfig::from_kubevirt(kubevirt).err()? {
        ConfigError::Invalid { field, value, remedy } => {
            let new = known.iter().all(|cause| cause.field.as_str() != field);
            new.then(|| FieldError::invalid(FieldPath::new(field), value, remedy))
        }
        error @ ConfigError::Undecodable(_) => {
            Some(FieldError::new(Cause::Invalid, FieldPath::new("spec.configuration"), error.to_string()))
        }
    }
}

//! Rules for a VM, and for the VMI created from its template.

use api::config::ClusterConfig;
use api::v1::{
    RunStrategy, VirtualMachine, VirtualMachineInstanceSpec, VirtualMachineInstanceTemplateSpec, VirtualMachineSpec,
};
use instancetype::{apply, check_requirements, check_spread, conflict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use super::lookup::Lookup;
use super::resolve::Resolved;
use super::{data_volumes, guards, volume_requests};
use crate::decode::encode;
use crate::{Operation, Refusal, Shape, defaults, unsupported, validate};

const RUN_STRATEGIES: [&str; 5] = ["Halted", "Manual", "Always", "RerunOnFailure", "Once"];

/// The feature gate of VMs that receive a guest.
const RECEIVERS: &str = "DecentralizedLiveMigration";

/// A VM to validate, with all inputs.
pub(super) struct Rules<'a> {
    pub(super) operation: Operation,
    pub(super) old: Option<&'a VirtualMachine>,
    pub(super) vm: &'a VirtualMachine,
    /// The VM as it will be stored.
    pub(super) object: &'a Value,
    pub(super) own: bool,
    pub(super) config: &'a ClusterConfig,
    pub(super) resolved: Resolved,
    pub(super) lookup: &'a Lookup<'a>,
    pub(super) now: &'a Time,
    pub(super) shape: Shape,
}

impl Rules<'_> {
    /// Unsupported fields, and errors. The rules use the template as a VMI created from it would be; the stored object
    /// keeps what its owner wrote.
    pub(super) fn check(&self) -> Result<(Vec<FieldError>, Vec<FieldError>), Refusal> {
        let mut spec = self.vm.spec.clone();
        let causes = self.causes(&mut spec)?;
        let template = &spec.template;
        let field = FieldPath::new("spec");
        let (of_spec, of_metadata) = (field.child("template.spec"), field.child("template.metadata"));
        let mut refused = unsupported::vm_spec(&field, &self.object["spec"]);
        refused.extend(unsupported::vmi_spec(&of_spec, &encode(&template.spec), self.shape));
        refused.extend(validate::limits(&of_spec, &template.spec));
        let is_running = self.vm.status.as_ref().is_some_and(|status| status.created == Some(true));
        if let Some(old) = self.old.filter(|_| is_running) {
            refused.extend(unsupported::networks::plugged(&of_spec, &old.spec.template.spec, &template.spec));
        }
        if let Some(metadata) = &template.metadata {
            refused.extend(unsupported::annotations(&of_metadata, metadata));
        }
        Ok((refused, causes))
    }

    /// The errors of the first stage that has any.
    fn causes(&self, spec: &mut VirtualMachineSpec) -> Result<Vec<FieldError>, Refusal> {
        let causes = self.expand(&mut spec.template);
        if !causes.is_empty() {
            return Ok(causes);
        }
        defaults::spec(&mut spec.template.spec, self.config)?;
        let spec = &*spec;
        let stages: [&dyn Fn() -> Vec<FieldError>; 6] = [
            &|| self.requirements(&spec.template.spec),
            &|| self.discontinued(&spec.template.spec),
            &|| check(&FieldPath::new("spec"), spec, self.own, self.config),
            &|| data_volumes::namespaces(self.vm, self.old),
            &|| guards::check(self.vm, self.old),
            &|| volume_requests::check(self.vm, self.config, self.lookup, self.now),
        ];
        Ok(stages.iter().map(|stage| stage()).find(|causes| !causes.is_empty()).unwrap_or_default())
    }

    /// Applies instance type and preference to the template.
    fn expand(&self, template: &mut VirtualMachineInstanceTemplateSpec) -> Vec<FieldError> {
        let (instancetype, preference) = (self.resolved.instancetype.as_ref(), self.resolved.preference.as_ref());
        if instancetype.is_none() && preference.is_none() {
            return Vec::new();
        }
        if let Some(error) = check_spread(instancetype, preference) {
            return vec![error];
        }
        let field = FieldPath::new("spec.template.spec");
        let metadata = template.metadata.get_or_insert_default();
        let conflicts = apply(&field, instancetype, preference, &mut template.spec, metadata);
        conflicts.into_iter().map(conflict).collect()
    }

    fn requirements(&self, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
        let Some(preference) = &self.resolved.preference else { return Vec::new() };
        let instancetype = self.resolved.instancetype.as_ref();
        check_requirements(&FieldPath::new("spec"), instancetype, preference, spec).into_iter().collect()
    }

    fn discontinued(&self, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
        if self.operation != Operation::Create {
            return Vec::new();
        }
        // KubeVirt omits the template from the paths.
        let found = validate::new_spec(&FieldPath::new("spec"), spec, self.config);
        let (gates, bindings): (Vec<_>, Vec<_>) = found.into_iter().partition(|e| e.cause == Cause::NotSupported);
        if gates.is_empty() { bindings } else { gates }
    }
}

/// Validates a VM's spec at `field`, with an expanded and defaulted template.
pub(crate) fn check(
    field: &FieldPath,
    spec: &VirtualMachineSpec,
    own: bool,
    config: &ClusterConfig,
) -> Vec<FieldError> {
    let template = &spec.template;
    let mut found = Vec::new();
    if let Some(metadata) = &template.metadata {
        found.extend(validate::metadata(&field.child("template.metadata"), metadata, own, config));
    }
    found.extend(validate::spec(&field.child("template.spec"), &template.spec, config));
    found.extend(data_volumes::check(field, spec));
    found.extend(run_strategy(field, spec, config));
    if config.is_live_update() {
        let growth = room_to_grow(&field.child("template.spec.domain"), &template.spec);
        // The rules for a VMI check sockets as well.
        let new = |error: &FieldError| !found.iter().any(|other| same(other, error));
        let growth: Vec<FieldError> = growth.into_iter().filter(new).collect();
        found.extend(growth);
    }
    found
}

fn same(one: &FieldError, other: &FieldError) -> bool {
    (one.cause, &one.field) == (other.cause, &other.field)
}

fn run_strategy(field: &FieldPath, spec: &VirtualMachineSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let (running, strategy) = (field.child("running"), field.child("runStrategy"));
    let mut found = Vec::new();
    match (spec.running, &spec.run_strategy) {
        (Some(value), Some(_)) => {
            let detail = "running and runStrategy are mutually exclusive; remove running, which is deprecated";
            found.push(FieldError::invalid(running, value, detail));
        }
        (None, None) => {
            let message = format!("runStrategy must be set to one of {}", RUN_STRATEGIES.join(", "));
            found.push(FieldError::new(Cause::Invalid, running, message));
        }
        _ => {}
    }
    match &spec.run_strategy {
        Some(RunStrategy::WaitAsReceiver) if !config.feature_gate(RECEIVERS) => {
            let detail = format!("the feature gate {RECEIVERS} is not enabled in the cluster");
            found.push(FieldError::invalid(strategy, RunStrategy::WaitAsReceiver.as_str(), detail));
        }
        Some(given) if *given != RunStrategy::WaitAsReceiver && !RUN_STRATEGIES.contains(&given.as_str()) => {
            let detail = format!("must be one of {}", RUN_STRATEGIES.join(", "));
            found.push(FieldError::invalid(strategy, given.as_str(), detail));
        }
        _ => {}
    }
    found
}

/// A VM with explicit maximum sizes must support hotplug.
fn room_to_grow(domain: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    let cpu = spec.domain.cpu.clone().unwrap_or_default();
    let (sockets, most) = (cpu.sockets.unwrap_or_default(), cpu.max_sockets.unwrap_or_default());
    if most != 0 && sockets > most {
        let detail = format!("must not be more than the {most} of maxSockets");
        found.push(FieldError::invalid(domain.child("cpu.sockets"), sockets, detail));
    }
    let most = spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref());
    if most.is_some()
        && let Err(why) = defaults::memory_hotplug(spec, most)
    {
        found.push(FieldError::new(Cause::Invalid, domain.child("memory.guest"), why));
    }
    found
}

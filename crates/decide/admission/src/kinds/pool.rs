//! Pools of VMs.

use api::pool::{VirtualMachinePool, VirtualMachinePoolSpec};
use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use super::{Case, Found, selects};
use crate::{Judged, Operation, Refusal, accounts, defaults, validate, vm};

/// Validates a pool in the version that its rules are written for. A server that serves others converts first.
pub(super) fn judge(case: &Case<'_>) -> Result<Judged, Refusal> {
    let (spoken, expected) = (case.review.version, VirtualMachinePool::VERSION);
    if spoken != expected && case.review.operation != Operation::Delete {
        let remedy = VirtualMachinePool::API_VERSION;
        let message = format!("expect resource version {expected}, but got {spoken}: use {remedy}");
        return Err(Refusal::BadRequest(message));
    }
    case.judge_spec(rules)
}

fn rules(case: &Case<'_>, pool: &mut VirtualMachinePool, old: Option<&VirtualMachinePool>) -> Result<Found, Refusal> {
    let field = FieldPath::new("spec");
    let spec = &pool.spec;
    let template = &spec.virtual_machine_template;
    let machine_field = field.child("virtualMachineTemplate").child("spec");
    if case.review.object.pointer("/spec/virtualMachineTemplate/spec/template").is_none_or(Value::is_null) {
        let field = machine_field.child("template");
        return Ok(vec![FieldError::required(field, "a virtual machine needs a template for its instance")].into());
    }
    // Validation uses the VMI that would be created from it; the stored object keeps what its owner wrote.
    let mut machine = template.spec.clone();
    defaults::spec(&mut machine.template.spec, case.config)?;
    let own = accounts::is_own(case.review.user, case.config);
    let mut causes = vm::spec_rules(&machine_field, &machine, own, case.config);
    causes.extend(selects(&field.child("selector"), &spec.selector, template.metadata.as_ref()));
    causes.extend(max_unavailable(&field.child("maxUnavailable"), spec));
    causes.extend(strategies(&field, spec));
    match old {
        Some(old) if old.spec.selector != spec.selector => {
            let message = "selector is immutable after creation";
            causes.push(FieldError::new(Cause::Invalid, field.child("selector"), message));
        }
        Some(_) => {}
        None => {
            let field = machine_field.child("template").child("spec");
            causes.extend(validate::new_spec(&field, &machine.template.spec, case.config));
        }
    }
    Ok(Found { causes, ..Found::default() })
}

fn max_unavailable(field: &FieldPath, spec: &VirtualMachinePoolSpec) -> Option<FieldError> {
    match spec.max_unavailable.as_ref()? {
        IntOrString::Int(number) if *number > 0 => None,
        IntOrString::Int(number) => Some(FieldError::invalid(field.clone(), *number, "must be greater than 0")),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok());
            let detail = "must be a percentage from 1% to 100%, or a number";
            let fine = percent.is_some_and(|percent| (1..=100).contains(&percent));
            (!fine).then(|| FieldError::invalid(field.clone(), text.as_str(), detail))
        }
    }
}

fn strategies(field: &FieldPath, spec: &VirtualMachinePoolSpec) -> Vec<FieldError> {
    let update = spec.update_strategy.clone().unwrap_or_default();
    let update = [update.unmanaged.is_some(), update.opportunistic.is_some(), update.proactive.is_some()];
    let scale_in = spec.scale_in_strategy.clone().unwrap_or_default();
    let scale_in = [scale_in.unmanaged.is_some(), scale_in.opportunistic.is_some(), scale_in.proactive.is_some()];
    let chosen = [("updateStrategy", update), ("scaleInStrategy", scale_in)];
    let several = chosen.into_iter().filter(|(_, set)| set.iter().filter(|set| **set).count() > 1);
    let message = "only one of unmanaged, opportunistic and proactive can be set";
    several.map(|(name, _)| FieldError::new(Cause::Invalid, field.child(name), message)).collect()
}

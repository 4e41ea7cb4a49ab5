//! Virtual machines.

use api::config::ClusterConfig;
use api::v1::{RunStrategy, VirtualMachine};
use machinery::field::{FieldError, FieldPath};
use machinery::meta;
use serde_json::Value;

use crate::decode::{decode, encode, stored};
use crate::{Judged, Refusal, Request, Wanted, World, accounts, defaults, unsupported, validate, vmi};

const KIND: &str = "VirtualMachine";
const RUN_STRATEGIES: [&str; 5] = ["Halted", "Manual", "Always", "RerunOnFailure", "Once"];

/// Which other objects the judgement looks at.
pub(crate) fn wanted(_request: &Request<'_>, _world: &World) -> Vec<Wanted> {
    Vec::new()
}

pub(crate) fn judge(request: &Request<'_>, config: &ClusterConfig, _world: &World) -> Result<Judged, Refusal> {
    let own = accounts::is_own(request.user, config);
    let mut vm: VirtualMachine = decode(KIND, request.object, own)?;
    if request.subresource == "status" {
        return Ok(status(&vm));
    }
    if meta::is_deleting(&vm.metadata) {
        // Nothing but finalizers changes any more, and a rule must not keep an object from going.
        return Ok(Judged::valid(encode(&vm)));
    }
    if request.object.pointer("/spec/template").is_none_or(Value::is_null) {
        let field = FieldPath::new("spec.template");
        return Err(vec![FieldError::required(field, "a virtual machine needs a template for its instance")].into());
    }
    defaults::vm(&mut vm, request.operation, config);
    // What is stored was judged when it was written. A rule or a configuration that came later must not keep anybody,
    // least of all the controllers, from changing a label or a finalizer.
    let judged = request.old.and_then(stored::<VirtualMachine>).is_some_and(|old| old.spec == vm.spec);
    let (unsupported, causes) = if judged { Default::default() } else { rules(&vm, own, config) };
    let mut warnings = vmi::warnings(&vm.spec.template.spec, config);
    if vm.spec.running.is_some() {
        warnings.push("spec.running is deprecated, please use spec.runStrategy instead.".to_owned());
    }
    Ok(Judged { object: encode(&vm), warnings, causes, unsupported })
}

/// What this build does not honour, and what is wrong. The rules see the template as an instance made from it would be;
/// what is stored keeps what its owner wrote.
fn rules(vm: &VirtualMachine, own: bool, config: &ClusterConfig) -> (Vec<FieldError>, Vec<FieldError>) {
    let field = FieldPath::new("spec");
    let template = field.child("template");
    let mut spec = vm.spec.template.spec.clone();
    defaults::spec(&mut spec, config);
    let mut refused = unsupported::vm_spec(&field, &encode(&vm.spec));
    refused.extend(unsupported::vmi_spec(&template.child("spec"), &encode(&spec)));
    let mut rules: Vec<FieldError> = run_strategy(&field, vm).into_iter().collect();
    if let Some(metadata) = &vm.spec.template.metadata {
        refused.extend(unsupported::annotations(&template.child("metadata"), metadata));
        if !own {
            rules.extend(validate::reserved_labels(&template.child("metadata"), metadata));
        }
    }
    rules.extend(validate::spec(&template.child("spec"), &spec, config));
    (refused, rules)
}

fn run_strategy(field: &FieldPath, vm: &VirtualMachine) -> Option<FieldError> {
    let strategy = field.child("runStrategy");
    match (&vm.spec.running, &vm.spec.run_strategy) {
        (Some(running), Some(_)) => {
            let detail = "running and runStrategy are mutually exclusive; note that running is deprecated";
            Some(FieldError::invalid(field.child("running"), *running, detail))
        }
        (None, None) => {
            let detail = format!("must be set to one of {}", RUN_STRATEGIES.join(", "));
            Some(FieldError::invalid(strategy, "", detail))
        }
        // Refused with the fields that are not supported.
        (None, Some(RunStrategy::WaitAsReceiver)) => None,
        (None, Some(given)) if !RUN_STRATEGIES.contains(&given.as_str()) => {
            let detail = format!("must be one of {}", RUN_STRATEGIES.join(", "));
            Some(FieldError::invalid(strategy, given.as_str(), detail))
        }
        _ => None,
    }
}

/// The status is the controller's, and what it asks for must be something that exists.
fn status(vm: &VirtualMachine) -> Judged {
    let requests = vm.status.as_ref().map(|status| status.volume_requests.as_slice()).unwrap_or_default();
    let mut judged = Judged::valid(encode(vm));
    if !requests.is_empty() {
        let field = FieldPath::new("status.volumeRequests");
        judged.unsupported.push(unsupported::refusal(field, "plugging volumes into a running guest is"));
    }
    judged
}

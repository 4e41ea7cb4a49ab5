//! VMs.
//!
//! ```text
//! matchers ─► what other objects decide ─► identity and platform ─► rules for the machine as it will run ─► guards
//! ```
//!
//! Errors in one stage hide the later ones: after a conflict with the instance type, further errors would be about a VM
//! that nobody requested.

mod data_volumes;
mod guards;
mod infer;
mod lookup;
mod matchers;
mod resolve;
mod rules;
mod volume_requests;

use api::config::ClusterConfig;
use api::v1::VirtualMachine;
use machinery::field::FieldError;
use machinery::meta;

use crate::decode::{decode, encode, stored};
use crate::{Judged, Operation, Refusal, Review, Shape, Wanted, World, accounts, defaults};
use lookup::Lookup;
use rules::Rules;
pub(crate) use rules::check as spec_rules;

const KIND: &str = "VirtualMachine";

/// Fields that make validation look up other objects.
const REFERENCES: [&str; 4] =
    ["/spec/instancetype", "/spec/preference", "/spec/dataVolumeTemplates", "/status/volumeRequests"];

/// The other objects that validation needs: it runs once with what is known, and records its lookups.
pub(crate) fn wanted(review: &Review<'_>, world: &World) -> Vec<Wanted> {
    let refers = |pointer: &&str| review.object.pointer(pointer).is_some_and(|field| !field.is_null());
    if review.operation == Operation::Delete || !REFERENCES.iter().any(refers) {
        return Vec::new();
    }
    // An object that cannot be decoded is rejected without any lookups.
    let Ok(mut vm) = decode::<VirtualMachine>(KIND, review.object, true) else { return Vec::new() };
    let lookup = Lookup::new(world);
    if review.subresource.is_empty() {
        // An error ends the lookups for now; it may be about an object that is not fetched yet.
        let _ = resolve::resolve(&mut vm, &lookup);
    }
    volume_requests::instance(&vm, &lookup);
    lookup.into_asked()
}

pub(crate) fn judge(
    review: &Review<'_>,
    shape: Shape,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    let own = accounts::is_own(review.user, config);
    if review.subresource == "status" {
        return status(review, own, config, &Lookup::new(world));
    }
    let mut vm: VirtualMachine = decode(KIND, review.object, own)?;
    if review.operation == Operation::Delete || meta::is_deleting(&vm.metadata) {
        // Only finalizers change any more, and validation must not block the deletion of an object.
        return Ok(Judged::valid(encode(&vm)));
    }
    let old = review.old.and_then(stored::<VirtualMachine>);
    let lookup = Lookup::new(world);
    matchers::check(&vm, old.as_ref())?;
    let resolved = resolve::resolve(&mut vm, &lookup)?;
    defaults::vm(&mut vm, review.operation, config);
    // The stored spec was validated when it was written. A newer rule or configuration must not prevent anybody, least
    // of all the controllers, from changing a label or a finalizer.
    let judged = old.as_ref().is_some_and(|old| old.spec == vm.spec);
    let object = encode(&vm);
    let (unsupported, causes) = if judged {
        Default::default()
    } else {
        let Review { operation, now, .. } = review;
        let (operation, old) = (*operation, old.as_ref());
        Rules { operation, old, vm: &vm, object: &object, own, config, resolved, lookup: &lookup, now, shape }
            .check()?
    };
    let mut warnings = Vec::new();
    if vm.spec.running.is_some() {
        warnings.push("spec.running is deprecated, please use spec.runStrategy instead.".to_owned());
    }
    Ok(Judged { object, warnings, causes, unsupported })
}

/// The status belongs to the controller, and its requests must be valid.
fn status(review: &Review<'_>, own: bool, config: &ClusterConfig, lookup: &Lookup<'_>) -> Result<Judged, Refusal> {
    let vm: VirtualMachine = match decode(KIND, review.object, own) {
        Ok(vm) => vm,
        Err(errors) => {
            // The spec is the stored one, and may be older than a rule about it.
            let about = about_status(&errors);
            match stored(review.object) {
                Some(vm) if about.is_empty() => vm,
                _ => return Err(if about.is_empty() { errors } else { about }.into()),
            }
        }
    };
    let old = review.old.and_then(stored::<VirtualMachine>);
    let mut causes = volume_requests::check(&vm, config, lookup, &review.now);
    if causes.is_empty() {
        causes = guards::check(&vm, old.as_ref());
    }
    Ok(Judged::with_causes(encode(&vm), causes))
}

fn about_status(errors: &[FieldError]) -> Vec<FieldError> {
    let of_status = |error: &&FieldError| error.field.as_str().starts_with("status");
    errors.iter().filter(of_status).cloned().collect()
}

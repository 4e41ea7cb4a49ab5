//! KubeVirt's webhooks as functions: which writes are reviewed, under which webhook's name, and the answer.
//!
//! The embedded API server calls them in process, as a [`review::Hook`]. On Kubernetes the same [`review`] answers over
//! HTTP: the mutating webhook with its object, the validating one with its refusal.
//!
//! The caller fetches the objects that [`wanted`] returns and calls it again until it returns none, as with
//! [`admission::judge`].

mod eviction;
mod images;
mod table;
#[cfg(test)]
mod tests;

use admission::unsupported::with_rules;
use admission::{Judged, Shape, Wanted, World};
use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::field::FieldError;
use machinery::status::{self, About};
use review::{Phase, Refusal, Review, Verdict};

pub use images::{PIN_RULES, pin_images};
pub use table::{PATHS, RULES, path};

/// The input of a review besides the write and the cluster's objects.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
    /// Whether valid objects are admitted even if they use features that this build does not support.
    pub pass_unsupported: bool,
    /// The nodes that objects would run on.
    pub shape: Shape,
}

/// The objects that a review needs in addition to those in the world.
pub fn wanted(review: &Review<'_>, world: &World) -> Vec<Wanted> {
    match is_eviction(review) {
        true => eviction::wanted(review, world),
        false => admission::wanted(review, world),
    }
}

/// Reviews one write.
pub fn review(review: &Review<'_>, settings: Settings<'_>, world: &World) -> Verdict {
    match is_eviction(review) {
        true => eviction::review(review, settings.config, world),
        false => judge(review, settings, world),
    }
}

fn is_eviction(review: &Review<'_>) -> bool {
    review.subresource == "eviction" && review.resource == "pods"
}

/// Defaulting and validation of our own kinds.
fn judge(review: &Review<'_>, settings: Settings<'_>, world: &World) -> Verdict {
    match admission::judge(review, settings.shape, settings.config, world) {
        // If defaulting fails, the webhook that does the defaulting refuses.
        Err(refusal) => Refusal { by: by(review, completes(review)), status: refused(refusal) }.into(),
        Ok(Judged { object, warnings, causes, unsupported }) => {
            let errors = if settings.pass_unsupported { causes } else { with_rules(unsupported, causes) };
            let by = || by(review, Phase::Validating);
            let refusal = (!errors.is_empty()).then(|| Refusal { by: by(), status: invalid(errors) });
            Verdict { object: Some(object), warnings, refusal, side_effect: None }
        }
    }
}

/// VMs and VMIs are completed from other objects (instance types, presets), which may fail.
fn completes(review: &Review<'_>) -> Phase {
    match review.resource {
        "virtualmachines" | "virtualmachineinstances" => Phase::Mutating,
        _ => Phase::Validating,
    }
}

fn by(review: &Review<'_>, phase: Phase) -> &'static str {
    table::name(review, phase).or_else(|| table::name(review, Phase::Validating)).unwrap_or("validator.kubevirt.io")
}

/// Refusals list this many causes, and count the rest: clients may depend on the list being short.
const MAX_CAUSES: usize = 10;

fn refused(refusal: admission::Refusal) -> Status {
    match refusal {
        admission::Refusal::BadRequest(message) => status::bad_request(message),
        admission::Refusal::Invalid(errors) => invalid(errors),
    }
}

fn invalid(mut errors: Vec<FieldError>) -> Status {
    let more = errors.len().saturating_sub(MAX_CAUSES);
    errors.truncate(MAX_CAUSES);
    let line = |error: &FieldError| match error.field.as_str() {
        "" => error.message.clone(), // about the object as a whole
        _ => error.to_string(),
    };
    let mut message = errors.iter().map(line).collect::<Vec<_>>().join(", ");
    if more > 0 {
        message += &format!(" and {more} more validation errors");
    }
    Status { message: Some(message), ..status::invalid(About::default(), errors) }
}

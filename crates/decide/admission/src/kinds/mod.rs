//! The kinds besides machines and instances, one file each.

mod kubevirt;
mod migration;

use api::config::ClusterConfig;
use machinery::field::{Cause, FieldError, FieldPath};

use crate::{Judged, Refusal, Request, Wanted, World};

/// Which other objects the rules of a kind look at.
pub(crate) fn wanted(_request: &Request<'_>, _world: &World) -> Vec<Wanted> {
    Vec::new()
}

/// Judges a write of a kind that is neither a machine nor an instance.
pub(crate) fn judge(request: &Request<'_>, config: &ClusterConfig, _world: &World) -> Result<Judged, Refusal> {
    match request.resource {
        "virtualmachineinstancemigrations" => migration::judge(request),
        "kubevirts" => kubevirt::judge(request, config),
        other => {
            let message = format!("{other} are not supported by this build");
            Err(Refusal::Invalid(vec![FieldError::new(Cause::Unsupported, FieldPath::new("kind"), message)]))
        }
    }
}

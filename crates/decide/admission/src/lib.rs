//! Admission: what an object becomes before it is stored, or why it is refused.
//!
//! ```text
//! object ─► schema ─► defaults ─► what this build cannot honour ─► rules ─► object and warnings, or field errors
//! ```
//!
//! One pure function serves the embedded API server, the webhooks and the command line. Nothing is drawn and no clock
//! is read: the same request gives the same answer.

mod accounts;
mod decode;
mod defaults;
mod kubevirt;
mod migration;
mod unsupported;
mod validate;
mod vm;
mod vmi;

use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

pub use defaults::firmware_uuid;

/// What happens to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It takes the place of an older version.
    Update,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

/// One write to judge.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Create or update.
    pub operation: Operation,
    /// The plural of the kind, as in `virtualmachines`.
    pub resource: &'a str,
    /// `status`, or nothing for the object itself.
    pub subresource: &'a str,
    /// Who asks.
    pub user: &'a User,
    /// The version before, for an update.
    pub old: Option<&'a Value>,
    /// The version wanted.
    pub object: &'a Value,
    /// The time.
    pub now: Time,
}

/// An object that may be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The object with its defaults.
    pub object: Value,
    /// What the user should know although it does not prevent anything.
    pub warnings: Vec<String>,
}

/// Judges one write.
pub fn admit(request: &Request<'_>, config: &ClusterConfig) -> Result<Admitted, Vec<FieldError>> {
    match request.resource {
        "virtualmachines" => vm::admit(request, config),
        "virtualmachineinstances" => vmi::admit(request, config),
        "virtualmachineinstancemigrations" => migration::admit(request),
        "kubevirts" => kubevirt::admit(request, config),
        other => {
            let message = format!("{other} are not supported by this build");
            Err(vec![FieldError::new(Cause::Unsupported, FieldPath::new("kind"), message)])
        }
    }
}

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
mod kinds;
mod presets;
pub mod unsupported;
mod validate;
mod vm;
mod vmi;
mod world;

use std::fmt;

use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::FieldError;
use serde_json::Value;

pub use defaults::{firmware_uuid, memory_hotplug};
pub use review::{Operation, User};
pub use world::{Wanted, World};

/// One write to judge.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What is to happen.
    pub operation: Operation,
    /// The version the client speaks, as in `v1`.
    pub version: &'a str,
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

/// An object with its defaults, and all there is to say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The object with its defaults.
    pub object: Value,
    /// What the user should know although it does not prevent anything.
    pub warnings: Vec<String>,
    /// What is wrong with it; nothing if it is valid.
    pub causes: Vec<FieldError>,
    /// What is valid and not honoured by this build.
    pub unsupported: Vec<FieldError>,
}

impl Judged {
    /// An object about which there is nothing to say.
    pub(crate) fn valid(object: Value) -> Self {
        Judged { object, warnings: Vec::new(), causes: Vec::new(), unsupported: Vec::new() }
    }

    /// An object with what the rules found.
    pub(crate) fn with_causes(object: Value, causes: Vec<FieldError>) -> Self {
        Judged { causes, ..Judged::valid(object) }
    }
}

/// An object that may be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The object with its defaults.
    pub object: Value,
    /// What the user should know although it does not prevent anything.
    pub warnings: Vec<String>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Fields of the object are wrong, or not honoured by this build.
    Invalid(Vec<FieldError>),
    /// The request as a whole makes no sense now, as a second migration of one guest.
    BadRequest(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::BadRequest(message) => f.write_str(message),
            Refusal::Invalid(causes) => {
                let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
                f.write_str(&causes.join(", "))
            }
        }
    }
}

impl From<Vec<FieldError>> for Refusal {
    fn from(causes: Vec<FieldError>) -> Self {
        Refusal::Invalid(causes)
    }
}

/// Which other objects the judgement of a write would look at, beyond those the world has. To be asked again once they
/// are found, until the answer is none.
pub fn wanted(request: &Request<'_>, world: &World) -> Vec<Wanted> {
    let wanted = match request.resource {
        "virtualmachines" => vm::wanted(request, world),
        "virtualmachineinstances" => vmi::wanted(request),
        _ => kinds::wanted(request, world),
    };
    wanted.into_iter().filter(|wanted| !world.knows(wanted)).collect()
}

/// Judges one write: the object with its defaults, what is wrong with it, and what this build does not honour. An error
/// means that there is nothing to show: the object cannot be read, or the request makes no sense.
pub fn judge(request: &Request<'_>, config: &ClusterConfig, world: &World) -> Result<Judged, Refusal> {
    match request.resource {
        "virtualmachines" => vm::judge(request, config, world),
        "virtualmachineinstances" => vmi::judge(request, config, world),
        _ => kinds::judge(request, config, world),
    }
}

/// Judges one write and lets it pass only if it is valid and all of it is honoured.
pub fn admit(request: &Request<'_>, config: &ClusterConfig, world: &World) -> Result<Admitted, Refusal> {
    let Judged { object, warnings, causes, unsupported } = judge(request, config, world)?;
    let errors = unsupported::with_rules(unsupported, causes);
    if errors.is_empty() { Ok(Admitted { object, warnings }) } else { Err(Refusal::Invalid(errors)) }
}

//! Admission: defaulting and validation of objects before they are stored.
//!
//! ```text
//! object ─► schema ─► defaults ─► what this build does not support ─► rules ─► object and warnings, or field errors
//! ```
//!
//! One pure function serves the embedded API server, the webhooks and the command line. It is deterministic: it uses no
//! randomness and reads no clock.

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
use machinery::field::FieldError;
use serde_json::Value;

pub use defaults::{firmware_uuid, memory_hotplug};
pub use review::{Operation, Review, User};
pub use world::{Wanted, World};

/// What our nodes are part of. Some features need what only one of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One of our own clusters, in which no other software runs.
    Embedded,
    /// Kubernetes, with what its administrator has installed there.
    Kubernetes,
}

/// An object with its defaults, and all findings about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The object with its defaults.
    pub object: Value,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Validation errors; empty if the object is valid.
    pub causes: Vec<FieldError>,
    /// Valid fields that this build does not support on nodes of this shape.
    pub unsupported: Vec<FieldError>,
}

impl Judged {
    /// An object without findings.
    pub(crate) fn valid(object: Value) -> Self {
        Judged { object, warnings: Vec::new(), causes: Vec::new(), unsupported: Vec::new() }
    }

    /// An object with its validation errors.
    pub(crate) fn with_causes(object: Value, causes: Vec<FieldError>) -> Self {
        Judged { causes, ..Judged::valid(object) }
    }
}

/// An object that may be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The object with its defaults.
    pub object: Value,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Fields of the object are invalid, or not supported by this build.
    Invalid(Vec<FieldError>),
    /// The request as a whole is not possible now, such as a second migration of one guest.
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

/// The objects that the validation of a write needs in addition to those in the world. Call it again after fetching
/// them, until it returns none.
pub fn wanted(review: &Review<'_>, world: &World) -> Vec<Wanted> {
    let wanted = match review.resource {
        "virtualmachines" => vm::wanted(review, world),
        "virtualmachineinstances" => vmi::wanted(review),
        _ => kinds::wanted(review, world),
    };
    wanted.into_iter().filter(|wanted| !world.knows(wanted)).collect()
}

/// Validates one write: returns the object with its defaults, its errors, and what this build does not support on nodes
/// of this shape. An `Err` means that there is no result: the object cannot be decoded, or the request is invalid.
pub fn judge(review: &Review<'_>, shape: Shape, config: &ClusterConfig, world: &World) -> Result<Judged, Refusal> {
    match review.resource {
        "virtualmachines" => vm::judge(review, shape, config, world),
        "virtualmachineinstances" => vmi::judge(review, shape, config, world),
        _ => kinds::judge(review, shape, config, world),
    }
}

/// Validates one write and admits it only if it is valid and fully supported.
pub fn admit(review: &Review<'_>, shape: Shape, config: &ClusterConfig, world: &World) -> Result<Admitted, Refusal> {
    let Judged { object, warnings, causes, unsupported } = judge(review, shape, config, world)?;
    let errors = unsupported::with_rules(unsupported, causes);
    if errors.is_empty() { Ok(Admitted { object, warnings }) } else { Err(Refusal::Invalid(errors)) }
}

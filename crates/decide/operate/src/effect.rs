//! Everything virt-operator can do.

use std::time::Duration;

use api::v1::KubeVirtStatus;
use serde_json::Value;

use crate::certificates::Renewal;
use crate::world::Id;

/// One effect. They are carried out in their order; the first that fails ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Server-side apply, with force.
    Apply { object: Value, because: String },
    /// A merge patch of an object that is there.
    Merge { id: Id, patch: Value, because: String },
    /// Deletes an object, and first what depends on it.
    Delete { id: Id, because: String },
    /// Makes a key and a certificate.
    Renew(Renewal),
    /// Takes our labels away from a node.
    Unlabel { node: String },
    /// Writes the status of a KubeVirt object.
    Status { namespace: String, name: String, status: Box<KubeVirtStatus> },
    /// Sets the finalizers of a KubeVirt object, whose list was as given.
    Finalizers { namespace: String, name: String, old: Vec<String>, new: Vec<String> },
    /// Tells the administrator.
    Warn { reason: &'static str, message: String },
}

/// What to do now, and when to look again if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub effects: Vec<Effect>,
    pub again: Option<Duration>,
}

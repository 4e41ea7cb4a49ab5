//! Everything virt-operator can do.

use std::time::Duration;

use api::v1::KubeVirtStatus;
use serde_json::Value;

use crate::certificates::Renewal;
use crate::world::Id;

/// One effect. They are executed in order; the first that fails ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Server-side apply, with force.
    Apply { object: Value, because: String },
    /// A merge patch of an existing object.
    Merge { id: Id, patch: Value, because: String },
    /// Deletes an object in the foreground: its dependents first.
    Delete { id: Id, because: String },
    /// Creates a key and a certificate.
    Renew(Renewal),
    /// Removes Ferrovirt's labels from a node.
    Unlabel { node: String },
    /// Writes the status of a KubeVirt object.
    Status { namespace: String, name: String, status: Box<KubeVirtStatus> },
    /// Sets the finalizers of a KubeVirt object, if the list is still the given one.
    Finalizers { namespace: String, name: String, old: Vec<String>, new: Vec<String> },
    /// A warning event on the KubeVirt object.
    Warn { reason: &'static str, message: String },
}

/// What to do now, and when to reconcile again if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub effects: Vec<Effect>,
    pub again: Option<Duration>,
}

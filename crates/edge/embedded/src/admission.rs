//! The door to the rules of our own kinds.

use machinery::field::FieldError;
use serde_json::Value;

use crate::auth::User;

/// Defaults and judges objects of `kubevirt.io` before they are stored. It is called for every creation and update,
/// dry runs and status updates included.
pub trait Admission: Send + Sync {
    /// The object to store, or what is wrong with it.
    fn admit(&self, request: &AdmissionRequest<'_>) -> Result<Admitted, Vec<FieldError>>;
}

/// One write to judge.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// What is done.
    pub operation: Operation,
    /// To what kind, and which part of it.
    pub resource: Resource,
    /// By whom.
    pub user: &'a User,
    /// The object's namespace; empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The version before, for an update.
    pub old: Option<&'a Value>,
    /// The version wanted.
    pub object: Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// Create or update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A new version of one.
    Update,
}

/// Group, version and plural of the kind, and the subresource, empty for the object itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `kubevirt.io`.
    pub group: &'static str,
    /// `v1`.
    pub version: &'static str,
    /// `virtualmachines`.
    pub resource: &'static str,
    /// `status` or nothing.
    pub subresource: &'static str,
}

/// An object that passed.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// With defaults filled in.
    pub object: Value,
    /// Shown to the user.
    pub warnings: Vec<String>,
}

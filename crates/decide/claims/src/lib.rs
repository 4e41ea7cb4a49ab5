//! What Kubernetes' volume controllers decide, for clusters without them: which volume a claim is bound to, when one is
//! provisioned, grown, released or deleted, and when a snapshot is taken.
//!
//! ```text
//!   claim ──► class ──► wait for a consumer ──► provision ──► volume ─┐
//!     │                                                              ├─► claimRef ─► volumeName ─► Bound
//!     └────► smallest free volume that fits ─────────────────────────┘
//! ```

mod action;
pub mod claim;
mod class;
mod fit;
mod grow;
mod provision;
mod read;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod users;
pub mod volume;

pub use action::{Action, Content, Kind, Note, Part, Provision, Seen, Voice};
pub use claim::names_for_good;
pub use class::{DEFAULT_CLASS, allows_growth, class_of, default_class, waits_for_consumer};
pub use fit::{When, best, reaches};
pub use grow::{grown, growth_failed};
pub use provision::{DataSource, complete, data_source, provisioning_failed, provisioning_succeeded};
pub use read::{Phase, claim_of, claim_phase, handle, requested, volume_name, volume_phase};
pub use users::{claims_of, users};

/// The provisioner of this build's volume engine, and the name of its driver.
pub const DRIVER: &str = "csi.ferrovirt.io";

/// On claims: a Pod may use them.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// On claims: a volume may be in the making for them.
pub const PROVISIONING_FINALIZER: &str = "csi.ferrovirt.io/provisioning";
/// On volumes: a claim may be bound to them.
pub const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// On volumes: they have content in the storage.
pub const STORAGE_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

//! What Kubernetes' volume controllers decide, for clusters without them: which volume a claim is bound to, when one is
//! provisioned, grown, released or deleted, and when a snapshot is taken.
//!
//! ```text
//!   claim ──► class ──► wait for a consumer ──► provision ──► volume ─┐
//!     │                                                              ├─► claimRef ─► volumeName ─► Bound
//!     └────► smallest free volume that fits ─────────────────────────┘
//! ```

mod class;

pub use class::{DEFAULT_CLASS, allows_growth, class_of, default_class};

/// The provisioner of this build's volume engine, and the name of its driver.
pub const DRIVER: &str = "csi.ferrovirt.io";

/// On claims: a Pod may use them.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// On volumes: a claim may be bound to them.
pub const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

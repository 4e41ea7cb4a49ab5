//! Instance types and preferences: which one a virtual machine names, and what an instance becomes by it.
//!
//! ```text
//! virtual machine ─► matcher ─► revision or live object ─► conflicts? ─► instance type ─► preference ─► requirements
//! ```
//!
//! An instance type sizes the guest and has the last word: a field that the virtual machine sets as well is a conflict.
//! A preference only fills what is left open.
//!
//! Nothing is fetched here: the caller answers questions about other objects through [`Objects`].

mod apply;
mod capture;
mod matcher;
mod preference;
mod requirements;
mod revision;
mod topology;

pub use apply::{apply, apply_instancetype, conflict, conflicts};
pub use capture::{Live, capture, upgrade};
pub use matcher::{FindError, Matcher, Objects, Scope, Subject, find_instancetype, find_preference};
pub use preference::{apply_autoattach, apply_preference};
pub use requirements::check_requirements;
pub use revision::{RevisionError, decode_instancetype, decode_preference, instancetype_of, preference_of};
pub use topology::{Topology, check_spread, topology};

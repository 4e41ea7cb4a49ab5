//! Instance types and preferences: which one a VM refers to, and how they apply to a VMI.
//!
//! ```text
//! virtual machine ─► matcher ─► revision or live object ─► conflicts? ─► instance type ─► preference ─► requirements
//! ```
//!
//! An instance type sizes the guest and takes precedence: a field that the VM sets as well is a conflict. A preference
//! only sets what is left open.
//!
//! There is no I/O here: the caller looks up other objects through [`Objects`].

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

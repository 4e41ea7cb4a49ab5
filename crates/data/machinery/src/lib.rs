//! Kubernetes API machinery that is not specific to VMs: quantities, durations, ages, selectors, field paths, patches,
//! status responses, watch events, names, UIDs, metadata, Pods, RBAC rights, identities of nodes and error causes.
//!
//! Only data and functions over data.

pub mod age;
pub mod duration;
pub mod error;
pub mod field;
pub mod identity;
pub mod int_or_string;
pub mod meta;
pub mod names;
pub mod patch;
pub mod pod;
pub mod quantity;
pub mod rights;
pub mod selector;
pub mod status;
pub mod strategic;
pub mod uid;
pub mod watch;

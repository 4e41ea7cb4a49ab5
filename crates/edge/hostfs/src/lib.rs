//! The host's kernel objects behind small synchronous functions: safe paths, processes, crash-safe files, cgroups,
//! namespaces, mounts, and whether KVM works.
//!
//! Everything here is idempotent: creating what exists and removing what is gone succeeds. No policy: callers say what
//! they want and get an [`Error`] that names the operation and its object.

pub mod atomic;
pub mod beneath;
pub mod cgroup;
pub mod device_rules;
mod error;
pub mod graft;
pub mod kvm;
pub mod mounts;
pub mod ns;
pub mod process;

pub use error::{Error, Result};

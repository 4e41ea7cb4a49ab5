//! The host's kernel objects, each behind a small synchronous function: safe paths, processes, files that survive a
//! crash, control groups, namespaces, mounts, and the question whether KVM works.
//!
//! Everything here is re-runnable: creating what exists and removing what is gone is success. Nothing here decides;
//! callers say what they want and get an [`Error`] that names the operation and its object.

pub mod atomic;
pub mod beneath;
pub mod cgroup;
mod error;
pub mod kvm;
pub mod mounts;
pub mod ns;
pub mod process;

pub use error::{Error, Result};

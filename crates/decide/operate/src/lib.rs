//! What virt-operator decides: how an installation on Kubernetes comes into being, stays as it is, changes and goes.
//!
//! ```text
//! World ── KubeVirt objects, managed objects, Pods of virt-handler, certificates, now
//!   │
//!   └─ decide ─► none of ours, or a second one     Synchronized=False, ExistingDeployment
//!               ├ being deleted                     uninstall: definitions with their objects, then everything else
//!               ├ older than what runs              refused; certificates are still renewed
//!               └ otherwise                         sync: what differs is applied, step by step; then the status
//! ```
//!
//! The objects themselves are made by the crate `install`. Node certificates are judged by [`requests`].

pub mod certificates;
mod customize;
mod decide;
mod drift;
mod effect;
pub mod requests;
mod rollout;
mod status;
mod sync;
mod target;
mod uninstall;
mod version;
mod world;

#[cfg(test)]
mod tests;

pub use decide::{decide, failed};
pub use drift::{HASH, left_over};
pub use effect::{Decision, Effect};
pub use uninstall::{by_hand, removable};
pub use world::{Id, Objects, Operator, World};

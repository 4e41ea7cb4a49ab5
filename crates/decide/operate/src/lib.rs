//! What virt-operator decides: how an installation on Kubernetes is created, repaired, updated and removed.
//!
//! ```text
//! World ── KubeVirt objects, managed objects, Pods of virt-handler, certificates, now
//!   │
//!   └─ decide ─► other namespace, or a second one   Synchronized=False, ExistingDeployment
//!               ├ being deleted                     uninstall: CRDs with their objects, then everything else
//!               ├ older than the running version    refused; certificates are still renewed
//!               └ otherwise                         sync: apply differences step by step, then write the status
//! ```
//!
//! The crate `install` builds the objects. Node certificates are judged by [`requests`].

mod absence;
pub mod by_hand;
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

pub use absence::{NotReady, doubtful_nodes};
pub use by_hand::by_hand;
pub use decide::{decide, failed};
pub use drift::{HASH, left_over};
pub use effect::{Decision, Effect};
pub use uninstall::removable;
pub use world::{Id, Objects, Operator, World};

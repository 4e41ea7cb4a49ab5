//! The workload updater: guests on outdated launchers, and guests with changes that only a move brings, are moved or made
//! to start anew, as the KubeVirt object's `workloadUpdateStrategy` says.
//!
//! # Expected flow
//! An instance is *outdated* if its launcher's image is not the controller's. It has a *change in progress* if its CPUs,
//! memory, networks or volumes were changed and the guest gets that by migrating. Either is counted in the status of
//! the KubeVirt object. With method `LiveMigrate`, guests that can move get a migration, as many as the cluster has room
//! for; with method `Evict`, the Pods of all others are evicted, a batch at a time. Without a method nothing happens.
//!
//! # Guarantees
//! Nothing happens while the installation itself is being updated. One pass makes no more migrations than could run
//! now, and no guest gets a second one. From the end of one batch of evictions to the next passes the whole interval, also
//! if the process is replaced in between.
//!
//! # Caveats
//! A guest that was asked to leave its node is left to whoever empties nodes: it gets its new launcher by that, too.

mod action;
mod decide;
mod world;

#[cfg(test)]
mod tests;

pub use crate::guest::Guest;
pub use action::{Action, Own};
pub use decide::{decide, is_pending};
pub use world::World;

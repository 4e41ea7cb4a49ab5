//! The workload updater: migrates or evicts guests with outdated launchers or with changes that need a migration,
//! according to the KubeVirt object's `workloadUpdateStrategy`.
//!
//! # Expected flow
//! A VMI is *outdated* if its launcher's image is not the controller's. It has a *change in progress* if its CPUs,
//! memory, networks or volumes were changed and the change takes effect by migration. Both are counted in the status of
//! the KubeVirt object. With method `LiveMigrate`, guests that can migrate get a migration, as many as the cluster has
//! room for; with method `Evict`, the Pods of all others are evicted in batches. Without a method nothing happens.
//!
//! # Guarantees
//! Nothing happens while the installation itself is being updated. One pass creates no more migrations than can run
//! now, and no guest gets a second one. The full interval passes between two batches of evictions, even if the process
//! is replaced in between.
//!
//! # Caveats
//! A guest that is being evacuated from its node is left alone: the evacuation gives it a new launcher, too.

mod action;
mod decide;
mod world;

#[cfg(test)]
mod tests;

pub use crate::guest::Guest;
pub use action::{Action, Own};
pub use decide::{decide, is_pending};
pub use world::World;

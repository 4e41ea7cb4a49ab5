//! Slots: how many the other migrations occupy, and how many are left for this one.

use std::sync::Arc;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use k8s_openapi::api::core::v1::Pod;

use super::decentralized::source_node;
use super::kinds::{self, Kind};
use super::queue::comes_before;
use super::status::{waits_for_its_node, waits_for_room};
use super::world::is_target;
use crate::meta;

/// How much of the limits the other migrations use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Migrations in the cluster that run or have a target Pod, including those this process has just started.
    pub cluster: usize,
    /// Those of them that leave the source node of this one.
    pub outbound: usize,
    /// Migrations that wait for a slot in the cluster and come before this one.
    pub ahead: usize,
    /// Migrations that wait to leave the same source node and come before this one.
    pub ahead_here: usize,
    /// Those of `cluster` whose target Pod this process is about to create: they free the slot at once if that fails.
    pub attempts: usize,
    /// Those of them that leave the source node of this one.
    pub attempts_here: usize,
}

impl Slots {
    /// What is taken for longer than an attempt lasts.
    pub(super) fn without_attempts(self) -> Self {
        let cluster = self.cluster.saturating_sub(self.attempts);
        let outbound = self.outbound.saturating_sub(self.attempts_here);
        Self { cluster, outbound, attempts: 0, attempts_here: 0, ..self }
    }
}

/// Every migration that may occupy a slot.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// The unfinished migrations in the cache. This may include the one being decided about.
    pub unfinished: Vec<Entry>,
    /// The [`occupants`] stored when this process became able to start migrations, for as long as its caches may be
    /// older.
    pub inherited: Vec<Inherited>,
}

/// An unfinished migration, and what the caches and this process know about it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub migration: Arc<Migration>,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The Pods that were created for it.
    pub pods: Vec<Arc<Pod>>,
    /// This process has created a target for it, or tried to without learning the outcome.
    pub started: bool,
}

/// A migration that an earlier process has started.
#[derive(Clone, Debug)]
pub struct Inherited {
    pub migration: Migration,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// It is in the cache, finished or not.
    pub is_cached: bool,
}

/// How much of the limits all other migrations use. `node` is the source node of this one.
pub fn slots(own: &Migration, node: Option<&str>, census: &Census) -> Slots {
    let mut slots = Slots::default();
    for left in census.inherited.iter().filter(|left| !left.is_cached) {
        slots.cluster += 1;
        slots.outbound += usize::from(leaves(&left.migration, left.vmi.as_deref(), node));
    }
    for other in census.unfinished.iter().filter(|other| counts_for(own, &other.migration)) {
        let here = || leaves(&other.migration, other.vmi.as_deref(), node);
        if has_room(other, census) {
            slots.cluster += 1;
            slots.outbound += usize::from(here());
            if is_attempt(other, census) {
                slots.attempts += 1;
                slots.attempts_here += usize::from(here());
            }
        } else if comes_before(&other.migration, own) {
            slots.ahead += usize::from(waits_for_room(&other.migration));
            slots.ahead_here += usize::from(waits_for_its_node(&other.migration) && here());
        }
    }
    slots
}

/// Filters stored migrations for those that occupy a slot: unfinished, and running or with a target.
pub fn occupants(mut migrations: Vec<Migration>, pods: &[Pod]) -> Vec<Migration> {
    let has_target = |of: &Migration| pods.iter().any(|pod| is_target(pod, meta::uid(&of.metadata)));
    migrations.retain(|one| !one.is_final() && (kinds::is_running(one) || has_target(one)));
    migrations
}

/// A sender waits for the other side, which creates the target and holds the slot for both. If senders counted as well,
/// as many senders as may run at once could wait for receivers that find no free slot.
fn counts_for(own: &Migration, other: &Migration) -> bool {
    let same = meta::namespace(&own.metadata) == meta::namespace(&other.metadata)
        && meta::name(&own.metadata) == meta::name(&other.metadata);
    !same && kinds::kind(other) != Kind::Sends
}

fn has_room(other: &Entry, census: &Census) -> bool {
    other.started || holds_slot(other, census)
}

/// Its target Pod may be refused yet.
fn is_attempt(other: &Entry, census: &Census) -> bool {
    other.started && !holds_slot(other, census)
}

fn holds_slot(other: &Entry, census: &Census) -> bool {
    let uid = meta::uid(&other.migration.metadata);
    kinds::is_running(&other.migration)
        || other.pods.iter().any(|pod| is_target(pod, uid))
        || census.inherited.iter().any(|left| left.migration.metadata.uid == other.migration.metadata.uid)
}

/// Whether a migration leaves this node, or did a moment ago.
fn leaves(migration: &Migration, vmi: Option<&VirtualMachineInstance>, node: Option<&str>) -> bool {
    let (Some(vmi), Some(_)) = (vmi, node) else { return false };
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    source_node(migration, vmi) == node || state.and_then(|state| state.source_node.as_deref()) == node
}

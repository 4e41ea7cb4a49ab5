//! Room: what other migrations take of the limits, and what is left for this one.

use std::sync::Arc;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use k8s_openapi::api::core::v1::Pod;

use super::decentralized::source_node;
use super::kinds::{self, Kind};
use super::queue::comes_before;
use super::status::{waits_for_its_node, waits_for_room};
use super::world::is_target;
use crate::meta;

/// What other migrations take of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Migrations of the cluster that run or have a target Pod, those this process has just started included.
    pub cluster: usize,
    /// Those of them that take a guest away from this one's node.
    pub outbound: usize,
    /// Migrations that wait for room in the cluster and come before this one.
    pub ahead: usize,
    /// Migrations that wait to leave this one's node and come before it.
    pub ahead_here: usize,
}

/// Every migration that may take room.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Those of the cache that have not ended. The one that is asked about may be among them.
    pub unfinished: Vec<Entry>,
    /// Those that were stored as [`occupants`] when this process began to start migrations, as long as its caches may be older.
    pub inherited: Vec<Inherited>,
}

/// A migration that has not ended, and what the caches and this process know of it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub migration: Arc<Migration>,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The Pods that were made for it.
    pub pods: Vec<Arc<Pod>>,
    /// This process has made a target for it, or tried to without learning the outcome.
    pub started: bool,
}

/// A migration that a process before this one has started.
#[derive(Clone, Debug)]
pub struct Inherited {
    pub migration: Migration,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The cache shows it, ended or not.
    pub is_cached: bool,
}

/// What all others take of the limits. `node` is where the migration takes its guest from.
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
        } else if comes_before(&other.migration, own) {
            slots.ahead += usize::from(waits_for_room(&other.migration));
            slots.ahead_here += usize::from(waits_for_its_node(&other.migration) && here());
        }
    }
    slots
}

/// Of migrations as they are stored, those that take room: they have not ended, and run or have a target.
pub fn occupants(mut migrations: Vec<Migration>, pods: &[Pod]) -> Vec<Migration> {
    let has_target = |of: &Migration| pods.iter().any(|pod| is_target(pod, meta::uid(&of.metadata)));
    migrations.retain(|one| !kinds::is_final(one) && (kinds::is_running(one) || has_target(one)));
    migrations
}

/// Whoever sends waits for the other side, which makes the target and has the room for both. Were it counted as well, as many
/// senders as may run at once would wait for receivers that find no room.
fn counts_for(own: &Migration, other: &Migration) -> bool {
    let same = meta::namespace(&own.metadata) == meta::namespace(&other.metadata)
        && meta::name(&own.metadata) == meta::name(&other.metadata);
    !same && kinds::kind(other) != Kind::Sends
}

fn has_room(other: &Entry, census: &Census) -> bool {
    let uid = meta::uid(&other.migration.metadata);
    kinds::is_running(&other.migration)
        || other.started
        || other.pods.iter().any(|pod| is_target(pod, uid))
        || census.inherited.iter().any(|left| left.migration.metadata.uid == other.migration.metadata.uid)
}

/// Whether a migration takes its guest away from this node, or did a moment ago.
fn leaves(migration: &Migration, vmi: Option<&VirtualMachineInstance>, node: Option<&str>) -> bool {
    let (Some(vmi), Some(_)) = (vmi, node) else { return false };
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    source_node(migration, vmi) == node || state.and_then(|state| state.source_node.as_deref()) == node
}

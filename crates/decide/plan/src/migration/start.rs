//! Decides whether a migration may start now: first from the caches, then again under the start lock from live reads.

use std::sync::Arc;
use std::time::Duration;

use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use api::{conditions, reasons};
use k8s_openapi::api::core::v1::Pod;

use super::action::{Action, Own, SHORTLY, requeue_after};
use super::decide::decide;
use super::kinds::{self, Kind};
use super::slots::Slots;
use super::sync::{Sync, Waiting};
use super::world::World;
use super::{decentralized, status, target};
use crate::{meta, pods};

/// How long a migration waits before it checks for a slot again, depending on its priority.
pub(super) fn patience(w: &World) -> Duration {
    Duration::from_secs(match kinds::spec_priority(&w.migration) {
        100.. => 1,
        50.. => 3,
        _ => 5,
    })
}

/// What blocks the creation of a target Pod, as far as the caches tell.
fn obstacle(w: &World, vmi: &VirtualMachineInstance, slots: Slots) -> Option<Waiting> {
    let active: Vec<&str> =
        w.pods.iter().filter(|pod| !pods::is_down(pod)).map(|pod| meta::name(&pod.metadata)).collect();
    if active.len() > 1 {
        let message = format!("VMI has more than one active launcher Pod: {}", active.join(", "));
        return Some(Waiting::new(reasons::OTHER_POD_ACTIVE, message));
    }
    let limits = w.config.migrations();
    let cluster = limits.parallel_migrations_per_cluster.unwrap_or(5) as usize;
    if slots.cluster.saturating_add(slots.ahead) >= cluster {
        let message = format!(
            "the cluster runs or has queued its maximum of {cluster} parallel migrations \
             (parallelMigrationsPerCluster)"
        );
        return Some(Waiting::new(reasons::CLUSTER_LIMIT_REACHED, message));
    }
    let outbound = limits.parallel_outbound_migrations_per_node.unwrap_or(2) as usize;
    if slots.outbound.saturating_add(slots.ahead_here) >= outbound {
        let node = decentralized::source_node(&w.migration, vmi).unwrap_or_default();
        let message = format!(
            "node {node} runs or has queued its maximum of {outbound} outbound migrations \
             (parallelOutboundMigrationsPerNode)"
        );
        return Some(Waiting::new(reasons::NODE_LIMIT_REACHED, message));
    }
    if !vmi.is_running() && w.kind() == Kind::Local {
        let phase = vmi.phase().map_or("unset", |phase| phase.as_str());
        let message = format!("the instance is in phase {phase}; only a running guest can move");
        return Some(Waiting::new(reasons::INSTANCE_NOT_RUNNING, message));
    }
    if w.kind() == Kind::Receives && !decentralized::is_receiver(vmi) {
        return Some(decentralized::has_a_guest());
    }
    None
}

/// Whether a quota refuses the target Pod, and only attempts of other migrations take the slots. If a quota refuses them,
/// too, they take turns, and each would show the limit and then no limit again without end.
fn gives_way(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let list = w.migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::is_true(list, conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA)
        && obstacle(w, vmi, w.slots.without_attempts()).is_none()
}

/// The steps towards a target Pod: the launcher's user, then a slot, then the lock.
pub(super) fn prepare(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    if let Some(waiting) = obstacle(w, vmi, w.slots) {
        if gives_way(w, vmi) {
            let wait = Sync { keeps_wait: true, ..Sync::default() };
            return wait.again(patience(w), kinds::spec_priority(&w.migration));
        }
        let delay = if waiting.reason == reasons::OTHER_POD_ACTIVE { SHORTLY } else { patience(w) };
        let wait = Sync { waiting: Some(waiting), ..Sync::default() };
        return wait.again(delay, kinds::spec_priority(&w.migration));
    }
    if let Some(patch) = target::runtime_user(w, vmi) {
        return Sync::doing(vec![patch]); // the event of this write requeues us
    }
    Sync { start: Some(Action::Own(Own::Start)), ..Sync::default() }
}

/// The world with the stored migration, or `None` if it is gone or was recreated: nobody would delete a Pod created for
/// a migration that has ended but is still in the cache.
pub fn with_stored_migration(w: World, stored: Option<Migration>) -> Option<World> {
    let migration = stored.filter(|stored| meta::uid(&stored.metadata) == w.uid())?;
    Some(World { migration: Arc::new(migration), ..w })
}

/// Whether the start needs the VMI from a live read. The evacuation may have been requested when the guest had already
/// left the node, or may have been canceled since. A receiver has no Pod yet that would keep its VMI from going: one that
/// is created after the VMI was deleted belongs to nobody.
pub fn needs_stored_instance(w: &World) -> bool {
    w.evacuated_node().is_some() || w.kind() == Kind::Receives
}

/// The world with the stored VMI, or `None` if it is not the VMI in the cache.
pub fn with_stored_instance(w: World, stored: Option<VirtualMachineInstance>) -> Option<World> {
    let known = w.vmi.as_deref()?;
    let vmi = stored.filter(|stored| meta::uid(&stored.metadata) == meta::uid(&known.metadata))?;
    Some(World { vmi: Some(Arc::new(vmi)), ..w })
}

/// Decides what to do while holding the start lock: `w` was gathered, and the source Pod read live, under the lock.
pub fn start(w: &World, source: Option<&Pod>) -> Vec<Action> {
    let later = |delay| vec![requeue_after(delay, kinds::spec_priority(&w.migration))];
    let Some(vmi) = w.vmi.as_deref() else { return later(SHORTLY) };
    let pending = matches!(w.migration.phase(), Some(Phase::Pending));
    if !pending || w.target().is_some() || w.is_deleting() || vmi.is_marked_for_deletion() || vmi.is_final() {
        return later(SHORTLY);
    }
    let taken = w.rival().is_some() || w.unread().is_some();
    if w.behind.is_some() || taken || obstacle(w, vmi, w.slots).is_some() || kinds::is_needless(&w.migration, vmi) {
        return later(SHORTLY);
    }
    if w.is_called_off(vmi) {
        return status::called_off(w);
    }
    match target::create(w, vmi, source) {
        Ok(actions) => actions,
        Err(error) => {
            let mut actions = decide(&World { failed: Some(error), ..w.clone() });
            actions.extend(later(patience(w)));
            actions
        }
    }
}

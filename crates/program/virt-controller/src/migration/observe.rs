//! Gathers what a decision about a migration may see.

use std::sync::Arc;

use api::v1::{
    KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationPhase as Phase,
};
use informer::{EXPIRY, Key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use plan::migration::{
    Kind, Slots, World, concerns, is_final, is_running, is_target, kind, phase, source_node, spec_priority,
    waits_for_its_node, waits_for_room,
};

use super::{Controller, locked, vmi_key};
use crate::api::Api;
use crate::owned::uid;
use crate::stores::{
    BY_CONTROLLER, BY_INSTANCE, BY_MIGRATION, BY_PROGRESS, BY_STATE, BY_UID, Stores, UNFINISHED, state_of,
};
use crate::volumes;

impl<A: Api> Controller<A> {
    pub(super) fn world(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let migration = stores.migrations.get(key)?;
        let instance = vmi_key(key, &migration);
        let vmi = instance.as_ref().and_then(|key| stores.vmis.get(key)).filter(|vmi| concerns(&migration, vmi));
        let now = self.ctx.clock.api_time();
        let mut world = World::new(migration.clone(), vmi.clone(), self.ctx.config.now(), now);
        world.unseen = self.writes.behind(key, migration.metadata.resource_version.as_deref());
        world.behind = [self.pods.open(key), self.claims.open(key)].into_iter().flatten().max();
        world.handed_off = self.is_marked(&self.handed_off, key, &migration);
        world.settings = self.ctx.instances.clone();
        world.synchronization_addresses = addresses(&stores.kubevirts.all());
        if let Some(instance) = &instance {
            world.siblings = stores.migrations.by_index(BY_INSTANCE, &instance.to_string());
        }
        if let Some(vmi) = &vmi {
            world.pods = stores.pods.by_index(BY_CONTROLLER, uid(&vmi.metadata));
            let helpers = world.pods.iter().flat_map(|pod| stores.pods.by_index(BY_CONTROLLER, uid(&pod.metadata)));
            world.helpers = helpers.collect();
            world.state_claims = self.state_claims(key, vmi);
            if !is_final(&migration) {
                self.surroundings(key, vmi, &mut world);
            }
        }
        if is_final(&migration) {
            locked(&self.started).remove(key);
        }
        Some(world)
    }

    /// What a target Pod is made from, and whether there is room for it.
    fn surroundings(&self, key: &Key, vmi: &VirtualMachineInstance, world: &mut World) {
        let stores = &self.ctx.stores;
        world.namespace = stores.namespaces.get(&Key::new("", &key.namespace));
        world.quotas = stores.quotas.in_namespace(&key.namespace);
        world.policies = stores.policies.all();
        world.nodes = stores.nodes.all();
        world.claims = volumes::claims_of(stores, vmi);
        if phase(&world.migration) == Some(&Phase::Pending) {
            world.slots = self.slots(key, &world.migration, source_node(&world.migration, vmi));
        }
    }

    /// The guest's own, and what was prepared for it.
    fn state_claims(&self, key: &Key, vmi: &VirtualMachineInstance) -> Vec<Arc<PersistentVolumeClaim>> {
        let claims = &self.ctx.stores.claims;
        let guest = vmi.metadata.name.as_deref().unwrap_or_default();
        let own = claims.by_index(BY_STATE, &state_of(&key.namespace, guest));
        let prepared = claims.by_index(BY_MIGRATION, &key.to_string());
        own.into_iter().chain(prepared).collect()
    }

    /// Whether this process remembers something about just this migration.
    fn is_marked(
        &self,
        marks: &std::sync::Mutex<std::collections::HashMap<Key, String>>,
        key: &Key,
        migration: &Migration,
    ) -> bool {
        locked(marks).get(key).is_some_and(|marked| marked == uid(&migration.metadata))
    }

    /// What all others take of the limits.
    fn slots(&self, own: &Key, migration: &Migration, node: Option<&str>) -> Slots {
        let stores = &self.ctx.stores;
        let mut slots = Slots::default();
        let inherited = self.inherited();
        let is_inherited = |other: &Migration| inherited.iter().any(|left| left.metadata.uid == other.metadata.uid);
        let known = |left: &&Migration| !stores.migrations.by_index(BY_UID, uid(&left.metadata)).is_empty();
        for left in inherited.iter().filter(|left| !known(left)) {
            slots.cluster += 1;
            slots.outbound += usize::from(node.is_some() && leaves(stores, &Key::of(left), left, node));
        }
        for other in stores.migrations.by_index(BY_PROGRESS, UNFINISHED) {
            let key = Key::of(other.as_ref());
            // Who sends waits for the other side, which makes the target and has the room for both. Were it counted as well, as
            // many senders as may run at once would wait for receivers that find no room.
            if key == *own || kind(&other) == Kind::Sends {
                continue;
            }
            let started = self.is_marked(&self.started, &key, &other) || is_inherited(&other);
            if is_running(&other) || has_target(stores, &other) || started {
                slots.cluster += 1;
                slots.outbound += usize::from(node.is_some() && leaves(stores, &key, &other, node));
            } else if comes_before(&other, migration) {
                let here = || node.is_some() && leaves(stores, &key, &other, node);
                slots.ahead += usize::from(waits_for_room(&other));
                slots.ahead_here += usize::from(waits_for_its_node(&other) && here());
            }
        }
        slots
    }

    /// What a process before this one has started, as long as caches may not show it.
    fn inherited(&self) -> Vec<Migration> {
        let now = self.ctx.clock.elapsed();
        let inherited = locked(&self.inherited);
        let fresh = inherited.as_ref().filter(|inherited| now.saturating_sub(inherited.since) < EXPIRY);
        fresh.map(|inherited| inherited.migrations.clone()).unwrap_or_default()
    }

    /// Migrations that have not got a target yet, with their priorities.
    pub(super) fn pending(&self) -> impl Iterator<Item = (i32, Key)> {
        let unfinished = self.ctx.stores.migrations.by_index(BY_PROGRESS, UNFINISHED);
        let waiting = unfinished.into_iter().filter(|migration| phase(migration) == Some(&Phase::Pending));
        waiting.map(|migration| (spec_priority(&migration), Key::of(migration.as_ref())))
    }
}

fn has_target(stores: &Stores, migration: &Migration) -> bool {
    let own = uid(&migration.metadata);
    stores.pods.by_index(BY_MIGRATION, own).iter().any(|pod| is_target(pod, own))
}

/// Whether a migration takes its guest away from this node, or did a moment ago.
fn leaves(stores: &Stores, key: &Key, migration: &Migration, node: Option<&str>) -> bool {
    let Some(vmi) = vmi_key(key, migration).and_then(|key| stores.vmis.get(&key)) else { return false };
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    source_node(migration, &vmi) == node || state.and_then(|state| state.source_node.as_deref()) == node
}

fn comes_before(other: &Migration, migration: &Migration) -> bool {
    let rank = |m: &Migration| {
        (std::cmp::Reverse(spec_priority(m)), m.metadata.creation_timestamp.clone(), m.metadata.uid.clone())
    };
    rank(other) < rank(migration)
}

/// Where the installation says it can be reached by others.
fn addresses(kubevirts: &[Arc<KubeVirt>]) -> Vec<String> {
    let statuses = kubevirts.iter().filter_map(|kubevirt| kubevirt.status.as_ref());
    statuses.flat_map(|status| status.synchronization_addresses.iter().cloned()).collect()
}

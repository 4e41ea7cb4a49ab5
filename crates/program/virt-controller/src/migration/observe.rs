//! Gathers the input for a decision about a migration.

use std::sync::Arc;

use api::v1::{
    KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationPhase as Phase,
};
use informer::{EXPIRY, Key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use plan::migration::{Census, Entry, Inherited, World, concerns, slots, source_node};
use plan::object::Kind;

use super::{Migrations, locked, vmi_key};
use crate::owned::uid;
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_MIGRATION, BY_PROGRESS, BY_STATE, BY_UID, UNFINISHED, state_of};
use crate::volumes;

impl Migrations {
    pub(super) fn world(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let migration = stores.migrations.get(key)?;
        let instance = vmi_key(key, &migration);
        let vmi = instance.as_ref().and_then(|key| stores.vmis.get(key)).filter(|vmi| concerns(&migration, vmi));
        let now = self.ctx.clock.api_time();
        let mut world = World::new(migration.clone(), vmi.clone(), self.ctx.config.now(), now);
        let memory = &self.ctx.memory;
        world.unseen = memory.written(Kind::Migration).behind(key, migration.metadata.resource_version.as_deref());
        let expected = [memory.expected(Kind::Pod).open(key), memory.expected(Kind::Claim).open(key)];
        world.behind = expected.into_iter().flatten().max();
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
            if !migration.is_final() {
                self.surroundings(key, vmi, &mut world);
            }
        }
        if migration.is_final() {
            locked(&self.started).remove(key);
        }
        Some(world)
    }

    /// What is needed to render a target Pod and to check the limits.
    fn surroundings(&self, key: &Key, vmi: &VirtualMachineInstance, world: &mut World) {
        let stores = &self.ctx.stores;
        world.namespace = stores.namespaces.get(&Key::new("", &key.namespace));
        world.quotas = stores.quotas.in_namespace(&key.namespace);
        world.policies = stores.policies.all();
        world.nodes = stores.nodes.all();
        world.claims = volumes::claims_of(stores, vmi);
        if world.migration.phase() == Some(&Phase::Pending) {
            world.slots = slots(&world.migration, source_node(&world.migration, vmi), &self.census());
        }
    }

    /// The VMI's own backend-storage claims and those prepared for the migration.
    fn state_claims(&self, key: &Key, vmi: &VirtualMachineInstance) -> Vec<Arc<PersistentVolumeClaim>> {
        let claims = &self.ctx.stores.claims;
        let guest = vmi.metadata.name.as_deref().unwrap_or_default();
        let own = claims.by_index(BY_STATE, &state_of(&key.namespace, guest));
        let prepared = claims.by_index(BY_MIGRATION, &key.to_string());
        own.into_iter().chain(prepared).collect()
    }

    /// Whether this process has recorded this very migration.
    fn is_marked(
        &self,
        marks: &parking_lot::Mutex<std::collections::HashMap<Key, String>>,
        key: &Key,
        migration: &Migration,
    ) -> bool {
        locked(marks).get(key).is_some_and(|marked| marked == uid(&migration.metadata))
    }

    /// All migrations that may count against the limits.
    fn census(&self) -> Census {
        let stores = &self.ctx.stores;
        let entry = |migration: Arc<Migration>| Entry {
            vmi: self.instance_of(&migration),
            pods: stores.pods.by_index(BY_MIGRATION, uid(&migration.metadata)),
            started: self.is_marked(&self.started, &Key::of(migration.as_ref()), &migration),
            migration,
        };
        let left = |migration: Migration| Inherited {
            vmi: self.instance_of(&migration),
            is_cached: !stores.migrations.by_index(BY_UID, uid(&migration.metadata)).is_empty(),
            migration,
        };
        Census {
            unfinished: self.unfinished().into_iter().map(entry).collect(),
            inherited: self.inherited().into_iter().map(left).collect(),
        }
    }

    /// The VMI that a migration names.
    fn instance_of(&self, migration: &Migration) -> Option<Arc<VirtualMachineInstance>> {
        self.ctx.stores.vmis.get(&vmi_key(&Key::of(migration), migration)?)
    }

    /// Migrations started by an earlier process, until the caches are known to show them.
    fn inherited(&self) -> Vec<Migration> {
        let now = self.ctx.clock.elapsed();
        let inherited = locked(&self.inherited);
        let fresh = inherited.as_ref().filter(|inherited| now.saturating_sub(inherited.since) < EXPIRY);
        fresh.map(|inherited| inherited.migrations.clone()).unwrap_or_default()
    }

    /// Unfinished migrations.
    pub(super) fn unfinished(&self) -> Vec<Arc<Migration>> {
        self.ctx.stores.migrations.by_index(BY_PROGRESS, UNFINISHED)
    }
}

/// The synchronization addresses in the status of the installation.
fn addresses(kubevirts: &[Arc<KubeVirt>]) -> Vec<String> {
    let statuses = kubevirts.iter().filter_map(|kubevirt| kubevirt.status.as_ref());
    statuses.flat_map(|status| status.synchronization_addresses.iter().cloned()).collect()
}

//! The synchronization controller: two instances that exchange a guest learn of each other.

use std::sync::Arc;
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::{Key, WorkQueue};
use plan::migration::{concerns, kind, phase};
use plan::synchronization::{Action, Peer, World, decide, exchange};

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::uid;
use crate::reconcile::{Control, Next};
use crate::stores::{BY_EXCHANGE, BY_INSTANCE, Stores};

/// A migration was found to be further than the cache shows; its event is on the way.
const CACHE_CATCHES_UP: Duration = Duration::from_secs(1);

pub(crate) struct Controller<A> {
    ctx: Context<A>,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        Self { ctx }
    }

    /// Both sides are woken by either of the migrations and by either of the instances.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        let (stores, to) = (self.ctx.stores.clone(), queue.clone());
        self.ctx.stores.migrations.subscribe(move |change| wake(&stores, &to, change.object()));
        let (stores, to) = (self.ctx.stores.clone(), queue.clone());
        self.ctx.stores.vmis.subscribe(move |change| {
            let instance = Key::of(change.object().as_ref()).to_string();
            stores.migrations.by_index(BY_INSTANCE, &instance).iter().for_each(|one| wake(&stores, &to, one));
        });
    }

    /// Whether the cache is right about what would forbid to go on.
    async fn is_current(&self, seen: &Migration) -> Result<bool, Error> {
        let meta = &seen.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let live: Option<Migration> = self.ctx.writer.get(namespace, name).await?;
        Ok(live.is_some_and(|live| {
            live.metadata.uid == meta.uid
                && live.metadata.deletion_timestamp == meta.deletion_timestamp
                && phase(&live) == phase(seen)
        }))
    }
}

fn wake(stores: &Stores, queue: &WorkQueue<Key>, migration: &Arc<Migration>) {
    let Some(id) = exchange(migration) else { return };
    queue.add(Key::of(migration.as_ref()));
    stores.migrations.by_index(BY_EXCHANGE, id).iter().for_each(|other| queue.add(Key::of(other.as_ref())));
}

fn instance(stores: &Stores, migration: &Migration) -> Option<Arc<VirtualMachineInstance>> {
    let namespace = migration.metadata.namespace.as_deref().unwrap_or_default();
    let found = stores.vmis.get(&Key::new(namespace, migration.spec.vmi_name.as_deref()?));
    found.filter(|vmi| concerns(migration, vmi))
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let migration = stores.migrations.get(key)?;
        let same_id = exchange(&migration).map(|id| stores.migrations.by_index(BY_EXCHANGE, id)).unwrap_or_default();
        let others = same_id.into_iter().filter(|other| kind(other) != kind(&migration));
        let peers = others.map(|other| Peer { vmi: instance(stores, &other), migration: other });
        Some(World {
            vmi: instance(stores, &migration),
            peers: peers.collect(),
            migration,
            now: self.ctx.clock.api_time(),
        })
    }

    fn forget(&self, _: &Key) {}

    fn decide(world: &World) -> Vec<Action> {
        decide(world)
    }

    async fn execute(&self, key: &Key, world: &World, action: Action) -> Result<Next<Action>, Error> {
        let writer = &self.ctx.writer;
        match action {
            Action::PatchMigration(patch) => drop(writer.patch::<Migration>(key, &key.name, patch).await?),
            Action::PatchVmi { patch, because: _ } => {
                let name = world.migration.spec.vmi_name.clone().unwrap_or_default();
                let vmi = Key::new(&key.namespace, &name);
                drop(writer.patch::<VirtualMachineInstance>(&vmi, &name, patch).await?);
            }
            Action::DeleteMigration { uid: doomed, because } => {
                tracing::info!(migration = %key, because, "giving up one side of a migration between instances");
                debug_assert_eq!(doomed, uid(&world.migration.metadata));
                writer.delete::<Migration>(key, &key.name, &doomed, None).await?;
            }
            Action::ConfirmMigrations { then } => {
                for seen in world.peers.iter().map(|peer| &peer.migration).chain([&world.migration]) {
                    if !self.is_current(seen).await? {
                        return Ok(Next::StopUntil(CACHE_CATCHES_UP));
                    }
                }
                return Ok(Next::Insert(then));
            }
        }
        Ok(Next::Continue)
    }
}

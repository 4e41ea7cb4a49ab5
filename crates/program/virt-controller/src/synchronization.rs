//! The synchronization controller: lets the two VMIs of a migration between VMIs learn of each other.

use std::sync::Arc;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::{Key, WorkQueue};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use machinery::rights::{Right, Verb};
use plan::effect::Never;
use plan::migration::{concerns, kind};
use plan::synchronization::{Action, Look, Peer, World, decide, exchange};

use crate::context::Context;
use crate::controller::{Controller, Expected, Queue, Watches, Workers};
use crate::reconcile::{Control, Next, reconciler};
use crate::stores::{BY_EXCHANGE, BY_INSTANCE, Stores};
use crate::{Error, migration};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-synchronization",
    queue: Queue::Plain,
    workers: Workers::Like(migration::THREADS),
    watches,
    component: "synchronization-controller",
    expects: Expected::NOTHING,
    tracks: &[],
    reads: &[Right::on::<Migration>(&[Verb::Get])],
    writes: &[
        Right::on::<Migration>(&[Verb::Patch, Verb::Delete]),
        Right::on::<VirtualMachineInstance>(&[Verb::Patch]),
    ],
    start: |ctx| reconciler(Exchanges { ctx }, decide),
};

struct Exchanges {
    ctx: Context,
}

/// Either migration and either VMI triggers both sides.
fn watches(on: &mut Watches<'_>) {
    on.changes(|stores| &stores.migrations, |ctx, change| wake(&ctx.stores, &ctx.queue, change.object()));
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| {
            let instance = Key::of(change.object().as_ref()).to_string();
            let of_instance = ctx.stores.migrations.by_index(BY_INSTANCE, &instance);
            of_instance.iter().for_each(|one| wake(&ctx.stores, &ctx.queue, one));
        },
    );
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

impl Control for Exchanges {
    type World = World;
    type Look = Look;
    type Own = Never;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

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

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.migration.object_ref(&()))
    }

    async fn own(&self, _: &Key, _: &World, own: Never) -> Result<Next<Action>, Error> {
        match own {}
    }
}

//! The evacuation controller: creates migrations for VMIs that must leave their node.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::Key;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use machinery::meta::annotation;
use machinery::rights::{Right, Verb};
use plan::effect::Never;
use plan::evacuation::{Action, Guest, World, decide};
use plan::object::Kind;

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Watches, Workers};
use crate::owned::{note, owner_key, uid};
use crate::reconcile::{Control, Next, reconciler};
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_NODE};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-evacuation",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "evacuation-controller-threads",
        default: 3,
        help: "Concurrent node evacuations",
    }),
    watches,
    component: "evacuation-controller",
    // Keyed by node: migrations created for the VMIs on it.
    expects: Expected { creations: &[Kind::Migration], deletions: &[] },
    tracks: &[],
    reads: &[Right::on::<Migration>(&[Verb::Get, Verb::List])],
    writes: &[Right::on::<Migration>(&[Verb::Create])],
    start: |ctx| reconciler(Evacuations { ctx }, decide),
};

struct Evacuations {
    ctx: Context,
}

/// A node is triggered by itself, its VMIs, their migrations, and the end of one of their Pods: a second Pod keeps a
/// VMI from being migrated.
fn watches(on: &mut Watches<'_>) {
    on.objects(|stores| &stores.nodes);
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| node_of(change.object()).into_iter().for_each(|node| ctx.queue.add(node)),
    );
    on.changes(
        |stores| &stores.migrations,
        |ctx, change| {
            let migration = change.object();
            if let Some(node) = annotation(&migration.metadata, api::annotations::EVACUATION_MIGRATION) {
                note(ctx.memory.expected(Kind::Migration), &Key::new("", node), change);
            }
            let namespace = migration.metadata.namespace.clone().unwrap_or_default();
            let name = migration.spec.vmi_name.as_ref();
            let vmi = name.and_then(|name| ctx.stores.vmis.get(&Key::new(namespace, name)));
            vmi.and_then(|vmi| node_of(&vmi)).into_iter().for_each(|node| ctx.queue.add(node));
        },
    );
    on.changes(
        |stores| &stores.pods,
        |ctx, change| {
            let owner = owner_key(&change.object().metadata, VirtualMachineInstance::KIND);
            let vmi = owner.and_then(|key| ctx.stores.vmis.get(&key)).filter(|vmi| is_asked(vmi));
            vmi.and_then(|vmi| node_of(&vmi)).into_iter().for_each(|node| ctx.queue.add(node));
        },
    );
    // The default eviction strategy, or the taint that drains a node, may have changed.
    on.configuration(|stores, queue| stores.nodes.keys().into_iter().for_each(|key| queue.add(key)));
}

fn is_asked(vmi: &VirtualMachineInstance) -> bool {
    let node = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
    node.is_some_and(|node| !node.is_empty())
}

fn node_of(vmi: &VirtualMachineInstance) -> Option<Key> {
    let name = vmi.status.as_ref()?.node_name.clone().filter(|name| !name.is_empty())?;
    Some(Key::new("", name))
}

impl Control for Evacuations {
    type World = World;
    type Look = Never;
    type Own = Never;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let node = stores.nodes.get(key);
        let vmis = stores.vmis.by_index(BY_NODE, &key.name);
        if node.is_none() && vmis.is_empty() {
            return None;
        }
        let guests = vmis.into_iter().map(|vmi| Guest {
            pods: stores.pods.by_index(BY_CONTROLLER, uid(&vmi.metadata)),
            migrations: stores.migrations.by_index(BY_INSTANCE, &Key::of(vmi.as_ref()).to_string()),
            vmi,
        });
        Some(World {
            name: key.name.clone(),
            node,
            guests: guests.collect(),
            config: self.ctx.config.now(),
            behind: self.ctx.memory.expected(Kind::Migration).open(key).is_some(),
            now: self.ctx.clock.api_time(),
        })
    }

    fn about(world: &World) -> Option<ObjectReference> {
        world.node.as_ref().map(|node| node.object_ref(&()))
    }

    async fn own(&self, _: &Key, _: &World, own: Never) -> Result<Next<Action>, Error> {
        match own {}
    }
}

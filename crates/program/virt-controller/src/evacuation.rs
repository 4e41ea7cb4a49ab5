//! The evacuation controller: makes migrations for guests that were asked to leave their node.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::{Expectations, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use machinery::meta::annotation;
use plan::Note;
use plan::evacuation::{Action, Guest, World, decide};

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::{note, owner_key, uid};
use crate::reconcile::{Control, Next};
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_NODE};
use crate::writer::Done;

/// The component that users see in events.
const COMPONENT: &str = "evacuation-controller";

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    /// By node: migrations that were made for guests on it.
    migrations: Expectations,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let migrations = Expectations::new(ctx.clock.clone());
        Self { ctx, migrations }
    }

    /// What wakes a node: itself, the instances on it, their migrations, and the end of a Pod of theirs: a second one keeps
    /// a guest from being moved.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        let stores = &self.ctx.stores;
        stores.nodes.feed(queue);
        let to = queue.clone();
        stores.vmis.subscribe(move |change| node_of(change.object()).into_iter().for_each(|node| to.add(node)));
        let (all, expected, to) = (stores.clone(), self.migrations.clone(), queue.clone());
        stores.migrations.subscribe(move |change| {
            let migration = change.object();
            if let Some(node) = annotation(&migration.metadata, api::annotations::EVACUATION_MIGRATION) {
                note(&expected, &Key::new("", node), change);
            }
            let namespace = migration.metadata.namespace.clone().unwrap_or_default();
            let vmi = migration.spec.vmi_name.as_ref().and_then(|name| all.vmis.get(&Key::new(namespace, name)));
            vmi.and_then(|vmi| node_of(&vmi)).into_iter().for_each(|node| to.add(node));
        });
        let (all, to) = (stores.clone(), queue.clone());
        stores.pods.subscribe(move |change| {
            let owner = owner_key(&change.object().metadata, VirtualMachineInstance::KIND);
            let vmi = owner.and_then(|key| all.vmis.get(&key)).filter(|vmi| is_asked(vmi));
            vmi.and_then(|vmi| node_of(&vmi)).into_iter().for_each(|node| to.add(node));
        });
        // The strategy of instances without one of their own, or the taint that empties a node.
        let (nodes, to) = (stores.nodes.clone(), queue.clone());
        self.ctx.config.on_change(move |_| nodes.keys().into_iter().for_each(|key| to.add(key)));
    }

    fn tell(&self, migration: &Migration, vmi_uid: &str, note: Note) {
        let about = ObjectReference {
            api_version: Some(VirtualMachineInstance::api_version(&()).into_owned()),
            kind: Some(VirtualMachineInstance::kind(&()).into_owned()),
            namespace: migration.metadata.namespace.clone(),
            name: migration.spec.vmi_name.clone(),
            uid: Some(vmi_uid.to_owned()),
            ..ObjectReference::default()
        };
        self.ctx.publish(COMPONENT, about, note);
    }
}

fn is_asked(vmi: &VirtualMachineInstance) -> bool {
    let node = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
    node.is_some_and(|node| !node.is_empty())
}

fn node_of(vmi: &VirtualMachineInstance) -> Option<Key> {
    let name = vmi.status.as_ref()?.node_name.clone().filter(|name| !name.is_empty())?;
    Some(Key::new("", name))
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

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
            behind: self.migrations.open(key).is_some(),
            now: self.ctx.clock.api_time(),
        })
    }

    fn forget(&self, key: &Key) {
        self.migrations.forget(key);
    }

    fn decide(world: &World) -> Vec<Action> {
        decide(world)
    }

    async fn execute(&self, key: &Key, _: &World, action: Action) -> Result<Next<Action>, Error> {
        let Action::Create { migration, vmi_uid, created } = action;
        match self.ctx.create_migration(key, &self.migrations, &migration).await {
            Ok(Done::Now) => self.tell(&migration, &vmi_uid, created),
            Ok(Done::Before) => {}
            Err(error) => {
                self.tell(&migration, &vmi_uid, Action::failure(&error.for_user()));
                return Err(error);
            }
        }
        Ok(Next::Continue)
    }
}

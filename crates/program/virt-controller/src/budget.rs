//! Removes disruption budgets that earlier versions made for instances.

use std::sync::Arc;

use api::v1::VirtualMachineInstance;
use informer::{Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use plan::budget::{Delete, decide};

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::owner_key;
use crate::reconcile::{Control, Next};

/// The component that users see in events.
const COMPONENT: &str = "disruptionbudget-controller";

pub(crate) struct Controller<A> {
    ctx: Context<A>,
}

/// An instance's name and the budgets around it.
pub(crate) struct World {
    instance: String,
    budgets: Vec<Arc<PodDisruptionBudget>>,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        Self { ctx }
    }

    /// Only budgets wake it: without one there is nothing to do for an instance, and each comes as an event.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        let to = queue.clone();
        self.ctx.stores.budgets.subscribe(move |change| {
            let owner = owner_key(&change.object().metadata, VirtualMachineInstance::KIND);
            owner.into_iter().for_each(|key| to.add(key));
        });
    }
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Delete;

    fn observe(&self, key: &Key) -> Option<World> {
        let budgets = self.ctx.stores.budgets.in_namespace(&key.namespace);
        (!budgets.is_empty()).then(|| World { instance: key.name.clone(), budgets })
    }

    fn forget(&self, _: &Key) {}

    fn decide(world: &World) -> Vec<Delete> {
        decide(&world.instance, &world.budgets)
    }

    async fn execute(&self, key: &Key, _: &World, delete: Delete) -> Result<Next<Delete>, Error> {
        let about = self.ctx.stores.vmis.get(key).map_or_else(
            || ObjectReference {
                api_version: Some(VirtualMachineInstance::api_version(&()).into_owned()),
                kind: Some(VirtualMachineInstance::KIND.to_owned()),
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                ..ObjectReference::default()
            },
            |vmi| vmi.object_ref(&()),
        );
        let deleted = self.ctx.writer.delete::<PodDisruptionBudget>(key, &delete.name, &delete.uid, None).await;
        match deleted {
            Ok(_) => self.ctx.publish(COMPONENT, about, delete.deleted),
            Err(error) => {
                self.ctx.publish(COMPONENT, about, delete.failure(&error.for_user()));
                return Err(error);
            }
        }
        Ok(Next::Continue)
    }
}

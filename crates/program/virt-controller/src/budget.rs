//! Removes PodDisruptionBudgets that earlier versions created for VMIs.

use api::v1::VirtualMachineInstance;
use informer::Key;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use machinery::rights::{Right, Verb};
use plan::budget::{World, decide};
use plan::effect::{Effect, Never};

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Watches, Workers};
use crate::owned::owner_key;
use crate::reconcile::{Control, Next, reconciler};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-disruption-budget",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "disruption-budget-controller-threads",
        default: 3,
        help: "Concurrent removals of disruption budgets that earlier versions created",
    }),
    watches,
    component: "disruptionbudget-controller",
    expects: Expected::NOTHING,
    tracks: &[],
    reads: &[],
    writes: &[Right::on::<PodDisruptionBudget>(&[Verb::Delete])],
    start: |ctx| reconciler(Budgets { ctx }, decide),
};

struct Budgets {
    ctx: Context,
}

/// Only budgets trigger it: a VMI without one needs nothing, and each budget arrives as an event.
fn watches(on: &mut Watches<'_>) {
    on.changes(
        |stores| &stores.budgets,
        |ctx, change| {
            let owner = owner_key(&change.object().metadata, VirtualMachineInstance::KIND);
            owner.into_iter().for_each(|key| ctx.queue.add(key));
        },
    );
}

impl Control for Budgets {
    type World = World;
    type Look = Never;
    type Own = Never;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        let budgets = self.ctx.stores.budgets.in_namespace(&key.namespace);
        if budgets.is_empty() {
            return None;
        }
        let gone = || ObjectReference {
            api_version: Some(VirtualMachineInstance::API_VERSION.to_owned()),
            kind: Some(VirtualMachineInstance::KIND.to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ObjectReference::default()
        };
        let instance = self.ctx.stores.vmis.get(key).map_or_else(gone, |vmi| vmi.object_ref(&()));
        Some(World { instance, budgets })
    }

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.instance.clone())
    }

    async fn own(&self, _: &Key, _: &World, own: Never) -> Result<Next<Effect>, Error> {
        match own {}
    }
}

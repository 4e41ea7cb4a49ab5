//! The VirtualMachineInstance controller: observes the stores and acts on the API.

mod observe;
mod triggers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use informer::{EXPIRY, Key};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use machinery::meta::{annotation, is_controlled_by};
use machinery::rights::{Right, Verb};
use parking_lot::{Mutex, MutexGuard};
use plan::SyncError;
use plan::effect::Never;
use plan::object::{Kind, Object};
use plan::vmi::{Action, Look, Settings, World, decide};

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Workers};
use crate::owned::uid;
use crate::reconcile::{Control, Next, reconciler};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-vmi",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "vmi-controller-threads",
        default: 10,
        help: "Concurrent reconciles of VirtualMachineInstances",
    }),
    watches: triggers::watches,
    component: "virtualmachine-controller",
    expects: Expected { creations: &[Kind::Pod, Kind::Claim], deletions: &[Kind::Pod, Kind::Claim] },
    tracks: &[Kind::Vmi, Kind::Pod],
    reads: &[
        Right::on::<VirtualMachine>(&[Verb::Get]),
        Right::on::<VirtualMachineInstance>(&[Verb::Get]),
        Right::on::<VirtualMachineInstanceMigration>(&[Verb::List]),
        Right::on::<Pod>(&[Verb::Get, Verb::List]),
        Right::on::<PersistentVolumeClaim>(&[Verb::Get, Verb::List]),
    ],
    writes: &[
        Right::on::<VirtualMachineInstance>(&[Verb::Update, Verb::Patch]),
        Right::own_by::<VirtualMachineInstance>(),
        Right::on::<Pod>(&[Verb::Create, Verb::Patch, Verb::Delete]),
        Right::on_status::<Pod>(&[Verb::Patch]),
        Right::own_by::<Pod>(),
        Right::on::<PersistentVolumeClaim>(&[Verb::Create, Verb::Patch, Verb::Delete]),
    ],
    start: |ctx| reconciler(Vmis::new(ctx), decide),
};

struct Vmis {
    ctx: Context,
    settings: Arc<Settings>,
    /// VMIs, with UIDs, whose launcher Pod this process has created and whose status does not show it yet.
    launched: Mutex<HashMap<Key, String>>,
    /// When this process started.
    since: Time,
}

impl Vmis {
    fn new(ctx: Context) -> Self {
        let since = ctx.clock.api_time();
        Self { settings: ctx.instances.clone(), ctx, launched: Mutex::default(), since }
    }

    fn launched(&self) -> MutexGuard<'_, HashMap<Key, String>> {
        self.launched.lock()
    }
}

impl Control for Vmis {
    type World = World;
    type Look = Look;
    type Own = Never;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        self.world(key)
    }

    fn forget(&self, key: &Key) {
        self.launched().remove(key);
    }

    fn fail(world: &mut World, error: SyncError) {
        world.failed = Some(error);
    }

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.vmi.object_ref(&()))
    }

    fn created(&self, key: &Key, world: &World, object: &Object) -> Option<Duration> {
        let Object::Pod(pod) = object else { return None };
        let runs_guest = annotation(&pod.metadata, api::annotations::EPHEMERAL_PROVISIONING).is_none();
        let instance = uid(&world.vmi.metadata);
        if runs_guest && is_controlled_by(&pod.metadata, instance) {
            self.launched().insert(key.clone(), instance.to_owned());
        }
        // A Pod that is created and deleted while the watch is down leaves no event, so the key must be requeued.
        Some(EXPIRY)
    }

    async fn own(&self, _: &Key, _: &World, own: Never) -> Result<Next<Action>, Error> {
        match own {}
    }
}

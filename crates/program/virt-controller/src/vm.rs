//! The VirtualMachine controller: observes from the stores and acts on the API.

use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachinePrintableStatus as Printable};
use informer::{Expectations, Key, OwnWrites, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use machinery::meta::{controller_of, is_deleting};
use plan::SyncError;
use plan::vm::{Action, World, decide};
use serde_json::json;

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::{note, owner_key, uid};
use crate::reconcile::{Control, Next};
use crate::stores::BY_CONTROLLER;
use crate::writer::Done;

/// The component that users see in events.
const COMPONENT: &str = "virtualmachine-controller";

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    vmis: Expectations,
    writes: OwnWrites,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let clock = ctx.clock.clone();
        Self { vmis: Expectations::new(clock.clone()), writes: OwnWrites::new(clock), ctx }
    }

    /// What wakes a virtual machine: itself, its instance, an instance of its name that nobody owns, its revisions.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        self.ctx.stores.vms.feed(queue);
        let (vmis, to) = (self.vmis.clone(), queue.clone());
        self.ctx.stores.vmis.subscribe(move |change| {
            let vmi = change.object();
            let owner = match controller_of(&vmi.metadata) {
                Some(_) => owner_key(&vmi.metadata, VirtualMachine::KIND),
                None => Some(Key::of(vmi.as_ref())),
            };
            if let Some(owner) = owner {
                note(&vmis, &owner, change);
                to.add(owner);
            }
        });
        let to = queue.clone();
        self.ctx.stores.revisions.subscribe(move |change| {
            if let Some(owner) = owner_key(&change.object().metadata, VirtualMachine::KIND) {
                to.add(owner);
            }
        });
    }

    async fn create_instance(&self, key: &Key, world: &World, vmi: &VirtualMachineInstance) -> Result<(), Error> {
        self.vmis.expect_creation(key, key.clone());
        let created = self.ctx.writer.create(key, vmi, uid(&world.vm.metadata)).await;
        if !matches!(created, Ok(Done::Now)) {
            self.vmis.created(key, key);
        }
        created.map(drop)
    }

    async fn delete_instance(&self, key: &Key, name: &str, uid: &str) -> Result<(), Error> {
        self.vmis.expect_deletion(key, key.clone());
        let deleted = self.ctx.writer.delete::<VirtualMachineInstance>(key, name, uid, None).await;
        if !matches!(deleted, Ok(Done::Now)) {
            self.vmis.deleted(key, key);
        }
        deleted.map(drop)
    }

    /// Takes over an ownerless instance. The virtual machine is read live: one that is gone must not gain a dependent.
    async fn adopt(&self, key: &Key, name: &str, uid: &str, owner: OwnerReference) -> Result<(), Error> {
        let vm: Option<VirtualMachine> = self.ctx.writer.get(&key.namespace, &key.name).await?;
        let alive = vm.is_some_and(|vm| vm.metadata.uid.as_ref() == Some(&owner.uid) && !is_deleting(&vm.metadata));
        if !alive {
            return Err(Error::OwnerGone { name: key.name.clone() });
        }
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": [owner]}});
        self.ctx.writer.merge::<VirtualMachineInstance>(key, name, patch).await.map(drop)
    }

    async fn update_status(&self, key: &Key, world: &World, vm: &VirtualMachine) -> Result<(), Error> {
        let stored = self.ctx.writer.replace_status(key, vm).await?;
        self.writes.wrote(key, stored.metadata.resource_version.as_deref());
        let word = |vm: &VirtualMachine| vm.status.as_ref().and_then(|status| status.printable_status.clone());
        let (before, after) = (word(&world.vm), word(vm));
        if before != after {
            let status = after.as_ref().map_or("", Printable::as_str);
            tracing::info!(%key, status, writes = self.ctx.writer.writes.of(key), "virtual machine");
        }
        Ok(())
    }
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        let vm = self.ctx.stores.vms.get(key)?;
        let unseen = self.writes.behind(key, vm.metadata.resource_version.as_deref());
        Some(World {
            vmi: self.ctx.stores.vmis.get(key),
            revisions: self.ctx.stores.revisions.by_index(BY_CONTROLLER, uid(&vm.metadata)),
            behind: unseen.into_iter().chain(self.vmis.open(key)).max(),
            hold_starts: self.ctx.hold_starts,
            failed: None,
            now: self.ctx.clock.api_time(),
            vm,
        })
    }

    fn forget(&self, key: &Key) {
        self.vmis.forget(key);
        self.writes.forget(key);
        self.ctx.writer.writes.forget(key);
    }

    fn decide(world: &World) -> Vec<Action> {
        decide(world)
    }

    fn fail(world: &mut World, error: SyncError) {
        world.failed = Some(error);
    }

    fn failure_reason(action: &Action) -> Option<&'static str> {
        action.failure_reason()
    }

    async fn execute(&self, key: &Key, world: &World, action: Action) -> Result<Next<Action>, Error> {
        match action {
            Action::PatchVm(patch) => {
                let stored: VirtualMachine = self.ctx.writer.patch(key, &key.name, patch).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::UpdateStatus(vm) => self.update_status(key, world, &vm).await?,
            Action::AdoptVmi { name, uid, owner } => self.adopt(key, &name, &uid, owner).await?,
            Action::CreateRevision(revision) => {
                self.ctx.writer.create(key, revision.as_ref(), uid(&world.vm.metadata)).await?;
            }
            Action::DeleteRevision { name, uid } => {
                self.ctx.writer.delete::<ControllerRevision>(key, &name, &uid, None).await?;
            }
            Action::CreateVmi { vmi, because: _ } => self.create_instance(key, world, &vmi).await?,
            Action::DeleteVmi { name, uid, because: _ } => self.delete_instance(key, &name, &uid).await?,
            Action::PatchVmi { name, patch } => {
                drop(self.ctx.writer.patch::<VirtualMachineInstance>(key, &name, patch).await?);
            }
            Action::Note(note) => self.ctx.publish(COMPONENT, world.vm.object_ref(&()), note),
            Action::RequeueAfter(delay) => return Ok(Next::After(delay)),
        }
        Ok(Next::Continue)
    }
}

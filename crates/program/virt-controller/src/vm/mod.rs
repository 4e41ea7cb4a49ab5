//! The VirtualMachine controller: observes from the stores and acts on the API.

mod observe;
mod triggers;

use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachinePrintableStatus as Printable};
use informer::{Expectations, Key, OwnWrites};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use machinery::meta::{is_controlled_by, is_deleting};
use plan::SyncError;
use plan::vm::{Action, World, decide};
use serde_json::json;

use crate::Error;
use crate::api::{Api, Kind};
use crate::context::Context;
use crate::error::Request;
use crate::owned::uid;
use crate::reconcile::{Control, Next};

/// The component that users see in events.
const COMPONENT: &str = "virtualmachine-controller";

/// An object was found that the cache does not show yet; its event is on the way.
const CACHE_CATCHES_UP: std::time::Duration = std::time::Duration::from_secs(1);

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    vmis: Expectations,
    data_volumes: Expectations,
    writes: OwnWrites,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let clock = ctx.clock.clone();
        Self {
            vmis: Expectations::new(clock.clone()),
            data_volumes: Expectations::new(clock.clone()),
            writes: OwnWrites::new(clock),
            ctx,
        }
    }

    /// Takes over an ownerless object. The virtual machine is read live: one that is gone must not gain a dependent.
    async fn adopt<K: Kind>(&self, key: &Key, name: &str, uid: &str, owner: OwnerReference) -> Result<(), Error> {
        let vm: Option<VirtualMachine> = self.ctx.writer.get(&key.namespace, &key.name).await?;
        let alive = vm.is_some_and(|vm| vm.metadata.uid.as_ref() == Some(&owner.uid) && !is_deleting(&vm.metadata));
        if !alive {
            return Err(Error::OwnerGone { name: key.name.clone() });
        }
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": [owner]}});
        self.ctx.writer.merge::<K>(key, name, patch).await.map(drop)
    }

    /// Creates a DataVolume. An importer that cannot take over an existing claim says that it exists, and it does.
    async fn create_data_volume(&self, key: &Key, data_volume: &DataVolume, claim_exists: bool) -> Result<(), Error> {
        match self.ctx.create(key, data_volume, &self.data_volumes).await {
            Err(error) if claim_exists && error.for_user().contains("already exists") => {
                tracing::warn!(%key, error = &error as &dyn std::error::Error, "the claim is not taken over");
                Ok(())
            }
            created => created,
        }
    }

    /// Whether somebody may do all of one of the lists.
    async fn is_allowed(&self, any_of: Vec<Vec<SubjectAccessReviewSpec>>) -> Result<bool, Error> {
        'lists: for all in any_of {
            for spec in all {
                let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
                let answer = self.ctx.writer.api().review(&review).await;
                let failed = |error| Error::api("ask who may copy a DataVolume".to_owned(), Request::Plain, error);
                if !answer.map_err(failed)?.status.is_some_and(|status| status.allowed) {
                    continue 'lists;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    async fn authorize(
        &self,
        name: String,
        any_of: Vec<Vec<SubjectAccessReviewSpec>>,
        then: Vec<Action>,
    ) -> Result<Next<Action>, Error> {
        let first = any_of.iter().flatten().next();
        let user = first.and_then(|spec| spec.user.clone()).unwrap_or_default();
        let attributes = first.and_then(|spec| spec.resource_attributes.clone()).unwrap_or_default();
        if self.is_allowed(any_of).await? {
            return Ok(Next::Insert(then));
        }
        let (source, namespace) = (attributes.name.unwrap_or_default(), attributes.namespace.unwrap_or_default());
        Err(Error::NotAuthorized { name, user, source_name: source, namespace })
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

    async fn has_instance(&self, key: &Key, world: &World, name: &str) -> Result<bool, Error> {
        let found: Option<VirtualMachineInstance> = self.ctx.writer.get(&key.namespace, name).await?;
        Ok(found.is_some_and(|vmi| is_controlled_by(&vmi.metadata, uid(&world.vm.metadata))))
    }
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        self.world(key)
    }

    fn forget(&self, key: &Key) {
        self.vmis.forget(key);
        self.data_volumes.forget(key);
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
        let writer = &self.ctx.writer;
        match action {
            Action::PatchVm { patch, reason: _ } => {
                let stored: VirtualMachine = writer.patch(key, &key.name, patch).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::UpdateStatus(vm) => self.update_status(key, world, &vm).await?,
            Action::AdoptVmi { name, uid, owner } => {
                self.adopt::<VirtualMachineInstance>(key, &name, &uid, owner).await?;
            }
            Action::AdoptDataVolume { name, uid, owner } => self.adopt::<DataVolume>(key, &name, &uid, owner).await?,
            Action::CreateRevision(revision) => {
                writer.create(key, revision.as_ref(), uid(&world.vm.metadata)).await?;
            }
            Action::DeleteRevision { name, uid } => {
                writer.delete::<ControllerRevision>(key, &name, &uid, None).await?;
            }
            Action::Authorize { name, any_of, then } => return self.authorize(name, any_of, then).await,
            Action::CreateDataVolume { data_volume, claim_exists } => {
                self.create_data_volume(key, &data_volume, claim_exists).await?;
            }
            Action::CreateVmi { vmi, because: _ } => self.ctx.create(key, vmi.as_ref(), &self.vmis).await?,
            Action::DeleteVmi { name, uid, because: _ } => {
                self.ctx.delete::<VirtualMachineInstance>(key, (&name, &uid), None, &self.vmis).await?;
            }
            Action::ConfirmNoInstance { name, then } => {
                let found = self.has_instance(key, world, &name).await?;
                return Ok(if found { Next::StopUntil(CACHE_CATCHES_UP) } else { Next::Insert(then) });
            }
            Action::PatchVmi { name, patch, reason: _ } => {
                drop(writer.patch::<VirtualMachineInstance>(key, &name, patch).await?);
            }
            Action::PatchClaim { name, patch } => {
                drop(writer.patch::<PersistentVolumeClaim>(key, &name, patch).await?);
            }
            Action::Note(note) => self.ctx.publish(COMPONENT, world.vm.object_ref(&()), note),
            Action::RequeueAfter(delay) => return Ok(Next::After(delay)),
        }
        Ok(Next::Continue)
    }
}

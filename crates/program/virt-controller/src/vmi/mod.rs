//! The VirtualMachineInstance controller: observes from the stores and acts on the API.

mod observe;
mod triggers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use informer::{EXPIRY, Expectations, Key, OwnWrites};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use machinery::meta::{annotation, is_controlled_by, is_deleting};
use plan::SyncError;
use plan::vmi::{Action, Settings, Sort, World, decide};
use serde_json::json;

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::uid;
use crate::reconcile::{Control, Next};

/// The component that users see in events.
const COMPONENT: &str = "virtualmachine-controller";

/// An object was found that the cache does not show yet; its event is on the way.
const CACHE_CATCHES_UP: Duration = Duration::from_secs(1);

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    settings: Arc<Settings>,
    pods: Expectations,
    claims: Expectations,
    writes: OwnWrites,
    /// The last write to a launcher Pod, by its instance.
    pod_writes: OwnWrites,
    /// Instances whose launcher Pod this process has made and which do not show it yet, with their UIDs.
    launched: Mutex<HashMap<Key, String>>,
    /// When this process began to work.
    since: Time,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let (clock, since) = (ctx.clock.clone(), ctx.clock.api_time());
        Self {
            settings: ctx.instances.clone(),
            ctx,
            pods: Expectations::new(clock.clone()),
            claims: Expectations::new(clock.clone()),
            writes: OwnWrites::new(clock.clone()),
            pod_writes: OwnWrites::new(clock),
            launched: Mutex::default(),
            since,
        }
    }

    fn launched(&self) -> MutexGuard<'_, HashMap<Key, String>> {
        self.launched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create_pod(&self, key: &Key, world: &World, pod: &Pod) -> Result<(), Error> {
        self.ctx.create(key, pod, &self.pods).await?;
        let runs_guest = annotation(&pod.metadata, api::annotations::EPHEMERAL_PROVISIONING).is_none();
        let instance = uid(&world.vmi.metadata);
        if runs_guest && is_controlled_by(&pod.metadata, instance) {
            self.launched().insert(key.clone(), instance.to_owned());
        }
        Ok(())
    }

    /// Reads live whether a Pod of the instance exists, of this sort.
    async fn has_pod(&self, key: &Key, world: &World, sort: &Sort) -> Result<bool, Error> {
        let uid = uid(&world.vmi.metadata);
        let labels = format!("{}={uid}", api::labels::CREATED_BY);
        let pods: Vec<Pod> = self.ctx.writer.list(&key.namespace, &labels).await?;
        Ok(pods.iter().any(|pod| is_controlled_by(&pod.metadata, uid) && sort.includes(pod)))
    }

    /// Reads live whether a claim with the guest's own state exists.
    async fn has_state_claim(&self, key: &Key) -> Result<bool, Error> {
        let labels = format!("{}={}", api::labels::PERSISTENT_STATE_FOR, key.name);
        let claims: Vec<PersistentVolumeClaim> = self.ctx.writer.list(&key.namespace, &labels).await?;
        Ok(claims.iter().any(|claim| !is_deleting(&claim.metadata)))
    }

    fn wrote(&self, key: &Key, stored: &ObjectMeta) {
        self.writes.wrote(key, stored.resource_version.as_deref());
    }
}

/// What follows a live look for something that the cache lacks.
fn unless(found: bool, then: Vec<Action>) -> Next<Action> {
    if found { Next::StopUntil(CACHE_CATCHES_UP) } else { Next::Insert(then) }
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        self.world(key)
    }

    fn forget(&self, key: &Key) {
        self.pods.forget(key);
        self.claims.forget(key);
        self.writes.forget(key);
        self.pod_writes.forget(key);
        self.launched().remove(key);
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
            Action::UpdateVmi(vmi) => self.wrote(key, &writer.replace(key, vmi.as_ref()).await?.metadata),
            Action::PatchVmi(patch) => {
                let stored: VirtualMachineInstance = writer.patch(key, &key.name, patch).await?;
                self.wrote(key, &stored.metadata);
            }
            Action::CreatePod { pod, because: _ } => {
                self.create_pod(key, world, &pod).await?;
                // One that comes and goes while the watch is down leaves no event: nobody else would look again.
                return Ok(Next::After(EXPIRY));
            }
            Action::DeletePod { name, uid, at_once, because: _, on_failure: _ } => {
                self.ctx.delete::<Pod>(key, (&name, &uid), at_once.then_some(0), &self.pods).await?;
            }
            Action::PatchPod { name, patch } => {
                let stored: Pod = writer.patch(key, &name, patch).await?;
                self.pod_writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::SetPodCondition { name, uid, condition } => {
                let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
                let stored: Pod = writer.merge_status(key, &name, patch).await?;
                self.pod_writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::CreateClaim { claim, because: _ } => self.ctx.create(key, claim.as_ref(), &self.claims).await?,
            Action::DeleteClaim { name, uid, because: _ } => {
                self.ctx.delete::<PersistentVolumeClaim>(key, (&name, &uid), None, &self.claims).await?;
            }
            Action::PatchClaim { name, patch } => {
                drop(writer.patch::<PersistentVolumeClaim>(key, &name, patch).await?);
            }
            Action::ConfirmNoPods { sort, then } => return Ok(unless(self.has_pod(key, world, &sort).await?, then)),
            Action::ConfirmCurrent { then } => {
                let live: Option<VirtualMachineInstance> = writer.get(&key.namespace, &key.name).await?;
                let version = live.and_then(|vmi| vmi.metadata.resource_version);
                return Ok(unless(version != world.vmi.metadata.resource_version, then));
            }
            Action::ConfirmNoMigration { uid, then } => {
                let all: Vec<VirtualMachineInstanceMigration> = writer.list(&key.namespace, "").await?;
                let there =
                    |migration: &VirtualMachineInstanceMigration| *crate::owned::uid(&migration.metadata) == *uid;
                return Ok(unless(all.iter().any(there), then));
            }
            Action::ConfirmNoStateClaim { then } => return Ok(unless(self.has_state_claim(key).await?, then)),
            Action::Note(note) => self.ctx.publish(COMPONENT, world.vmi.object_ref(&()), note),
            Action::RequeueAfter(delay) => return Ok(Next::After(delay)),
        }
        Ok(Next::Continue)
    }
}

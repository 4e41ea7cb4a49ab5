//! The VirtualMachineInstance controller: observes from the stores and acts on the API.

use std::time::Duration;

use api::v1::{VirtualMachine, VirtualMachineInstance};
use informer::{Change, Expectations, Key, OwnWrites, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use machinery::meta::{controller_of, is_controlled_by};
use plan::SyncError;
use plan::vmi::{Action, Owner, World, decide};
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

/// A Pod was found that the cache does not show yet; its event is on the way.
const CACHE_CATCHES_UP: Duration = Duration::from_secs(1);

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    pods: Expectations,
    writes: OwnWrites,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let clock = ctx.clock.clone();
        Self { pods: Expectations::new(clock.clone()), writes: OwnWrites::new(clock), ctx }
    }

    /// What wakes an instance: itself, its Pods, the end of its virtual machine, and another configuration: that may
    /// decide whether its Pod can be made, and whether its launcher is outdated.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        self.ctx.stores.vmis.feed(queue);
        let (pods, to) = (self.pods.clone(), queue.clone());
        self.ctx.stores.pods.subscribe(move |change| {
            let Some(owner) = owner_key(&change.object().metadata, VirtualMachineInstance::KIND) else { return };
            note(&pods, &owner, change);
            to.add(owner);
        });
        let to = queue.clone();
        self.ctx.stores.vms.subscribe(move |change| {
            if let Change::Deleted(vm) = change {
                to.add(Key::of(vm.as_ref()));
            }
        });
        let (vmis, to) = (self.ctx.stores.vmis.clone(), queue.clone());
        self.ctx.config.on_change(move |_| vmis.keys().into_iter().for_each(|key| to.add(key)));
    }

    fn owner(&self, vmi: &VirtualMachineInstance) -> Owner {
        let controller = controller_of(&vmi.metadata).filter(|owner| owner.kind == VirtualMachine::KIND);
        let Some(owner) = controller else { return Owner::Nobody };
        let key = Key::new(vmi.metadata.namespace.clone().unwrap_or_default(), &owner.name);
        let vm = self.ctx.stores.vms.get(&key).filter(|vm| vm.metadata.uid.as_ref() == Some(&owner.uid));
        if vm.is_some() { Owner::Alive } else { Owner::Gone }
    }

    async fn create_pod(&self, key: &Key, world: &World, pod: &Pod) -> Result<(), Error> {
        let pod_key = Key::new(&key.namespace, pod.metadata.name.clone().unwrap_or_default());
        self.pods.expect_creation(key, pod_key.clone());
        let created = self.ctx.writer.create(key, pod, uid(&world.vmi.metadata)).await;
        if !matches!(created, Ok(Done::Now)) {
            self.pods.created(key, &pod_key);
        }
        created.map(drop)
    }

    async fn delete_pod(&self, key: &Key, name: &str, uid: &str, grace: Option<u32>) -> Result<(), Error> {
        let pod_key = Key::new(&key.namespace, name);
        self.pods.expect_deletion(key, pod_key.clone());
        let deleted = self.ctx.writer.delete::<Pod>(key, name, uid, grace).await;
        if !matches!(deleted, Ok(Done::Now)) {
            self.pods.deleted(key, &pod_key);
        }
        deleted.map(drop)
    }

    /// Reads live whether a Pod of the instance exists, on this node if one is named.
    async fn has_pod(&self, key: &Key, world: &World, node: Option<&str>) -> Result<bool, Error> {
        let uid = uid(&world.vmi.metadata);
        let labels = format!("{}={uid}", api::labels::CREATED_BY);
        let pods: Vec<Pod> = self.ctx.writer.list(&key.namespace, &labels).await?;
        let here = |pod: &Pod| node.is_none() || pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node;
        Ok(pods.iter().any(|pod| is_controlled_by(&pod.metadata, uid) && here(pod)))
    }
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        let vmi = self.ctx.stores.vmis.get(key)?;
        let unseen = self.writes.behind(key, vmi.metadata.resource_version.as_deref());
        Some(World {
            pods: self.ctx.stores.pods.by_index(BY_CONTROLLER, uid(&vmi.metadata)),
            owner: self.owner(&vmi),
            config: self.ctx.config.now(),
            behind: unseen.into_iter().chain(self.pods.open(key)).max(),
            failed: None,
            now: self.ctx.clock.api_time(),
            vmi,
        })
    }

    fn forget(&self, key: &Key) {
        self.pods.forget(key);
        self.writes.forget(key);
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
            Action::UpdateVmi(vmi) => {
                let stored = self.ctx.writer.replace(key, vmi.as_ref()).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::PatchVmi(patch) => {
                let stored: VirtualMachineInstance = self.ctx.writer.patch(key, &key.name, patch).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::CreatePod { pod, because: _ } => self.create_pod(key, world, &pod).await?,
            Action::DeletePod { name, uid, at_once, because: _ } => {
                self.delete_pod(key, &name, &uid, at_once.then_some(0)).await?;
            }
            Action::PatchPod { name, patch } => drop(self.ctx.writer.patch::<Pod>(key, &name, patch).await?),
            Action::SetPodCondition { name, uid, condition } => {
                let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
                drop(self.ctx.writer.merge_status::<Pod>(key, &name, patch).await?);
            }
            Action::ConfirmNoPods { node, then } => {
                let found = self.has_pod(key, world, node.as_deref()).await?;
                return Ok(if found { Next::StopUntil(CACHE_CATCHES_UP) } else { Next::Insert(then) });
            }
            Action::Note(note) => self.ctx.publish(COMPONENT, world.vmi.object_ref(&()), note),
            Action::RequeueAfter(delay) => return Ok(Next::After(delay)),
        }
        Ok(Next::Continue)
    }
}

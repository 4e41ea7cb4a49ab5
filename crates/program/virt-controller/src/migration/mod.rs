//! The migration controller: observes from the stores, confirms by live reads, and acts on the API.

mod observe;
mod triggers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::labels;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::{Expectations, Key, OwnWrites, WorkQueue};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use plan::SyncError;
use plan::migration::{
    Action, Live, World, concerns, decide, hand_off, has_left, has_target_among, job_name, needs_stored_instance,
    next_in_line, occupants, recover, says_the_same, spec_priority, start, state_claims, with_stored_instance,
    with_stored_migration,
};

use crate::Error;
use crate::api::Api;
use crate::context::Context;
use crate::owned::uid;
use crate::reconcile::{Control, Next};

/// The component that users see in events.
const COMPONENT: &str = "virtualmachine-controller";
/// An object was found that the cache does not show yet; its event is on the way.
const CACHE_CATCHES_UP: Duration = Duration::from_secs(1);
/// Whoever holds the lock for starts gets an answer within this time, or lets go of it.
const START: Duration = Duration::from_secs(30);

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    queue: WorkQueue<Key>,
    pods: Expectations,
    claims: Expectations,
    writes: OwnWrites,
    /// One start at a time in the whole process: what was counted is still true when the Pod is made.
    starts: tokio::sync::Mutex<()>,
    /// Migrations that this process has made a target for, or tried to without learning the outcome, with their UIDs. They
    /// count against the limits before the caches show it.
    started: Mutex<HashMap<Key, String>>,
    /// What a process before this one has started, once this one has looked.
    inherited: Mutex<Option<Inherited>>,
    /// Migrations that this process has handed to the nodes, or tried to without learning the outcome, with their UIDs.
    handed_off: Mutex<HashMap<Key, String>>,
}

/// Migrations with a target, as they were stored when this process was first to make one. Its caches may have been behind
/// then: without this it would take their room for free. They catch up soon, so it does not count for ever.
struct Inherited {
    since: Duration,
    migrations: Vec<Migration>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>, queue: WorkQueue<Key>) -> Self {
        let clock = ctx.clock.clone();
        Self {
            ctx,
            queue,
            pods: Expectations::new(clock.clone()),
            claims: Expectations::new(clock.clone()),
            writes: OwnWrites::new(clock),
            starts: tokio::sync::Mutex::default(),
            started: Mutex::default(),
            inherited: Mutex::default(),
            handed_off: Mutex::default(),
        }
    }

    /// Counts, decides and makes the target Pod while nobody else can.
    async fn start(&self, key: &Key) -> Result<Next<Action>, Error> {
        let _alone = self.starts.lock().await;
        self.look_at_inheritance().await?;
        let Some(world) = self.world(key) else { return Ok(Next::Continue) };
        let stored = self.ctx.writer.get(&key.namespace, &key.name).await?;
        let mut world = with_stored_migration(world, stored);
        if let Some(seen) = world.take_if(|world| needs_stored_instance(world)) {
            let stored = self.live_instance(key, &seen).await?;
            world = with_stored_instance(seen, stored);
        }
        let Some(world) = world else { return Ok(Next::StopUntil(CACHE_CATCHES_UP)) };
        let source = match world.source_pod() {
            Some((namespace, name)) => self.ctx.writer.get::<Pod>(&namespace, &name).await?,
            None => None,
        };
        let mut rest = vec![];
        for action in start(&world, source.as_ref()) {
            match action {
                Action::CreateTarget { pod, because: _ } => self.create_target(key, &world, &pod).await?,
                Action::CreateClaim { claim, because: _ } => self.ctx.create(key, claim.as_ref(), &self.claims).await?,
                other => rest.push(other),
            }
        }
        Ok(Next::Insert(rest))
    }

    /// Once in the life of the process.
    async fn look_at_inheritance(&self) -> Result<(), Error> {
        if locked(&self.inherited).is_some() {
            return Ok(());
        }
        let pods: Vec<Pod> = self.ctx.writer.list("", labels::MIGRATION_JOB_UID).await?;
        let migrations = occupants(self.ctx.writer.list("", "").await?, &pods);
        *locked(&self.inherited) = Some(Inherited { since: self.ctx.clock.elapsed(), migrations });
        Ok(())
    }

    /// As [`Self::start`]; a server that does not answer must not hold up every other migration.
    async fn start_in_time(&self, key: &Key) -> Result<Next<Action>, Error> {
        tokio::select! {
            biased;
            done = self.start(key) => done,
            () = self.ctx.clock.sleep(START) => Err(Error::StartHung { seconds: START.as_secs() }),
        }
    }

    async fn create_target(&self, key: &Key, world: &World, pod: &Pod) -> Result<(), Error> {
        let mark = uid(&world.migration.metadata).to_owned();
        locked(&self.started).insert(key.clone(), mark);
        let created = self.ctx.create(key, pod, &self.pods).await;
        if created.as_ref().is_err_and(Error::is_refusal) {
            locked(&self.started).remove(key);
        }
        created
    }

    /// Remembers the hand-off before it is tried: if no answer comes, it may have happened all the same.
    async fn hand_off(&self, key: &Key, world: &World, patch: json_patch::Patch) -> Result<(), Error> {
        let Some(vmi) = vmi_key(key, &world.migration) else { return Ok(()) };
        locked(&self.handed_off).insert(key.clone(), uid(&world.migration.metadata).to_owned());
        let patched = self.ctx.writer.patch::<VirtualMachineInstance>(&vmi, &vmi.name, patch).await;
        if patched.as_ref().is_err_and(Error::is_refusal) {
            locked(&self.handed_off).remove(key);
        }
        patched.map(drop)
    }

    async fn look_before_hand_off(&self, key: &Key, world: &World) -> Result<Live, Error> {
        let writer = &self.ctx.writer;
        let Some(vmi) = vmi_key(key, &world.migration) else { return Ok(Live::default()) };
        let target = match world.target().and_then(|pod| pod.metadata.name.clone()) {
            Some(name) => writer.get(&key.namespace, &name).await?,
            None => None,
        };
        let all: Vec<Migration> = writer.list(&key.namespace, &format!("{}={}", labels::VMI_NAME, vmi.name)).await?;
        // Read last: the patch is guarded by this version of it.
        Ok(Live { vmi: writer.get(&vmi.namespace, &vmi.name).await?, target, migrations: all })
    }

    async fn has_target(&self, key: &Key, world: &World) -> Result<bool, Error> {
        let labels = format!("{}={}", labels::MIGRATION_JOB_UID, uid(&world.migration.metadata));
        let pods: Vec<Pod> = self.ctx.writer.list(&key.namespace, &labels).await?;
        Ok(has_target_among(world, &pods))
    }

    async fn live_instance(&self, key: &Key, world: &World) -> Result<Option<VirtualMachineInstance>, Error> {
        let Some(vmi) = vmi_key(key, &world.migration) else { return Ok(None) };
        let found: Option<VirtualMachineInstance> = self.ctx.writer.get(&vmi.namespace, &vmi.name).await?;
        Ok(found.filter(|vmi| concerns(&world.migration, vmi)))
    }

    /// Has those that could start now looked at.
    fn wake_pending(&self) {
        for migration in next_in_line(self.unfinished(), &self.ctx.config.now()) {
            self.queue.add_with_priority(Key::of(migration.as_ref()), spec_priority(&migration));
        }
    }
}

/// The instance a migration moves.
fn vmi_key(key: &Key, migration: &Migration) -> Option<Key> {
    migration.spec.vmi_name.as_ref().map(|name| Key::new(&key.namespace, name))
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
        locked(&self.started).remove(key);
        locked(&self.handed_off).remove(key);
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
            Action::UpdateStatus(migration) => {
                let stored: Migration = writer.replace_status(key, migration.as_ref()).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::PatchMigration(patch) => {
                let stored: Migration = writer.patch(key, &key.name, patch).await?;
                self.writes.wrote(key, stored.metadata.resource_version.as_deref());
            }
            Action::DeleteMigration { name, uid, .. } => {
                writer.delete::<Migration>(key, &name, &uid, None).await?;
            }
            Action::PatchVmi { patch, because: _ } => {
                if let Some(vmi) = vmi_key(key, &world.migration) {
                    drop(writer.patch::<VirtualMachineInstance>(&vmi, &vmi.name, patch).await?);
                }
            }
            Action::HandOff(patch) => self.hand_off(key, world, patch).await?,
            Action::ForgetHandOff => drop(locked(&self.handed_off).remove(key)),
            Action::Start => return self.start_in_time(key).await,
            Action::ConfirmHandOff => {
                return Ok(Next::Insert(hand_off(world, &self.look_before_hand_off(key, world).await?)));
            }
            Action::Recover { because } => {
                let job: Option<Job> = writer.get(&key.namespace, &job_name(&world.migration)).await?;
                let mut world = world.clone();
                world.state_claims.clear();
                for name in state_claims(&world) {
                    let claim: Option<PersistentVolumeClaim> = writer.get(&key.namespace, &name).await?;
                    world.state_claims.extend(claim.map(Arc::new));
                }
                return Ok(Next::Insert(recover(&world, job.as_ref(), &because)));
            }
            Action::CreateTarget { pod, because: _ } => self.create_target(key, world, &pod).await?,
            Action::CreateAttachment { pod, because: _ } => self.ctx.create(key, pod.as_ref(), &self.pods).await?,
            Action::DeletePod { name, uid, because: _ } => {
                self.ctx.delete::<Pod>(key, (&name, &uid), None, &self.pods).await?
            }
            Action::PatchPod { name, patch, because: _ } => drop(writer.patch::<Pod>(key, &name, patch).await?),
            Action::CreateClaim { claim, because: _ } => self.ctx.create(key, claim.as_ref(), &self.claims).await?,
            Action::DeleteClaim { name, uid, because: _ } => {
                writer.delete::<PersistentVolumeClaim>(key, &name, &uid, None).await?;
            }
            Action::PatchClaim { name, patch, because: _ } => {
                drop(writer.patch::<PersistentVolumeClaim>(key, &name, patch).await?);
            }
            Action::CreateJob(job) => {
                writer.create(key, job.as_ref(), uid(&world.migration.metadata)).await?;
            }
            Action::DeleteJob { name, uid, because: _ } => {
                writer.delete::<Job>(key, &name, &uid, None).await?;
            }
            Action::ConfirmNoVmi { then } => {
                return Ok(unless(self.live_instance(key, world).await?.is_some(), then));
            }
            Action::ConfirmState { then } => {
                let stored = self.live_instance(key, world).await?;
                return Ok(unless(!says_the_same(world, stored.as_ref()), then));
            }
            Action::ConfirmNoTarget { then } => return Ok(unless(self.has_target(key, world).await?, then)),
            Action::ConfirmGuestNotOn { node, then } => {
                let stored = self.live_instance(key, world).await?;
                return Ok(unless(!has_left(stored.as_ref(), &node), then));
            }
            Action::Note(note) => self.ctx.publish(COMPONENT, world.migration.object_ref(&()), note),
            Action::NoteVmi(note) => {
                let about = world.vmi.as_ref().map(|vmi| vmi.object_ref(&()));
                about.into_iter().for_each(|about| self.ctx.publish(COMPONENT, about, note.clone()));
            }
            Action::WakePending => self.wake_pending(),
            // Not by way of the pass: only the queue knows priorities.
            Action::RequeueAfter { delay, priority } => {
                self.queue.add_after_with_priority(key.clone(), delay, priority);
            }
        }
        Ok(Next::Continue)
    }
}

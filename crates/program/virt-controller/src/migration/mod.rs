//! The migration controller: observes the stores, confirms by live reads, and acts on the API.

mod observe;
mod triggers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::labels;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};
use kube::Resource;
use machinery::rights::{Right, Verb};
use parking_lot::{Mutex, MutexGuard};
use plan::SyncError;
use plan::migration::{
    Action, Live, Look, Own, World, concerns, decide, hand_off, job_name, needs_stored_instance, next_in_line,
    occupants, recover, spec_priority, start, state_claims, with_stored_instance, with_stored_migration,
};
use plan::object::{Kind, Object};

use crate::Error;
use crate::api::{Part, Patch};
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Workers};
use crate::execute::{CACHE_CATCHES_UP, execute_within};
use crate::moves::OneAtATime;
use crate::owned::uid;
use crate::reconcile::{Control, Next, reconciler};

/// The number of workers for migrations, and for their synchronization between two VMIs.
pub(crate) const THREADS: Flag = Flag {
    name: "migration-controller-threads",
    default: 3,
    help: "Concurrent reconciles of migrations; the KubeVirt object says how many migrations run",
};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-migration",
    queue: Queue::Prioritized,
    workers: Workers::Flag(THREADS),
    watches: triggers::watches,
    component: "virtualmachine-controller",
    expects: Expected { creations: &[Kind::Pod, Kind::Claim], deletions: &[Kind::Pod] },
    tracks: &[Kind::Migration],
    reads: &[
        Right::on::<Migration>(&[Verb::Get, Verb::List]),
        Right::on::<VirtualMachineInstance>(&[Verb::Get]),
        Right::on::<Pod>(&[Verb::Get, Verb::List]),
        Right::on::<PersistentVolumeClaim>(&[Verb::Get]),
        Right::on::<Job>(&[Verb::Get]),
    ],
    writes: &[
        Right::on::<Migration>(&[Verb::Patch, Verb::Delete]),
        Right::on_status::<Migration>(&[Verb::Update]),
        Right::own_by::<Migration>(),
        Right::on::<VirtualMachineInstance>(&[Verb::Patch]),
        Right::own_by::<VirtualMachineInstance>(),
        Right::on::<Pod>(&[Verb::Create, Verb::Patch, Verb::Delete]),
        Right::own_by::<Pod>(),
        Right::on::<PersistentVolumeClaim>(&[Verb::Create, Verb::Patch, Verb::Delete]),
        Right::on::<Job>(&[Verb::Create, Verb::Delete]),
    ],
    start: |ctx| reconciler(Migrations::new(ctx), decide),
};

struct Migrations {
    ctx: Context,
    /// The counted migrations must still be right when a target Pod is created.
    starts: OneAtATime,
    /// Migrations, with UIDs, whose target Pod this process has created or tried to create without learning the
    /// outcome. They count against the limits before the caches show the Pod.
    started: Mutex<HashMap<Key, String>>,
    /// Migrations started by an earlier process, once looked up.
    inherited: Mutex<Option<Inherited>>,
    /// Migrations, with UIDs, that this process has handed to the nodes, or tried to without learning the outcome.
    handed_off: Mutex<HashMap<Key, String>>,
}

/// Migrations with a target Pod, read live when this process first starts one. Its caches may be stale at that time,
/// which would exceed the limits. They catch up soon, so this list expires.
struct Inherited {
    since: Duration,
    migrations: Vec<Migration>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Migrations {
    fn new(ctx: Context) -> Self {
        Self {
            ctx,
            starts: OneAtATime::default(),
            started: Mutex::default(),
            inherited: Mutex::default(),
            handed_off: Mutex::default(),
        }
    }

    /// Checks the limits, decides and creates the target Pod. Must run under the start lock.
    async fn start(&self, key: &Key) -> Result<Next<Action>, Error> {
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
        let creates = |action: &Action| matches!(action, Action::Create { .. } | Action::Own(Own::CreateTarget { .. }));
        let (creations, rest): (Vec<_>, Vec<_>) = start(&world, source.as_ref()).into_iter().partition(creates);
        for creation in creations {
            execute_within(self, key, &world, creation).await?;
        }
        Ok(Next::Insert(rest))
    }

    /// Runs once per process.
    async fn look_at_inheritance(&self) -> Result<(), Error> {
        if locked(&self.inherited).is_some() {
            return Ok(());
        }
        let pods: Vec<Pod> = self.ctx.writer.list("", labels::MIGRATION_JOB_UID).await?;
        let migrations = occupants(self.ctx.writer.list("", "").await?, &pods);
        *locked(&self.inherited) = Some(Inherited { since: self.ctx.clock.elapsed(), migrations });
        Ok(())
    }

    async fn create_target(&self, key: &Key, world: &World, pod: Box<Pod>) -> Result<(), Error> {
        let mark = uid(&world.migration.metadata).to_owned();
        locked(&self.started).insert(key.clone(), mark);
        let created = self.ctx.create(key, &Object::Pod(pod)).await;
        if created.as_ref().is_err_and(Error::is_refusal) {
            locked(&self.started).remove(key);
        }
        created.map(drop)
    }

    /// Records the hand-off before attempting it: without a response it may have happened all the same.
    async fn hand_off(&self, key: &Key, world: &World, patch: json_patch::Patch) -> Result<(), Error> {
        let Some(vmi) = vmi_key(key, &world.migration) else { return Ok(()) };
        locked(&self.handed_off).insert(key.clone(), uid(&world.migration.metadata).to_owned());
        let patched = self.ctx.writer.patch(&vmi, Kind::Vmi, &vmi.name, Part::Object, &Patch::Json(patch)).await;
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
        // Read last: the patch is guarded by its resource version.
        Ok(Live { vmi: writer.get(&vmi.namespace, &vmi.name).await?, target, migrations: all })
    }

    /// Looks for the Job that determines how the migration ended, and at the claims of both sides.
    async fn recover(&self, key: &Key, world: &World, because: &str) -> Result<Next<Action>, Error> {
        let writer = &self.ctx.writer;
        let job: Option<Job> = writer.get(&key.namespace, &job_name(&world.migration)).await?;
        let mut world = world.clone();
        world.state_claims.clear();
        for name in state_claims(&world) {
            let claim: Option<PersistentVolumeClaim> = writer.get(&key.namespace, &name).await?;
            world.state_claims.extend(claim.map(Arc::new));
        }
        Ok(Next::Insert(recover(&world, job.as_ref(), because)))
    }

    async fn live_instance(&self, key: &Key, world: &World) -> Result<Option<VirtualMachineInstance>, Error> {
        let Some(vmi) = vmi_key(key, &world.migration) else { return Ok(None) };
        let found: Option<VirtualMachineInstance> = self.ctx.writer.get(&vmi.namespace, &vmi.name).await?;
        Ok(found.filter(|vmi| concerns(&world.migration, vmi)))
    }

    /// Requeues pending migrations that could start now.
    fn wake_pending(&self) {
        for migration in next_in_line(self.unfinished(), &self.ctx.config.now()) {
            self.ctx.queue.add_with_priority(Key::of(migration.as_ref()), spec_priority(&migration));
        }
    }
}

/// The VMI of a migration.
fn vmi_key(key: &Key, migration: &Migration) -> Option<Key> {
    migration.spec.vmi_name.as_ref().map(|name| Key::new(&key.namespace, name))
}

impl Control for Migrations {
    type World = World;
    type Look = Look;
    type Own = Own;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        self.world(key)
    }

    fn forget(&self, key: &Key) {
        locked(&self.started).remove(key);
        locked(&self.handed_off).remove(key);
    }

    fn fail(world: &mut World, error: SyncError) {
        world.failed = Some(error);
    }

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.migration.object_ref(&()))
    }

    async fn own(&self, key: &Key, world: &World, own: Own) -> Result<Next<Action>, Error> {
        match own {
            Own::HandOff(patch) => self.hand_off(key, world, patch).await?,
            Own::ForgetHandOff => drop(locked(&self.handed_off).remove(key)),
            Own::Start => return self.starts.run(&self.ctx.clock, self.start(key)).await,
            Own::ConfirmHandOff => {
                return Ok(Next::Insert(hand_off(world, &self.look_before_hand_off(key, world).await?)));
            }
            Own::Recover { because } => return self.recover(key, world, &because).await,
            Own::CreateTarget { pod, because: _ } => self.create_target(key, world, pod).await?,
            Own::WakePending => self.wake_pending(),
            // Added directly: the requeue of a reconcile has no priority.
            Own::RequeueAfter { delay, priority } => {
                self.ctx.queue.add_after_with_priority(key.clone(), delay, priority);
            }
        }
        Ok(Next::Continue)
    }
}

//! The workload updater: makes migrations and evictions that bring guests up to date.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::v1::{KubeVirt, VirtualMachineInstanceMigration as Migration};
use informer::{Expectations, Key, RetryLimits, WorkQueue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta::annotation;
use plan::Note;
use plan::workload::{Action, Guest, World, decide, is_pending};

use crate::Error;
use crate::api::Api;
use crate::config::in_force;
use crate::context::Context;
use crate::owned::{deleting, note, uid};
use crate::reconcile::{Control, Next};
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_PROGRESS, BY_UPDATE, PENDING_UPDATE, Stores, UNFINISHED};
use crate::writer::Done;

/// The component that users see in events.
const COMPONENT: &str = api::events::source::WORKLOAD_UPDATE;
/// Many instances change at once, and nothing here is urgent: one look serves all that happened in this time.
const DELAY: Duration = Duration::from_secs(5);
/// Nothing here is worth a hurry after a failure either.
pub(crate) const LIMITS: RetryLimits =
    RetryLimits { first: Duration::from_secs(5), longest: Duration::from_secs(300), per_second: 0.2, burst: 1.0 };

pub(crate) struct Controller<A> {
    ctx: Context<A>,
    /// By KubeVirt object: migrations that were made, or given up.
    migrations: Expectations,
    /// When something was last evicted, or this process began.
    last_batch: Mutex<Time>,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        let migrations = Expectations::new(ctx.clock.clone());
        let last_batch = Mutex::new(Time(ctx.clock.now()));
        Self { ctx, migrations, last_batch }
    }

    /// What wakes it: the KubeVirt object, instances with something left to do, and every migration, since its end makes
    /// room. Beyond that each pass asks for the next.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        let stores = &self.ctx.stores;
        let to = queue.clone();
        stores.kubevirts.subscribe(move |change| to.add_after(Key::of(change.object().as_ref()), DELAY));
        let (all, to) = (stores.clone(), queue.clone());
        stores.vmis.subscribe(move |change| {
            if is_pending(change.object()) {
                wake(&all, &to);
            }
        });
        let (all, expected, to) = (stores.clone(), self.migrations.clone(), queue.clone());
        stores.migrations.subscribe(move |change| {
            let ours = annotation(&change.object().metadata, api::annotations::WORKLOAD_UPDATE_MIGRATION).is_some();
            if let Some(key) = installation(&all).filter(|_| ours) {
                note(&expected, &key, change);
            }
            wake(&all, &to);
        });
    }

    fn guests(&self, unfinished: &[Arc<Migration>]) -> Vec<Guest> {
        let stores = &self.ctx.stores;
        let ours = |m: &&Arc<Migration>| annotation(&m.metadata, api::annotations::WORKLOAD_UPDATE_MIGRATION).is_some();
        let moved = unfinished.iter().filter(ours).filter_map(|migration| {
            Some(Key::new(migration.metadata.namespace.clone()?, migration.spec.vmi_name.clone()?))
        });
        let keys: BTreeSet<Key> =
            stores.vmis.keys_by_index(BY_UPDATE, PENDING_UPDATE).into_iter().chain(moved).collect();
        let guest = |key: &Key| {
            let vmi = stores.vmis.get(key)?;
            let pods = stores.pods.by_index(BY_CONTROLLER, uid(&vmi.metadata));
            Some(Guest { pods, migrations: stores.migrations.by_index(BY_INSTANCE, &key.to_string()), vmi })
        };
        keys.iter().filter_map(guest).collect()
    }

    async fn abort(&self, owner: &Key, migration: &Key, uid: &str) -> Result<Done, Error> {
        let delete = self.ctx.writer.delete::<Migration>(migration, &migration.name, uid, None);
        deleting(&self.migrations, owner, migration, delete).await
    }

    /// A batch lasts until its last request: the next one comes a whole interval after that.
    async fn evict(&self, pod: &Key, uid: &str) -> Result<Done, Error> {
        *self.last_batch.lock().unwrap_or_else(PoisonError::into_inner) = Time(self.ctx.clock.now());
        self.ctx.writer.evict(pod, uid).await
    }

    /// Carries out one of the actions that are tried once; says what to tell if something came of it.
    async fn attempt(&self, key: &Key, action: &Action) -> Result<Option<Note>, Error> {
        let (done, told) = match action {
            Action::Create { migration, created, about: _ } => {
                (self.ctx.create_migration(key, &self.migrations, migration).await?, created)
            }
            Action::Abort { namespace, name, uid, aborted, about: _ } => {
                (self.abort(key, &Key::new(namespace, name), uid).await?, aborted)
            }
            Action::Evict { namespace, pod, uid, evicted, about: _ } => {
                (self.evict(&Key::new(namespace, pod), uid).await?, evicted)
            }
            Action::Count(_) | Action::RequeueAfter(_) => return Ok(None),
        };
        Ok((done == Done::Now).then(|| told.clone()))
    }
}

/// The KubeVirt object that counts.
fn installation(stores: &Stores) -> Option<Key> {
    in_force(&stores.kubevirts.all()).map(|kubevirt| Key::of(kubevirt.as_ref()))
}

fn wake(stores: &Stores, queue: &WorkQueue<Key>) {
    installation(stores).into_iter().for_each(|key| queue.add_after(key, DELAY));
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let kubevirt = in_force(&stores.kubevirts.all()).filter(|kubevirt| Key::of(kubevirt.as_ref()) == *key)?;
        let unfinished = stores.migrations.by_index(BY_PROGRESS, UNFINISHED);
        Some(World {
            kubevirt,
            guests: self.guests(&unfinished),
            unfinished,
            config: self.ctx.config.now(),
            last_batch: self.last_batch.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            behind: self.migrations.open(key),
            hold: self.ctx.hold_starts,
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
        match &action {
            Action::Count(patch) => {
                drop(self.ctx.writer.patch_status::<KubeVirt>(key, &key.name, patch.clone()).await?);
            }
            Action::RequeueAfter(delay) => return Ok(Next::After(*delay)),
            Action::Create { about, .. } | Action::Abort { about, .. } | Action::Evict { about, .. } => {
                match self.attempt(key, &action).await {
                    Ok(told) => told.into_iter().for_each(|told| {
                        self.ctx.publish(COMPONENT, about.as_ref().clone(), told);
                    }),
                    Err(error) => {
                        let cause = &error as &dyn std::error::Error;
                        tracing::debug!(%key, %action, error = cause, "one guest cannot be updated now");
                        let failure = action.failure(&error.for_user());
                        failure.into_iter().for_each(|(about, told)| self.ctx.publish(COMPONENT, about, told));
                    }
                }
            }
        }
        Ok(Next::Continue)
    }
}

//! The workload updater: creates migrations and evictions that move VMIs to up-to-date launchers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{KubeVirt, VirtualMachineInstanceMigration as Migration};
use informer::{Key, RetryLimits};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use machinery::meta::annotation;
use machinery::rights::{Right, Verb};
use parking_lot::{Mutex, MutexGuard};
use plan::effect::Never;
use plan::object::Kind;
use plan::workload::{Action, Guest, Own, World, decide, is_pending};

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Queue, Watches, Workers};
use crate::execute::after;
use crate::owned::{note, uid};
use crate::reconcile::{Control, Next, reconciler};
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_PROGRESS, BY_UPDATE, PENDING_UPDATE, UNFINISHED};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-workload-update",
    queue: Queue::Limited(LIMITS),
    // There is only one key.
    workers: Workers::Fixed(1),
    watches,
    component: api::events::source::WORKLOAD_UPDATE,
    // Keyed by KubeVirt object: migrations created or aborted.
    expects: Expected { creations: &[Kind::Migration], deletions: &[Kind::Migration] },
    tracks: &[],
    reads: &[Right::on::<Migration>(&[Verb::Get, Verb::List])],
    writes: &[
        Right::on::<Migration>(&[Verb::Create, Verb::Delete]),
        Right::on::<Pod>(&[Verb::Create]).of("eviction"),
        Right::on_status::<KubeVirt>(&[Verb::Patch]),
    ],
    start: |ctx| reconciler(Updates::new(ctx), decide),
};

/// Many VMIs change at once and nothing here is urgent, so changes within this time are batched.
const DELAY: Duration = Duration::from_secs(5);
/// Retries are not urgent either.
const LIMITS: RetryLimits =
    RetryLimits { first: Duration::from_secs(5), longest: Duration::from_secs(300), per_second: 0.2, burst: 1.0 };

struct Updates {
    ctx: Context,
    /// Time of the last eviction, or the start of this process.
    last_batch: Mutex<Time>,
}

/// Triggered by the KubeVirt object, by VMIs with pending updates, and by every migration, since its end frees a slot.
/// Beyond that each reconcile requeues itself.
fn watches(on: &mut Watches<'_>) {
    on.changes(
        |stores| &stores.kubevirts,
        |ctx, change| {
            ctx.queue.add_after(Key::of(change.object().as_ref()), DELAY);
            wake(ctx); // another object may be in force now
        },
    );
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| {
            if is_pending(change.object()) {
                wake(ctx);
            }
        },
    );
    on.changes(
        |stores| &stores.migrations,
        |ctx, change| {
            let ours = annotation(&change.object().metadata, api::annotations::WORKLOAD_UPDATE_MIGRATION).is_some();
            if let Some(key) = installation(ctx).filter(|_| ours) {
                note(ctx.memory.expected(Kind::Migration), &key, change);
            }
            wake(ctx);
        },
    );
}

impl Updates {
    fn new(ctx: Context) -> Self {
        let last_batch = Mutex::new(Time(ctx.clock.now()));
        Self { ctx, last_batch }
    }

    fn last_batch(&self) -> MutexGuard<'_, Time> {
        self.last_batch.lock()
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
}

/// The KubeVirt object in force.
fn installation(ctx: &Context) -> Option<Key> {
    ctx.config.kubevirt(&ctx.stores.kubevirts).map(|kubevirt| Key::of(kubevirt.as_ref()))
}

fn wake(ctx: &Context) {
    installation(ctx).into_iter().for_each(|key| ctx.queue.add_after(key, DELAY));
}

impl Control for Updates {
    type World = World;
    type Look = Never;
    type Own = Own;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let kubevirt =
            self.ctx.config.kubevirt(&stores.kubevirts).filter(|kubevirt| Key::of(kubevirt.as_ref()) == *key)?;
        let unfinished = stores.migrations.by_index(BY_PROGRESS, UNFINISHED);
        Some(World {
            kubevirt,
            guests: self.guests(&unfinished),
            unfinished,
            config: self.ctx.config.now(),
            last_batch: self.last_batch().clone(),
            behind: self.ctx.memory.expected(Kind::Migration).open(key),
            hold: self.ctx.hold_starts,
            now: self.ctx.clock.api_time(),
        })
    }

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.kubevirt.object_ref(&()))
    }

    async fn own(&self, _: &Key, _: &World, own: Own) -> Result<Next<Action>, Error> {
        let Own::Evict { namespace, pod, uid } = own;
        // A batch lasts until its last request: the next one follows a full interval later.
        *self.last_batch() = Time(self.ctx.clock.now());
        self.ctx.writer.evict(&Key::new(namespace, pod), &uid).await.map(after)
    }
}

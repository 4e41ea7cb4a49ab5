//! What triggers a migration, and with which priority.

use std::sync::Arc;

use api::conditions;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use informer::{Change, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::label;
use plan::migration::{RUNNING_PRIORITY, priority};
use plan::object::Kind;

use crate::context::Context;
use crate::controller::Watches;
use crate::owned::{note, owner_key};
use crate::stores::{BY_INSTANCE, BY_PROGRESS, BY_UID, Stores, UNFINISHED};

/// The migration itself, its VMI, Pods and claims, quotas that rejected it, a new configuration, and the end of another
/// migration of its VMI.
pub(super) fn watches(on: &mut Watches<'_>) {
    on.changes(
        |stores| &stores.migrations,
        |ctx, change| {
            let migration = change.object();
            add(&ctx.queue, migration);
            if migration.is_final() || matches!(change, Change::Deleted(_)) {
                siblings(&ctx.stores, migration).iter().for_each(|sibling| add(&ctx.queue, sibling));
            }
        },
    );
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| {
            let instance = Key::of(change.object().as_ref()).to_string();
            let moves = ctx.stores.migrations.by_index(BY_INSTANCE, &instance);
            moves.iter().for_each(|migration| add(&ctx.queue, migration));
        },
    );
    on.changes(|stores| &stores.pods, pod_changed);
    on.changes(
        |stores| &stores.claims,
        |ctx, change| {
            let claim = change.object();
            let Some(name) = label(&claim.metadata, api::labels::MIGRATION_NAME) else { return };
            let key = Key::new(claim.metadata.namespace.clone().unwrap_or_default(), name);
            note(ctx.memory.expected(Kind::Claim), &key, change);
            ctx.queue.add_with_priority(key, RUNNING_PRIORITY);
        },
    );
    on.changes(
        |stores| &stores.quotas,
        |ctx, change| {
            let namespace = change.object().metadata.namespace.clone().unwrap_or_default();
            let refused = ctx.stores.migrations.in_namespace(&namespace);
            refused.iter().filter(|migration| is_refused(migration)).for_each(|migration| add(&ctx.queue, migration));
        },
    );
    on.changes(
        |stores| &stores.kubevirts,
        |ctx, _| {
            let unfinished = ctx.stores.migrations.by_index(BY_PROGRESS, UNFINISHED);
            unfinished.iter().for_each(|migration| add(&ctx.queue, migration));
        },
    );
}

fn pod_changed(ctx: &Context, change: &Change<Pod>) {
    let (expected, queue) = (ctx.memory.expected(Kind::Pod), &ctx.queue);
    // A finished migration removes the Pods of older ones, which are not labelled with it.
    for migration in siblings_of(&ctx.stores, change.object()) {
        let key = Key::of(migration.as_ref());
        if expected.open(&key).is_some() {
            note(expected, &key, change);
            add(queue, &migration);
        }
    }
    let Some(migration) = served(&ctx.stores, change.object()) else { return };
    let key = Key::of(migration.as_ref());
    note(expected, &key, change);
    match change {
        Change::Deleted(_) => add(queue, &migration),
        Change::Added(_) | Change::Updated { .. } => queue.add_with_priority(key, RUNNING_PRIORITY),
    }
}

fn add(queue: &WorkQueue<Key>, migration: &Arc<Migration>) {
    queue.add_with_priority(Key::of(migration.as_ref()), priority(migration));
}

/// All migrations of the VMI that controls the Pod.
fn siblings_of(stores: &Stores, pod: &Pod) -> Vec<Arc<Migration>> {
    let instance = owner_key(&pod.metadata, VirtualMachineInstance::KIND);
    instance.map(|key| stores.migrations.by_index(BY_INSTANCE, &key.to_string())).unwrap_or_default()
}

/// The migration that a target Pod, or an attachment Pod next to it, was created for.
fn served(stores: &Stores, pod: &Pod) -> Option<Arc<Migration>> {
    let uid = label(&pod.metadata, api::labels::MIGRATION_JOB_UID)?;
    stores.migrations.by_index(BY_UID, uid).into_iter().next()
}

fn siblings(stores: &Stores, migration: &Migration) -> Vec<Arc<Migration>> {
    let namespace = migration.metadata.namespace.as_deref().unwrap_or_default();
    let name = migration.spec.vmi_name.as_deref().unwrap_or_default();
    let all = stores.migrations.by_index(BY_INSTANCE, &format!("{namespace}/{name}"));
    all.into_iter().filter(|other| other.metadata.uid != migration.metadata.uid && !other.is_final()).collect()
}

fn is_refused(migration: &Migration) -> bool {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::is_true(list, conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA)
}

//! What triggers a VM.

use api::config::ClusterConfig;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use informer::{Change, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta::controller_of;
use plan::object::Kind;

use crate::controller::Watches;
use crate::owned::{note, owner_key};
use crate::stores::{BY_CLAIM, BY_DATA_VOLUME, Stores};

/// The VM itself, its VMI, an ownerless VMI of its name, its revisions, its DataVolumes and claims, and the settings of
/// the cluster and its namespace.
pub(super) fn watches(on: &mut Watches<'_>) {
    on.objects(|stores| &stores.vms);
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| {
            let Some(owner) = machine_of(&ctx.stores, change) else { return };
            note(ctx.memory.expected(Kind::Vmi), &owner, change);
            ctx.queue.add(owner);
        },
    );
    // A revision appears together with the VMI created from it; one reconcile is enough.
    on.changes(
        |stores| &stores.revisions,
        |ctx, change| {
            let owner = owner_key(&change.object().metadata, VirtualMachine::KIND);
            if let Some(owner) = owner.filter(|owner| ctx.memory.expected(Kind::Vmi).satisfied(owner)) {
                ctx.queue.add(owner);
            }
        },
    );
    watch_volumes(on);
    watch_settings(on);
}

fn watch_volumes(on: &mut Watches<'_>) {
    on.changes(
        |stores| &stores.data_volumes,
        |ctx, change| {
            let meta = &change.object().metadata;
            if let Some(owner) = owner_key(meta, VirtualMachine::KIND) {
                note(ctx.memory.expected(Kind::DataVolume), &owner, change);
                ctx.queue.add(owner);
            }
            to_users(&ctx.stores, meta, &ctx.queue);
        },
    );
    on.changes(
        |stores| &stores.claims,
        |ctx, change| {
            if matters(change) {
                to_users(&ctx.stores, &change.object().metadata, &ctx.queue);
            }
        },
    );
}

/// A new configuration may decide whether a change is applied to a running VMI; namespace labels decide whether disk
/// changes are recorded.
fn watch_settings(on: &mut Watches<'_>) {
    on.configuration(|stores, queue| stores.vms.keys().into_iter().for_each(|key| queue.add(key)));
    on.changes(
        |stores| &stores.namespaces,
        |ctx, change| {
            let Change::Updated { old, new } = change else { return };
            if !selects_by_namespace(&ctx.config.now()) || old.metadata.labels == new.metadata.labels {
                return;
            }
            let name = new.metadata.name.clone().unwrap_or_default();
            let inside = ctx.stores.vms.keys().into_iter().filter(|key| key.namespace == name);
            inside.for_each(|key| ctx.queue.add(key));
        },
    );
}

/// The VM that a VMI belongs to, or might belong to. An ownerless VMI is relevant only when it is new or its owners or
/// labels change.
fn machine_of(stores: &Stores, change: &Change<VirtualMachineInstance>) -> Option<Key> {
    let vmi = change.object();
    if controller_of(&vmi.metadata).is_some() {
        return owner_key(&vmi.metadata, VirtualMachine::KIND);
    }
    let key = Key::of(vmi.as_ref());
    stores.vms.get(&key)?;
    let said = |meta: &ObjectMeta| (meta.owner_references.clone(), meta.labels.clone());
    match change {
        Change::Updated { old, new } => (said(&old.metadata) != said(&new.metadata)).then_some(key),
        Change::Added(_) | Change::Deleted(_) => Some(key),
    }
}

/// VMs that use a DataVolume or claim of this name.
fn to_users(stores: &Stores, meta: &ObjectMeta, queue: &WorkQueue<Key>) {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default());
    for index in [BY_DATA_VOLUME, BY_CLAIM] {
        stores.vms.keys_by_index(index, &name).into_iter().for_each(|key| queue.add(key));
    }
}

/// Whether a claim was created, deleted or bound.
fn matters(change: &Change<PersistentVolumeClaim>) -> bool {
    let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
    match change {
        Change::Updated { old, new } => phase(old) != phase(new),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

fn selects_by_namespace(config: &ClusterConfig) -> bool {
    let selectors = config.configuration.changed_block_tracking_label_selectors.as_ref();
    selectors.is_some_and(|selectors| selectors.namespace_label_selector.is_some())
}

//! What triggers a VMI.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use informer::{Change, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta::{annotation, controller_of, label};
use plan::object::Kind;

use crate::controller::Watches;
use crate::owned::{note, owner_key, uid};
use crate::stores::{BY_CLAIM, BY_DATA_VOLUME, Stores};

/// The VMI itself, its Pods and their helpers, its claims and DataVolumes, migrations that name it, the end of its VM,
/// and a new configuration: that may decide whether its Pod can be created and whether its launcher is outdated.
pub(super) fn watches(on: &mut Watches<'_>) {
    on.objects(|stores| &stores.vmis);
    on.changes(
        |stores| &stores.pods,
        |ctx, change| {
            let Some(owner) = instance_of(&ctx.stores, change.object()) else { return };
            note(ctx.memory.expected(Kind::Pod), &owner, change);
            ctx.queue.add(owner);
        },
    );
    watch_volumes(on);
    on.changes(
        |stores| &stores.migrations,
        |ctx, change| {
            if progressed(change) {
                to_instance(change.object(), &ctx.queue);
            }
        },
    );
    on.changes(
        |stores| &stores.vms,
        |ctx, change| {
            if let Change::Deleted(vm) = change {
                ctx.queue.add(Key::of(vm.as_ref()));
            }
        },
    );
    on.configuration(|stores, queue| stores.vmis.keys().into_iter().for_each(|key| queue.add(key)));
}

fn watch_volumes(on: &mut Watches<'_>) {
    on.changes(
        |stores| &stores.data_volumes,
        |ctx, change| to_users(&ctx.stores, &change.object().metadata, &ctx.queue),
    );
    on.changes(
        |stores| &stores.claims,
        |ctx, change| {
            let claim = change.object();
            match label(&claim.metadata, api::labels::PERSISTENT_STATE_FOR) {
                Some(name) => {
                    let owner = Key::new(claim.metadata.namespace.clone().unwrap_or_default(), name);
                    note(ctx.memory.expected(Kind::Claim), &owner, change);
                    ctx.queue.add(owner);
                }
                None if matters(change) => to_users(&ctx.stores, &claim.metadata, &ctx.queue),
                None => {}
            }
        },
    );
    // Backend storage may be waiting for a default storage class.
    on.changes(
        |stores| &stores.storage_classes,
        |ctx, _| ctx.stores.vmis.keys().into_iter().for_each(|key| ctx.queue.add(key)),
    );
}

/// The VMI a Pod belongs to: the one that controls it, or that controls its controlling Pod. If that is gone too, the
/// annotations of a helper Pod still name the VMI.
fn instance_of(stores: &Stores, pod: &Pod) -> Option<Key> {
    if let Some(owner) = owner_key(&pod.metadata, VirtualMachineInstance::KIND) {
        return Some(owner);
    }
    let controller = controller_of(&pod.metadata).filter(|owner| owner.kind == Pod::KIND)?;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let launcher = stores.pods.get(&Key::new(&namespace, &controller.name));
    let owner = launcher
        .filter(|launcher| uid(&launcher.metadata) == controller.uid)
        .and_then(|launcher| owner_key(&launcher.metadata, VirtualMachineInstance::KIND));
    owner.or_else(|| {
        let key = Key::new(namespace, annotation(&pod.metadata, api::annotations::OWNER_VMI_NAME)?);
        let named = annotation(&pod.metadata, api::annotations::OWNER_VMI_UID)?;
        stores.vmis.get(&key).filter(|vmi| uid(&vmi.metadata) == named).map(|_| key)
    })
}

/// VMIs that use a DataVolume or claim of this name.
fn to_users(stores: &Stores, meta: &ObjectMeta, queue: &WorkQueue<Key>) {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default());
    for index in [BY_DATA_VOLUME, BY_CLAIM] {
        stores.vmis.keys_by_index(index, &name).into_iter().for_each(|key| queue.add(key));
    }
}

fn to_instance(migration: &VirtualMachineInstanceMigration, queue: &WorkQueue<Key>) {
    if let Some(name) = &migration.spec.vmi_name {
        queue.add(Key::new(migration.metadata.namespace.clone().unwrap_or_default(), name));
    }
}

/// Whether a migration ended or changed its phase, which may let a VMI start.
fn progressed(change: &Change<VirtualMachineInstanceMigration>) -> bool {
    let phase = |migration: &VirtualMachineInstanceMigration| migration.status.as_ref().and_then(|s| s.phase.clone());
    match change {
        Change::Updated { old, new } => phase(old) != phase(new),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

/// Whether a claim was created, deleted, or changed in what VMIs report or wait for.
fn matters(change: &Change<PersistentVolumeClaim>) -> bool {
    match change {
        Change::Updated { old, new } => {
            let owners = |claim: &PersistentVolumeClaim| claim.metadata.owner_references.clone();
            old.spec != new.spec || old.status != new.status || owners(old) != owners(new)
        }
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

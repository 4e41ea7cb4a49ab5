//! What wakes an instance.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use informer::{Change, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta::{annotation, controller_of, label};

use super::Controller;
use crate::api::Api;
use crate::owned::{note, owner_key, uid};
use crate::stores::{BY_CLAIM, BY_DATA_VOLUME, Stores};

impl<A: Api> Controller<A> {
    /// Itself, its Pods and their helpers, its claims and DataVolumes, migrations of its name, the end of its virtual
    /// machine, and another configuration: that may decide whether its Pod can be made, and whether its launcher is
    /// outdated.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        let stores = &self.ctx.stores;
        stores.vmis.feed(queue);
        self.register_pods(queue);
        self.register_volumes(queue);
        let to = queue.clone();
        stores.migrations.subscribe(move |change| {
            if progressed(change) {
                to_instance(change.object(), &to);
            }
        });
        let to = queue.clone();
        stores.vms.subscribe(move |change| {
            if let Change::Deleted(vm) = change {
                to.add(Key::of(vm.as_ref()));
            }
        });
        let (vmis, to) = (stores.vmis.clone(), queue.clone());
        self.ctx.config.on_change(move |_| vmis.keys().into_iter().for_each(|key| to.add(key)));
    }

    fn register_pods(&self, queue: &WorkQueue<Key>) {
        let (stores, pods, to) = (self.ctx.stores.clone(), self.pods.clone(), queue.clone());
        self.ctx.stores.pods.subscribe(move |change| {
            let Some(owner) = instance_of(&stores, change.object()) else { return };
            note(&pods, &owner, change);
            to.add(owner);
        });
    }

    fn register_volumes(&self, queue: &WorkQueue<Key>) {
        let (stores, to) = (self.ctx.stores.clone(), queue.clone());
        self.ctx.stores.data_volumes.subscribe(move |change| to_users(&stores, &change.object().metadata, &to));
        let (stores, expected, to) = (self.ctx.stores.clone(), self.claims.clone(), queue.clone());
        self.ctx.stores.claims.subscribe(move |change| {
            let claim = change.object();
            match label(&claim.metadata, api::labels::PERSISTENT_STATE_FOR) {
                Some(name) => {
                    let owner = Key::new(claim.metadata.namespace.clone().unwrap_or_default(), name);
                    note(&expected, &owner, change);
                    to.add(owner);
                }
                None if matters(change) => to_users(&stores, &claim.metadata, &to),
                None => {}
            }
        });
        // The default class may be what a guest's state waits for.
        let (vmis, to) = (self.ctx.stores.vmis.clone(), queue.clone());
        self.ctx.stores.storage_classes.subscribe(move |_| vmis.keys().into_iter().for_each(|key| to.add(key)));
    }
}

/// The instance a Pod belongs to: the one that controls it, or that controls the Pod that does. When that one is gone
/// too, a helper's annotations still tell.
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

/// Instances that use a DataVolume or claim of this name.
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

/// An end or another phase may let an instance of the name start.
fn progressed(change: &Change<VirtualMachineInstanceMigration>) -> bool {
    let phase = |migration: &VirtualMachineInstanceMigration| migration.status.as_ref().and_then(|s| s.phase.clone());
    match change {
        Change::Updated { old, new } => phase(old) != phase(new),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

/// A claim came, went, or changed in what instances show of it or wait for.
fn matters(change: &Change<PersistentVolumeClaim>) -> bool {
    match change {
        Change::Updated { old, new } => {
            let owners = |claim: &PersistentVolumeClaim| claim.metadata.owner_references.clone();
            old.spec != new.spec || old.status != new.status || owners(old) != owners(new)
        }
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

//! What wakes a virtual machine.

use api::config::ClusterConfig;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use informer::{Change, Key, WorkQueue};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta::controller_of;

use super::Controller;
use crate::api::Api;
use crate::owned::{note, owner_key};
use crate::stores::{BY_CLAIM, BY_DATA_VOLUME, Stores};

impl<A: Api> Controller<A> {
    /// Itself, its instance, an instance of its name that nobody owns, its revisions, its DataVolumes and claims, and
    /// what the cluster and its namespace say.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        self.ctx.stores.vms.feed(queue);
        self.register_instances(queue);
        self.register_revisions(queue);
        self.register_volumes(queue);
        self.register_settings(queue);
    }

    fn register_instances(&self, queue: &WorkQueue<Key>) {
        let (stores, vmis, to) = (self.ctx.stores.clone(), self.vmis.clone(), queue.clone());
        self.ctx.stores.vmis.subscribe(move |change| {
            let Some(owner) = machine_of(&stores, change) else { return };
            note(&vmis, &owner, change);
            to.add(owner);
        });
    }

    /// A revision shows together with the instance that was made from it; one look is enough.
    fn register_revisions(&self, queue: &WorkQueue<Key>) {
        let (vmis, to) = (self.vmis.clone(), queue.clone());
        self.ctx.stores.revisions.subscribe(move |change| {
            let owner = owner_key(&change.object().metadata, VirtualMachine::KIND);
            if let Some(owner) = owner.filter(|owner| vmis.satisfied(owner)) {
                to.add(owner);
            }
        });
    }

    fn register_volumes(&self, queue: &WorkQueue<Key>) {
        let (stores, expected, to) = (self.ctx.stores.clone(), self.data_volumes.clone(), queue.clone());
        self.ctx.stores.data_volumes.subscribe(move |change| {
            let meta = &change.object().metadata;
            if let Some(owner) = owner_key(meta, VirtualMachine::KIND) {
                note(&expected, &owner, change);
                to.add(owner);
            }
            to_users(&stores, meta, &to);
        });
        let (stores, to) = (self.ctx.stores.clone(), queue.clone());
        self.ctx.stores.claims.subscribe(move |change| {
            if matters(change) {
                to_users(&stores, &change.object().metadata, &to);
            }
        });
    }

    /// Another configuration may decide whether a change reaches a running guest; labels of a namespace, whether changes
    /// of disks are recorded.
    fn register_settings(&self, queue: &WorkQueue<Key>) {
        let (vms, to) = (self.ctx.stores.vms.clone(), queue.clone());
        self.ctx.config.on_change(move |_| vms.keys().into_iter().for_each(|key| to.add(key)));
        let (vms, config, to) = (self.ctx.stores.vms.clone(), self.ctx.config.clone(), queue.clone());
        self.ctx.stores.namespaces.subscribe(move |change| {
            let Change::Updated { old, new } = change else { return };
            if !selects_by_namespace(&config.now()) || old.metadata.labels == new.metadata.labels {
                return;
            }
            let name = new.metadata.name.clone().unwrap_or_default();
            vms.keys().into_iter().filter(|key| key.namespace == name).for_each(|key| to.add(key));
        });
    }
}

/// The virtual machine an instance belongs to, or might. An instance that nobody owns is news only while it is new, or
/// when its owners or labels change.
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

/// Virtual machines that use a DataVolume or claim of this name.
fn to_users(stores: &Stores, meta: &ObjectMeta, queue: &WorkQueue<Key>) {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default());
    for index in [BY_DATA_VOLUME, BY_CLAIM] {
        stores.vms.keys_by_index(index, &name).into_iter().for_each(|key| queue.add(key));
    }
}

/// A claim came, went or was bound.
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

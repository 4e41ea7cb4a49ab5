//! What decisions look up beside the object they are about.

use std::sync::Arc;

use api::cdi::{DataSource, DataVolume, FilesystemOverhead, StorageProfile};
use api::volumesnapshot::VolumeSnapshot;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta;

use crate::words::keys;

/// The other objects of the cluster, as they were last seen.
pub trait Cluster {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>>;
    fn data_volume(&self, namespace: &str, name: &str) -> Option<Arc<DataVolume>>;
    fn data_source(&self, namespace: &str, name: &str) -> Option<Arc<DataSource>>;
    fn snapshot(&self, namespace: &str, name: &str) -> Option<Arc<VolumeSnapshot>>;
    fn classes(&self) -> Vec<Arc<StorageClass>>;
    fn profile(&self, class: &str) -> Option<Arc<StorageProfile>>;
    /// The shares of claims that file systems take.
    fn overhead(&self) -> FilesystemOverhead;
}

/// The class of a claim: the named one, or a default. Disks of virtual machines have a default of their own.
pub(crate) fn class_of(cluster: &dyn Cluster, name: Option<&str>, for_disks: bool) -> Option<Arc<StorageClass>> {
    let classes = cluster.classes();
    if let Some(name) = name {
        return classes.into_iter().find(|class| class.metadata.name.as_deref() == Some(name));
    }
    let default = |key: &str| {
        let marked = classes.iter().filter(|class| meta::annotation(&class.metadata, key) == Some("true"));
        // Of several, Kubernetes takes the newest, and of those the first by name.
        marked.max_by_key(|class| (created(&class.metadata), std::cmp::Reverse(class.metadata.name.clone()))).cloned()
    };
    let of_disks = if for_disks { default(keys::DEFAULT_VIRT_CLASS) } else { None };
    of_disks.or_else(|| default(keys::DEFAULT_CLASS))
}

fn created(metadata: &ObjectMeta) -> Option<i64> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second())
}

/// Whether claims of the class are bound only once somebody uses them.
pub(crate) fn waits(class: Option<&StorageClass>) -> bool {
    class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
}

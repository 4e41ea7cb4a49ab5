//! Volumes of a Pod with their mounts, and helpers for common volume types.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, ImageVolumeSource, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume,
    VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Mounts that the node adds later are visible in the container.
pub(crate) const HOST_TO_CONTAINER: &str = "HostToContainer";

/// The Pod's volumes, and how `compute` accesses them.
#[derive(Default)]
pub(crate) struct PodVolumes {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
    pub(crate) devices: Vec<VolumeDevice>,
    /// Mount paths of file systems that several nodes share.
    pub(crate) shared_paths: Vec<String>,
}

impl PodVolumes {
    /// Adds a volume and one mount of it.
    pub(crate) fn add(&mut self, volume: Volume, mount: VolumeMount) {
        self.volumes.push(volume);
        self.mounts.push(mount);
    }

    /// Adds an emptyDir.
    pub(crate) fn scratch(&mut self, name: &str, path: &str) {
        self.add(empty_dir(name), mount(name, path));
    }
}

pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

pub(crate) fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount }
}

pub(crate) fn sub_path(mount: VolumeMount, path: &str) -> VolumeMount {
    VolumeMount { sub_path: Some(path.to_owned()), ..mount }
}

pub(crate) fn propagated(mount: VolumeMount) -> VolumeMount {
    VolumeMount { mount_propagation: Some(HOST_TO_CONTAINER.to_owned()), ..mount }
}

pub(crate) fn empty_dir(name: &str) -> Volume {
    empty_dir_of(name, EmptyDirVolumeSource::default())
}

/// An emptyDir in memory, or in huge pages.
pub(crate) fn memory_dir(name: &str, medium: &str, limit: Option<&str>) -> Volume {
    let size_limit = limit.map(|limit| Quantity(limit.to_owned()));
    empty_dir_of(name, EmptyDirVolumeSource { medium: Some(medium.to_owned()), size_limit })
}

fn empty_dir_of(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

pub(crate) fn claim(name: &str, claim: &str, read_only: Option<bool>) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only };
    Volume { name: name.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() }
}

pub(crate) fn secret(name: &str, secret: &str, optional: Option<bool>) -> Volume {
    let source = SecretVolumeSource { secret_name: Some(secret.to_owned()), optional, ..SecretVolumeSource::default() };
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

pub(crate) fn image(name: &str, reference: &str, pull_policy: Option<&str>) -> Volume {
    let source = ImageVolumeSource {
        reference: Some(reference.to_owned()),
        pull_policy: pull_policy.filter(|policy| !policy.is_empty()).map(str::to_owned),
    };
    Volume { name: name.to_owned(), image: Some(source), ..Volume::default() }
}

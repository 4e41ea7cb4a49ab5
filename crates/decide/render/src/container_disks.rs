//! Container disks: images from a registry as disks of guests.
//!
//! With image volumes the kubelet mounts them; the only containers left run once before the guest, from the same image,
//! so that the Pod's status shows its digest: a migrated guest must find the very same image. Without image volumes one
//! container per disk keeps its image mounted for virt-handler to access.

use std::collections::BTreeMap;

use api::annotations;
use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Container, Pod};
use launcher_contract::paths;

use crate::auxiliary::{self, Kind};
use crate::error::Error;
use crate::pod_volumes::{mount, read_only};
use crate::traits::{annotation, guaranteed, kernel_boot, non_root};

/// The image volume of a directly booted kernel.
pub(crate) const KERNEL_BOOT_VOLUME: &str = "kernel-boot-volume";
/// The image volume of the launcher's own image, for containers that need one of its binaries.
pub(crate) const LAUNCHER_VOLUME: &str = "launcher-volume";
const LAUNCHER_PATH: &str = "/container-disk-binary";

/// Whether container disks are image volumes.
pub(crate) fn image_volumes(config: &ClusterConfig) -> bool {
    config.feature_gate("ImageVolume")
}

/// Images with known digests, keyed by volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Images(BTreeMap<String, String>);

/// An image of the VMI.
struct Image<'a> {
    volume: &'a str,
    reference: &'a str,
    pull_policy: Option<&'a str>,
    /// virt-handler's name for it.
    file: String,
}

/// All images of the VMI: those of its disks, then that of its kernel.
fn images(vmi: &VirtualMachineInstance) -> Vec<Image<'_>> {
    let disks = vmi.spec.volumes.iter().enumerate().filter_map(|(index, volume)| {
        let disk = volume.source().container_disk()?;
        let pull_policy = disk.image_pull_policy.as_deref();
        Some(Image { volume: &volume.name, reference: &disk.image, pull_policy, file: paths::image_directory(index) })
    });
    let kernel = kernel_boot(vmi).map(|boot| Image {
        volume: KERNEL_BOOT_VOLUME,
        reference: &boot.image,
        pull_policy: boot.image_pull_policy.as_deref(),
        file: "kernel-boot".to_owned(),
    });
    disks.chain(kernel).collect()
}

impl Images {
    /// The image to use for a volume.
    pub(crate) fn reference<'a>(&'a self, volume: &str, named: &'a str) -> &'a str {
        self.0.get(volume).map_or(named, String::as_str)
    }

    fn is_known(&self, volume: &str) -> bool {
        self.0.get(volume).is_some_and(|reference| reference.contains("@sha256:"))
    }

    /// The images of a running Pod, pinned by digest.
    pub(crate) fn of_pod(vmi: &VirtualMachineInstance, pod: &Pod) -> Result<Self, Error> {
        let pinned = |image: &Image<'_>| {
            let digest = || Error::NoDigest { volume: image.volume.to_owned() };
            Ok((image.volume.to_owned(), pinned_reference(image, pod).ok_or_else(digest)?))
        };
        images(vmi).iter().map(pinned).collect::<Result<_, _>>().map(Images)
    }
}

/// The image with its digest: from the status of the container that ran it, or from a volume that was pinned before.
fn pinned_reference(image: &Image<'_>, pod: &Pod) -> Option<String> {
    let container = format!("volume{}", image.volume);
    let status = pod.status.as_ref();
    let statuses = status.into_iter().flat_map(|status| [&status.container_statuses, &status.init_container_statuses]);
    let ran = statuses.flatten().flatten().find(|status| status.name == container);
    if let Some(digest) = ran.and_then(|status| digest(&status.image_id)) {
        return Some(format!("{}@sha256:{digest}", repository(image.reference)));
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut mounted = volumes.filter(|volume| volume.name == image.volume).filter_map(|volume| volume.image.as_ref());
    let reference = mounted.find_map(|image| image.reference.clone()).unwrap_or_else(|| image.reference.to_owned());
    digest(&reference).is_some().then_some(reference)
}

/// The hexadecimal digest in an image ID.
fn digest(id: &str) -> Option<&str> {
    let (_, rest) = id.split_once("sha256:")?;
    let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// An image's reference without tag or digest.
fn repository(reference: &str) -> &str {
    let untagged = reference.split_once("@sha256:").map_or(reference, |(name, _)| name);
    match untagged.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => untagged,
    }
}

/// Pull secrets of all images, without duplicates, in the order in which they are named.
pub(crate) fn pull_secrets<'a>(vmi: &'a VirtualMachineInstance, own: Option<&'a str>) -> Vec<&'a str> {
    let disks =
        vmi.spec.volumes.iter().filter_map(|volume| volume.source().container_disk()?.image_pull_secret.as_deref());
    let kernel = kernel_boot(vmi).and_then(|boot| boot.image_pull_secret.as_deref());
    let mut all: Vec<&str> = vec![];
    for secret in disks.chain(kernel).chain(own).filter(|secret| !secret.is_empty()) {
        if !all.contains(&secret) {
            all.push(secret);
        }
    }
    all
}

/// Whether containers must determine the digest of some image.
pub(crate) fn discovers_digests(vmi: &VirtualMachineInstance, config: &ClusterConfig, known: &Images) -> bool {
    !skips_discovery(vmi, config) && images(vmi).iter().any(|image| !known.is_known(image.volume))
}

/// Digest discovery is disabled for the VMI or the whole installation: it starts sooner and cannot migrate.
fn skips_discovery(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> bool {
    let key = annotations::SKIP_DIGEST_RESOLUTION;
    let installation = || config.annotations.get(key).map(String::as_str);
    annotation(vmi, key).or_else(installation) == Some("true")
}

/// Containers that run before the guest.
pub(crate) fn init_containers(vmi: &VirtualMachineInstance, config: &ClusterConfig, known: &Images) -> Vec<Container> {
    let all = images(vmi);
    if image_volumes(config) {
        let unknown = all.iter().filter(|image| !known.is_known(image.volume) && !skips_discovery(vmi, config));
        return unknown.map(|image| discovery(image, vmi, config)).collect();
    }
    if all.is_empty() {
        return vec![];
    }
    let pulls = all.iter().map(|image| {
        let container = from_image(image, known, vmi, config, vec!["--no-op".to_owned()]);
        Container { name: format!("{}-init", container.name), ..container }
    });
    std::iter::once(binary(vmi, config)).chain(pulls).collect()
}

/// Containers that keep images mounted next to the guest.
pub(crate) fn containers(vmi: &VirtualMachineInstance, config: &ClusterConfig, known: &Images) -> Vec<Container> {
    if image_volumes(config) {
        return vec![];
    }
    let keep = |image: &Image<'_>| {
        let path = format!("{}/{}", shared_directory(vmi), image.file);
        from_image(image, known, vmi, config, vec!["--copy-path".to_owned(), path])
    };
    images(vmi).iter().map(keep).collect()
}

fn shared_directory(vmi: &VirtualMachineInstance) -> String {
    format!("{}/{}", paths::COPIED_CONTAINER_DISKS, vmi.metadata.uid.as_deref().unwrap_or_default())
}

/// The container of an image; its binary comes from the launcher's image through a shared directory.
fn from_image(
    image: &Image<'_>,
    known: &Images,
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    args: Vec<String>,
) -> Container {
    Container {
        name: format!("volume{}", image.volume),
        image: Some(known.reference(image.volume, image.reference).to_owned()),
        image_pull_policy: image.pull_policy.filter(|policy| !policy.is_empty()).map(str::to_owned),
        command: Some(vec!["/usr/bin/container-disk".to_owned()]),
        args: Some(args),
        resources: Some(auxiliary::resources(Kind::ContainerDisk, guaranteed(vmi), config)),
        security_context: Some(auxiliary::security_context()),
        volume_mounts: Some(vec![
            mount(paths::CONTAINER_DISKS_VOLUME, &shared_directory(vmi)),
            mount(paths::BINARIES_VOLUME, "/usr/bin"),
        ]),
        ..Container::default()
    }
}

/// Runs an image once, so that the Pod's status shows its digest.
fn discovery(image: &Image<'_>, vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Container {
    let args = vec!["--no-op".to_owned()];
    Container {
        command: Some(vec![format!("{LAUNCHER_PATH}/usr/bin/container-disk")]),
        volume_mounts: Some(vec![read_only(mount(LAUNCHER_VOLUME, LAUNCHER_PATH))]),
        ..from_image(image, &Images::default(), vmi, config, args)
    }
}

/// Copies the binary that images are run with.
fn binary(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Container {
    let command = ["/usr/bin/cp", "--preserve=all", "/usr/bin/container-disk", "/init/usr/bin/container-disk"];
    Container {
        name: "container-disk-binary".to_owned(),
        command: Some(command.map(str::to_owned).to_vec()),
        resources: Some(auxiliary::resources(Kind::ContainerDiskBinary, guaranteed(vmi), config)),
        volume_mounts: Some(vec![mount(paths::BINARIES_VOLUME, "/init/usr/bin")]),
        ..crate::compute::launcher_container(non_root(vmi), config)
    }
}

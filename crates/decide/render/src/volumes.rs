//! Volumes of the launcher Pod and where `compute` sees them.
//!
//! Names of Pod volumes are ours alone: a volume of the instance is known by its index, so a user's volume called
//! `private` cannot collide with the directory of that name.

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, ImageVolumeSource, Volume, VolumeMount};

use crate::paths;

/// Volumes and their mounts, in matching order.
#[derive(Default)]
pub(crate) struct Volumes {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
}

/// Scratch directories of every launcher, and one read-only image per container disk and for a directly booted kernel.
pub(crate) fn volumes(vmi: &VirtualMachineInstance) -> Volumes {
    let mut all = Volumes::default();
    for (name, path) in paths::SCRATCH {
        all.scratch(name, path);
    }
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        if let Some(disk) = &volume.container_disk {
            let path = format!("{}/disk_{index}", paths::CONTAINER_DISKS);
            all.image(format!("disk-{index}"), &disk.image, disk.image_pull_policy.as_deref(), path);
        }
    }
    if let Some(boot) = kernel_boot(vmi) {
        let path = paths::KERNEL_BOOT.to_owned();
        all.image("kernel-boot".to_owned(), &boot.image, boot.image_pull_policy.as_deref(), path);
    }
    all
}

/// Pull secrets of all images, each once.
pub(crate) fn image_pull_secrets(vmi: &VirtualMachineInstance) -> Vec<String> {
    let disks = vmi.spec.volumes.iter().filter_map(|volume| volume.container_disk.as_ref()?.image_pull_secret.clone());
    let kernel = kernel_boot(vmi).and_then(|boot| boot.image_pull_secret.clone());
    let mut secrets: Vec<String> = disks.chain(kernel).filter(|secret| !secret.is_empty()).collect();
    secrets.sort();
    secrets.dedup();
    secrets
}

fn kernel_boot(vmi: &VirtualMachineInstance) -> Option<&api::v1::KernelBootContainer> {
    vmi.spec.domain.firmware.as_ref()?.kernel_boot.as_ref()?.container.as_ref()
}

impl Volumes {
    fn scratch(&mut self, name: &str, path: &str) {
        let source = EmptyDirVolumeSource::default();
        self.volumes.push(Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() });
        self.mounts.push(VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() });
    }

    fn image(&mut self, name: String, image: &str, pull_policy: Option<&str>, path: String) {
        let source = ImageVolumeSource {
            reference: Some(image.to_owned()),
            pull_policy: pull_policy.filter(|policy| !policy.is_empty()).map(str::to_owned),
        };
        self.volumes.push(Volume { name: name.clone(), image: Some(source), ..Volume::default() });
        self.mounts.push(VolumeMount { name, mount_path: path, read_only: Some(true), ..VolumeMount::default() });
    }
}

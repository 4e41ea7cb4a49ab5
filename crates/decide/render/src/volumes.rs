//! Volumes of the launcher Pod: one for each data source of the VMI, and their mounts in `compute`.
//!
//! A Pod volume has the name of the VMI's volume, because the controllers and virt-handler look it up by that name.
//! Names that the Pod needs for itself are therefore reserved; see [`launcher`].

use api::config::ClusterConfig;
use api::v1::{
    AccessCredential, CredentialKind, HostDisk, SysprepKind, SysprepSource, VirtualMachineInstance, Volume as Source,
    VolumeSource,
};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, HostPathVolumeSource, LocalObjectReference,
    ObjectFieldSelector, Volume, VolumeDevice,
};
use launcher_contract::paths;

use crate::container_disks::{self, Images};
use crate::context::Context;
use crate::error::Error;
use crate::pod_volumes::{
    PodVolumes, claim, empty_dir, image, memory_dir, mount, propagated, read_only, secret, sub_path,
};
use crate::traits::{self, kernel_boot};
use crate::{backend_storage, network};

/// Everything the launcher Pod mounts, except for volumes of sidecars.
pub(crate) fn launcher(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    images: &Images,
    hooks: bool,
) -> Result<PodVolumes, Error> {
    let mut all = PodVolumes::default();
    scratch(config, &mut all);
    configuration(vmi, &mut all);
    data(vmi, ctx, &mut all)?;
    access_credentials(&vmi.spec.access_credentials, &mut all);
    backend_storage::add(vmi, ctx, &mut all)?;
    if container_disks::image_volumes(config) {
        container_images(vmi, config, images, &mut all);
    }
    if hooks {
        all.scratch(paths::HOOK_SOCKETS_VOLUME, paths::HOOK_SOCKETS);
    }
    if config.feature_gate("Plugins") {
        all.scratch("kubevirt-plugin-sockets", "/var/run/kubevirt-plugin");
    }
    if traits::hugepages(vmi).is_some() {
        all.add(memory_dir("hugepages", "HugePages", None), mount("hugepages", "/dev/hugepages"));
        all.scratch("hugetblfs-dir", "/dev/hugepages/libvirt/qemu");
    }
    if vmi.spec.domain.devices.disable_hotplug != Some(true) {
        all.add(empty_dir(paths::HOTPLUG_VOLUME), propagated(mount(paths::HOTPLUG_VOLUME, paths::HOTPLUG_DISKS)));
    }
    let device_info = network::plugins(vmi, config)?.values().any(|plugin| network::wants_device_info(plugin));
    if device_info || traits::has_sriov(vmi) {
        all.add(network_info(), mount(paths::NETWORK_INFO_VOLUME, paths::NETWORK_INFO));
    }
    if traits::has_virtiofs(vmi) {
        all.scratch(paths::VIRTIOFS_VOLUME, paths::VIRTIOFS);
    }
    Ok(all)
}

/// Directories that every launcher has.
fn scratch(config: &ClusterConfig, all: &mut PodVolumes) {
    all.volumes.extend(paths::SCRATCH.iter().map(|(name, _)| empty_dir(name)));
    all.volumes.push(empty_dir(paths::BINARIES_VOLUME));
    all.mounts.extend(paths::SCRATCH.iter().map(|(name, path)| mount(name, path)));
    if !container_disks::image_volumes(config) {
        let mount = propagated(mount(paths::CONTAINER_DISKS_VOLUME, paths::COPIED_CONTAINER_DISKS));
        all.add(empty_dir(paths::CONTAINER_DISKS_VOLUME), mount);
    }
}

/// API objects mounted as directories. Only those that become a disk are mounted in `compute`; others are for virtiofs.
fn configuration(vmi: &VirtualMachineInstance, all: &mut PodVolumes) {
    all.volumes.extend(vmi.spec.volumes.iter().filter_map(configured).map(|(_, volume)| volume));
    for disk in &vmi.spec.domain.devices.disks {
        let source = vmi.spec.volumes.iter().find(|source| source.name == disk.name);
        let path = source.and_then(configuration_path);
        all.mounts.extend(path.map(|path| read_only(mount(&disk.name, &path))));
    }
}

/// The volume of an API object, and the directory where it is mounted.
fn configured(source: &Source) -> Option<(&'static str, Volume)> {
    let name = source.name.clone();
    match source.source() {
        VolumeSource::Secret(from) => {
            let secret = secret(&name, from.secret_name.as_deref().unwrap_or_default(), from.optional);
            Some((paths::SECRETS, secret))
        }
        VolumeSource::ConfigMap(from) => {
            let config_map = Some(config_map(from.name.as_deref().unwrap_or_default(), from.optional));
            Some((paths::CONFIG_MAPS, Volume { name, config_map, ..Volume::default() }))
        }
        VolumeSource::DownwardApi(from) => {
            let items = crate::some(from.fields.clone());
            let downward_api = Some(DownwardAPIVolumeSource { items, default_mode: None });
            Some((paths::DOWNWARD_API, Volume { name, downward_api, ..Volume::default() }))
        }
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DataVolume(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => None,
    }
}

fn config_map(name: &str, optional: Option<bool>) -> ConfigMapVolumeSource {
    ConfigMapVolumeSource { name: name.to_owned(), optional, ..ConfigMapVolumeSource::default() }
}

/// Where an API object is mounted.
pub(crate) fn configuration_path(source: &Source) -> Option<String> {
    configured(source).map(|(directory, _)| format!("{directory}/{}", source.name))
}

/// Disks from claims, files of the node and generated data. Hot-plugged volumes are provided by attachment Pods
/// instead.
fn data(vmi: &VirtualMachineInstance, ctx: &Context, all: &mut PodVolumes) -> Result<(), Error> {
    for source in vmi.spec.volumes.iter().filter(|source| !is_plugged(vmi, source)) {
        let name = source.name.as_str();
        match source.source() {
            VolumeSource::PersistentVolumeClaim(from) => {
                claimed(name, &from.claim_name, claim(name, &from.claim_name, from.read_only), ctx, all)?;
            }
            VolumeSource::Ephemeral(from) => {
                if let Some(from) = &from.persistent_volume_claim {
                    claimed(name, &from.claim_name, claim(name, &from.claim_name, from.read_only), ctx, all)?;
                }
            }
            VolumeSource::DataVolume(from) => claimed(name, &from.name, claim(name, &from.name, None), ctx, all)?,
            VolumeSource::HostDisk(disk) => {
                all.add(host_disk(name, disk), mount(name, &paths::disk_directory(name)));
            }
            VolumeSource::DownwardMetrics => {
                all.add(memory_dir(name, "Memory", Some("1Mi")), mount(name, paths::DOWNWARD_METRICS));
            }
            VolumeSource::CloudInitNoCloud(from) => {
                cloud_init(name, &from.secret_ref, &from.network_data_secret_ref, all);
            }
            VolumeSource::CloudInitConfigDrive(from) => {
                cloud_init(name, &from.secret_ref, &from.network_data_secret_ref, all);
            }
            VolumeSource::Sysprep(from) => {
                all.add(sysprep(name, from)?, read_only(mount(name, &format!("{}/{name}", paths::SYSPREP))));
            }
            // Handled by `configuration` and `container_images`.
            VolumeSource::ConfigMap(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ContainerDisk(_) => {}
            // Created by the launcher, part of the Pod anyway, or provided by an attachment Pod.
            VolumeSource::EmptyDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::MemoryDump(_)
            | VolumeSource::Unset => {}
        }
    }
    Ok(())
}

/// Whether a volume was, or will be, hot-plugged.
fn is_plugged(vmi: &VirtualMachineInstance, source: &Source) -> bool {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    let mut plugged = statuses.filter(|status| status.hotplug_volume.is_some());
    source.source().is_hotpluggable() || plugged.any(|status| status.name == source.name)
}

fn claimed(name: &str, claim: &str, volume: Volume, ctx: &Context, all: &mut PodVolumes) -> Result<(), Error> {
    let not_found = || Error::ClaimNotFound { volume: name.to_owned(), name: claim.to_owned() };
    let facts = ctx.claims.get(claim).ok_or_else(not_found)?;
    all.volumes.push(volume);
    if facts.block {
        all.devices.push(VolumeDevice { name: name.to_owned(), device_path: format!("/dev/{name}") });
        return Ok(());
    }
    let path = paths::disk_directory(name);
    all.mounts.push(mount(name, &path));
    all.shared_paths.extend(facts.shared.then_some(path));
    Ok(())
}

fn host_disk(name: &str, disk: &HostDisk) -> Volume {
    let directory = match disk.path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    };
    let type_ = match disk.type_.as_str() {
        "Disk" => "Directory",
        "DiskOrCreate" => "DirectoryOrCreate",
        // Any other value disables the check.
        _ => "",
    };
    let host_path = HostPathVolumeSource { path: directory.to_owned(), type_: Some(type_.to_owned()) };
    Volume { name: name.to_owned(), host_path: Some(host_path), ..Volume::default() }
}

/// Each secret is mounted by its key, in either spelling.
fn cloud_init(
    name: &str,
    user: &Option<LocalObjectReference>,
    network: &Option<LocalObjectReference>,
    all: &mut PodVolumes,
) {
    for (reference, suffix, keys) in
        [(user, "udata", ["userdata", "userData"]), (network, "ndata", ["networkdata", "networkData"])]
    {
        let Some(reference) = reference else { continue };
        let volume = format!("{name}-{suffix}");
        all.volumes.push(secret(&volume, &reference.name, None));
        for key in keys {
            let mount = mount(&volume, &format!("{}/{name}/{key}", paths::SECRETS));
            all.mounts.push(read_only(sub_path(mount, key)));
        }
    }
}

fn sysprep(name: &str, source: &SysprepSource) -> Result<Volume, Error> {
    match source.kind() {
        SysprepKind::Secret(from) => Ok(secret(name, &from.name, None)),
        SysprepKind::ConfigMap(from) => {
            let config_map = Some(config_map(&from.name, None));
            Ok(Volume { name: name.to_owned(), config_map, ..Volume::default() })
        }
        SysprepKind::Unset => Err(Error::Missing("spec.volumes[].sysprep.secret or spec.volumes[].sysprep.configMap")),
    }
}

/// Secrets with keys and passwords, without duplicates.
fn access_credentials(credentials: &[AccessCredential], all: &mut PodVolumes) {
    let named = credentials.iter().filter_map(|credential| {
        let secret = match credential.kind() {
            CredentialKind::SshPublicKey(keys) => keys.source.secret.as_ref(),
            CredentialKind::UserPassword(password) => password.source.secret.as_ref(),
            CredentialKind::Unset => None,
        };
        secret.map(|source| source.secret_name.as_str()).filter(|name| !name.is_empty())
    });
    for name in named {
        let volume = format!("{name}-access-cred");
        if all.volumes.iter().all(|known| known.name != volume) {
            let mount = read_only(mount(&volume, &format!("{}/{volume}", paths::SECRETS)));
            all.add(secret(&volume, name, None), mount);
        }
    }
}

/// Images of container disks and of a directly booted kernel, and the launcher image whose binary discovers their
/// digests.
fn container_images(vmi: &VirtualMachineInstance, config: &ClusterConfig, images: &Images, all: &mut PodVolumes) {
    for (index, source) in vmi.spec.volumes.iter().enumerate() {
        let VolumeSource::ContainerDisk(disk) = source.source() else { continue };
        let reference = images.reference(&source.name, &disk.image);
        let path = format!("{}/{}", paths::CONTAINER_DISKS, paths::image_directory(index));
        let volume = image(&source.name, reference, disk.image_pull_policy.as_deref());
        all.add(volume, read_only(mount(&source.name, &path)));
    }
    if let Some(boot) = kernel_boot(vmi) {
        let name = container_disks::KERNEL_BOOT_VOLUME;
        let reference = images.reference(name, &boot.image);
        let volume = image(name, reference, boot.image_pull_policy.as_deref());
        all.add(volume, read_only(mount(name, paths::KERNEL_BOOT)));
    }
    if container_disks::discovers_digests(vmi, config, images) {
        let policy = Some(config.image_pull_policy());
        all.volumes.push(image(container_disks::LAUNCHER_VOLUME, &config.launcher_image, policy));
    }
}

/// Device information from the node's network plugins, as a file.
fn network_info() -> Volume {
    let field = ObjectFieldSelector {
        field_path: format!("metadata.annotations['{}']", api::annotations::NETWORK_INFO),
        api_version: None,
    };
    let file = DownwardAPIVolumeFile {
        path: "network-info".to_owned(),
        field_ref: Some(field),
        ..DownwardAPIVolumeFile::default()
    };
    let source = DownwardAPIVolumeSource { items: Some(vec![file]), default_mode: None };
    Volume { name: paths::NETWORK_INFO_VOLUME.to_owned(), downward_api: Some(source), ..Volume::default() }
}

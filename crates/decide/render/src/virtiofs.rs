//! Containers that serve directories to the guest (virtiofs).

use api::config::ClusterConfig;
use api::v1::{VirtualMachineInstance, Volume, VolumeSource};
use k8s_openapi::api::core::v1::{Container, SecurityContext};
use launcher_contract::paths;

use crate::auxiliary::{self, Kind};
use crate::pod_volumes::mount;
use crate::traits::guaranteed;
use crate::{NON_ROOT_USER, volumes};

/// One container per shared volume. Paths of other containers are shared by the component that adds those to the Pod.
pub(crate) fn containers(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<Container> {
    let shared: Vec<&str> =
        vmi.spec.domain.devices.filesystems.iter().map(|filesystem| filesystem.name.as_str()).collect();
    let volumes = vmi.spec.volumes.iter();
    let served = volumes.filter(|volume| shared.contains(&volume.name.as_str()) && is_served(volume));
    served.map(|volume| container(volume, vmi, config)).collect()
}

/// Whether the directory belongs to the launcher's own Pod.
fn is_served(volume: &Volume) -> bool {
    match volume.source() {
        VolumeSource::ContainerPath(_) => false,
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::DataVolume(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => true,
    }
}

fn container(volume: &Volume, vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Container {
    let name = volume.name.as_str();
    let directory = directory(volume);
    let mut mounts = vec![mount(paths::VIRTIOFS_VOLUME, paths::VIRTIOFS)];
    if volume.source().service_account().is_none() {
        mounts.push(mount(name, &directory));
    }
    let args = [
        format!("--socket-path={}/{name}.sock", paths::VIRTIOFS),
        format!("--shared-dir={directory}"),
        "--sandbox=none".to_owned(),
        "--cache=auto".to_owned(),
        // A file that cannot be reopened on the target causes an error in the guest instead of failing the migration,
        // and files are reopened by path, which needs no privilege.
        "--migration-on-error=guest-error".to_owned(),
        "--migration-mode=find-paths".to_owned(),
    ];
    Container {
        name: format!("virtiofs-{name}"),
        image: Some(config.launcher_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["/usr/libexec/virtiofsd".to_owned()]),
        args: Some(args.to_vec()),
        resources: Some(auxiliary::resources(Kind::Virtiofs, guaranteed(vmi), config)),
        security_context: Some(SecurityContext { run_as_group: Some(NON_ROOT_USER), ..auxiliary::security_context() }),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn directory(volume: &Volume) -> String {
    if volume.source().service_account().is_some() {
        return paths::SERVICE_ACCOUNT.to_owned();
    }
    volumes::configuration_path(volume).unwrap_or_else(|| format!("/{}", volume.name))
}

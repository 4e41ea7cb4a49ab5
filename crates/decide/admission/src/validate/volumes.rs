//! Volumes: the data sources of disks.

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{
    CloudInitConfigDriveSource, CloudInitNoCloudSource, HostDisk, VirtualMachineInstanceSpec, Volume, VolumeSource,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::LocalObjectReference;
use launcher_contract::paths;
use machinery::field::{Cause, Path};

use super::findings::{Findings, given, text};
use super::firmware::image_path;

/// The maximum size of inline cloud-init data. Every virt-handler receives every object.
const MAX_CLOUD_INIT: usize = 2048;

/// The launcher's own directories.
const LAUNCHER_PATHS: [&str; 2] = [paths::SHARE, paths::LIBVIRT];

/// Rules about volumes alone.
pub(super) fn check(found: &mut Findings, field: &Path<'_>, volumes: &[Volume], config: &ClusterConfig) {
    let mut seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let field = field.index(index);
        if !seen.insert(volume.name.as_str()) {
            found.invalid(&field.child("name"), volume.name.as_str(), "is the name of another volume");
        }
        source(found, &field, volume, config);
    }
    let accounts = volumes.iter().flat_map(Volume::sources).filter_map(VolumeSource::service_account);
    let metrics = volumes.iter().flat_map(Volume::sources).filter(|source| *source == VolumeSource::DownwardMetrics);
    let dumps = volumes.iter().filter(|volume| volume.is_memory_dump());
    let counts =
        [("service account", accounts.count()), ("downward metrics", metrics.count()), ("memory dump", dumps.count())];
    for (what, _) in counts.iter().filter(|(_, count)| *count > 1) {
        found.refuse(Cause::Invalid, field, format!("at most one {what} volume may be set"));
    }
}

fn source(found: &mut Findings, field: &Path<'_>, volume: &Volume, config: &ClusterConfig) {
    if volume.sources().count() != 1 {
        found.invalid(field, volume.name.as_str(), "exactly one source of data has to be set");
    }
    let has_no_cloud = volume.sources().any(|source| matches!(source, VolumeSource::CloudInitNoCloud(_)));
    for source in volume.sources() {
        match source {
            VolumeSource::CloudInitNoCloud(source) => {
                cloud_init(found, &field.child("cloudInitNoCloud"), &CloudInit::from(source));
            }
            // KubeVirt only checks one of the two.
            VolumeSource::CloudInitConfigDrive(_) if has_no_cloud => {}
            VolumeSource::CloudInitConfigDrive(source) => {
                cloud_init(found, &field.child("cloudInitConfigDrive"), &CloudInit::from(source));
            }
            VolumeSource::ConfigMap(source) => named(found, &field.child("configMap.name"), &source.name),
            VolumeSource::ContainerDisk(source) => {
                if let Some(path) = given(&source.path) {
                    image_path(found, &field.child("containerDisk.path"), path);
                }
            }
            VolumeSource::DataVolume(source) => {
                if source.name.is_empty() {
                    found.required(&field.child("dataVolume.name"), "the DataVolume has to be named");
                }
            }
            VolumeSource::DownwardMetrics => super::needs_gate(found, field, "DownwardMetrics", config),
            VolumeSource::HostDisk(disk) => {
                super::needs_gate(found, field, "HostDisk", config);
                host_disk(found, &field.child("hostDisk"), disk);
            }
            VolumeSource::Secret(source) => named(found, &field.child("secret.secretName"), &source.secret_name),
            VolumeSource::ServiceAccount(source) => {
                named(found, &field.child("serviceAccount.serviceAccountName"), &source.service_account_name);
            }
            VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::MemoryDump(_)
            | VolumeSource::PersistentVolumeClaim(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => {}
        }
    }
}

fn named(found: &mut Findings, field: &Path<'_>, name: &Option<String>) {
    if text(name).is_empty() {
        found.invalid(field, "", "is required");
    }
}

fn host_disk(found: &mut Findings, field: &Path<'_>, disk: &HostDisk) {
    if disk.path.is_empty() {
        found.refuse(Cause::NotFound, &field.child("path"), "the path of the disk image has to be named");
    }
    if !["Disk", "DiskOrCreate"].contains(&disk.type_.as_str()) {
        found.invalid(&field.child("type"), disk.type_.as_str(), "must be Disk or DiskOrCreate");
    }
    let capacity = disk.capacity.as_ref().filter(|capacity| !super::parsed(capacity).is_zero());
    if let Some(capacity) = capacity.filter(|_| disk.type_ == "Disk") {
        let detail = "a disk image that exists has its size: use type DiskOrCreate";
        found.invalid(&field.child("capacity"), capacity.0.as_str(), detail);
    }
}

/// cloud-init data of either layout.
struct CloudInit<'a> {
    user: Data<'a>,
    network: Data<'a>,
}

/// One kind of cloud-init data in the forms it can be given.
struct Data<'a> {
    what: &'static str,
    plain: Option<&'a str>,
    base64: (&'static str, Option<&'a str>),
    secret: bool,
}

/// The two formats differ in type only.
macro_rules! cloud_init_from {
    ($source:ty) => {
        impl<'a> From<&'a $source> for CloudInit<'a> {
            fn from(source: &'a $source) -> Self {
                let named = |secret: &Option<LocalObjectReference>| {
                    secret.as_ref().is_some_and(|secret| !secret.name.is_empty())
                };
                CloudInit {
                    user: Data {
                        what: "user data",
                        plain: given(&source.user_data),
                        base64: ("userDataBase64", given(&source.user_data_base64)),
                        secret: named(&source.secret_ref),
                    },
                    network: Data {
                        what: "network data",
                        plain: given(&source.network_data),
                        base64: ("networkDataBase64", given(&source.network_data_base64)),
                        secret: named(&source.network_data_secret_ref),
                    },
                }
            }
        }
    };
}

cloud_init_from!(CloudInitNoCloudSource);
cloud_init_from!(CloudInitConfigDriveSource);

fn cloud_init(found: &mut Findings, field: &Path<'_>, data: &CloudInit<'_>) {
    data.user.check(found, field);
    data.network.check(found, field);
    if data.user.sources() + data.network.sources() == 0 {
        found.refuse(Cause::Invalid, field, "user data or network data has to be set");
    }
}

impl Data<'_> {
    fn sources(&self) -> usize {
        usize::from(self.plain.is_some()) + usize::from(self.base64.1.is_some()) + usize::from(self.secret)
    }

    /// The data may contain passwords, so it never appears in messages.
    fn check(&self, found: &mut Findings, field: &Path<'_>) {
        let what = self.what;
        if self.sources() > 1 {
            found.refuse(Cause::Invalid, field, format!("at most one source of {what} may be set"));
        }
        // Encoders may insert line breaks.
        let decoded = self.base64.1.map(|text| STANDARD.decode(text.replace(['\r', '\n'], "")));
        if let Some(Err(_)) = decoded {
            found.refuse(Cause::Invalid, &field.child(self.base64.0), format!("{what} is not base64"));
        }
        let decoded = decoded.and_then(Result::ok).map_or(0, |bytes| bytes.len());
        let length = self.plain.map_or(decoded, str::len);
        if length > MAX_CLOUD_INIT {
            let message = format!(
                "{what} of {length} bytes is longer than the {MAX_CLOUD_INIT} bytes allowed inline: use a Secret"
            );
            found.refuse(Cause::Invalid, field, message);
        }
    }
}

/// Every volume must be used. Applies to VMIs only: a template may still get disks from a preference.
pub(super) fn used(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let field = field.child("volumes");
    for (index, volume) in spec.volumes.iter().enumerate().filter(|(_, volume)| !volume.is_memory_dump()) {
        let field = field.index(index);
        let has_disk = devices.disks.iter().any(|disk| disk.name == volume.name);
        let has_filesystem = devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if !has_disk && !has_filesystem {
            found.invalid(&field.child("name"), volume.name.as_str(), "no disk or file system has this name");
        }
        let path = |source| if let VolumeSource::ContainerPath(path) = source { Some(path) } else { None };
        let Some(source) = volume.sources().find_map(path) else { continue };
        if has_disk || !has_filesystem {
            let detail = "a path of the container can be a file system only, not a disk";
            found.invalid(&field, volume.name.as_str(), detail);
        }
        if let Some(own) = LAUNCHER_PATHS.iter().find(|own| source.path.starts_with(*own)) {
            let detail = format_args!("{own} is where the launcher keeps its own files");
            found.invalid(&field.child("containerPath.path"), source.path.as_str(), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::v1::{Disk, VirtualMachineInstanceSpec, Volume};
    use machinery::field::Path;

    use super::super::findings::Findings;

    /// Defaulting gives every volume a disk, so no object that went through it gets here.
    #[test]
    fn a_volume_is_used() {
        let told = |disk: &str| {
            let mut spec = VirtualMachineInstanceSpec::default();
            spec.volumes.push(Volume { name: "data".to_owned(), ..Volume::default() });
            spec.domain.devices.disks.push(Disk { name: disk.to_owned(), ..Disk::default() });
            let mut found = Findings::default();
            super::used(&mut found, &Path::new("spec"), &spec);
            found.into_errors().iter().map(|error| error.field.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told("root"), ["spec.volumes[0].name"]);
        assert_eq!(told("data"), Vec::<String>::new());
    }
}

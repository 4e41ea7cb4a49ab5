//! Updates of a VMI.
//!
//! Users cannot edit the spec of a VMI. Our own components change it on their behalf: CPUs, memory and volumes of a
//! running guest. What the guest was started with is immutable even for them.

use std::collections::{BTreeMap, BTreeSet};

use api::config::ClusterConfig;
use api::v1::{
    CPU, Disk, UtilityVolume, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineInstanceStatus, Volume,
    VolumeSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, Path};

use super::findings::Findings;
use super::{collect, disks, metadata, needs_gate, parsed};

/// Reserved labels that a user has changed.
pub(crate) fn changed_labels(old: &ObjectMeta, new: &ObjectMeta) -> Vec<FieldError> {
    collect(|found| metadata::reserved_labels_kept(found, &Path::new("metadata"), old, new))
}

/// Validates a component's change to a spec. Only the first error is reported.
pub(crate) fn changed_spec(
    old: &VirtualMachineInstance,
    new: &VirtualMachineInstance,
    config: &ClusterConfig,
) -> Vec<FieldError> {
    let field = Path::new("spec");
    let nothing = VirtualMachineInstanceStatus::default();
    let status = old.status.as_ref().unwrap_or(&nothing);
    let permanent: BTreeSet<&str> = status
        .volume_status
        .iter()
        .filter(|volume| volume.hotplug_volume.is_none())
        .map(|volume| volume.name.as_str())
        .collect();
    let migrated = new.status.as_ref().map(|status| status.migrated_volumes.as_slice()).unwrap_or_default();
    let migrated: BTreeSet<&str> = migrated.iter().map(|volume| volume.volume_name.as_str()).collect();
    let steps: [&dyn Fn(&mut Findings); 4] = [
        &|found| sizes(found, &field, &old.spec, &new.spec),
        &|found| utility_volumes(found, &field, &old.spec, &new.spec, &permanent, config),
        &|found| counts(found, &field, &new.spec, config),
        &|found| Storage::new(&old.spec, &new.spec, &permanent, &migrated).check(found, &field),
    ];
    steps.iter().map(|step| collect(step)).find(|errors| !errors.is_empty()).unwrap_or_default()
}

/// The maximum sizes are fixed when the guest starts.
fn sizes(found: &mut Findings, field: &Path<'_>, old: &VirtualMachineInstanceSpec, new: &VirtualMachineInstanceSpec) {
    let most =
        |spec: &VirtualMachineInstanceSpec| spec.domain.cpu.as_ref().and_then(|cpu: &CPU| cpu.max_sockets).unwrap_or(0);
    if most(old) != most(new) {
        let detail = "cannot change while the guest runs";
        return found.invalid(&field.child("domain.cpu.maxSockets"), most(new), detail);
    }
    let max_guest =
        |spec: &VirtualMachineInstanceSpec| spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.clone());
    if let (Some(old), Some(new)) = (max_guest(old), max_guest(new))
        && parsed(&old) != parsed(&new)
    {
        found.invalid(&field.child("domain.memory.maxGuest"), new.0, "cannot change while the guest runs");
    }
}

fn utility_volumes(
    found: &mut Findings,
    field: &Path<'_>,
    old: &VirtualMachineInstanceSpec,
    new: &VirtualMachineInstanceSpec,
    permanent: &BTreeSet<&str>,
    config: &ClusterConfig,
) {
    if new.utility_volumes.is_empty() {
        return;
    }
    let field = field.child("utilityVolumes");
    if !config.feature_gate("UtilityVolumes") {
        return needs_gate(found, &field, "UtilityVolumes", config);
    }
    let mut seen = BTreeSet::new();
    for (index, volume) in new.utility_volumes.iter().enumerate() {
        let UtilityVolume { name, claim_name, .. } = volume;
        let field = field.index(index);
        if name.is_empty() {
            found.required(&field.child("name"), "the volume has to be named");
        }
        let taken = new.volumes.iter().any(|other| other.name == *name);
        if !seen.insert(name.as_str()) || taken {
            found.duplicate(&field.child("name"), name);
        }
        if claim_name.is_empty() {
            found.required(&field.child("claimName"), "the claim has to be named");
        }
        if permanent.contains(name.as_str()) {
            found.invalid(&field, name.as_str(), "is a volume the guest was started with");
        }
        if old.utility_volumes.iter().any(|other| other.name == *name && other != volume) {
            found.invalid(&field, name.as_str(), "cannot change; remove it first");
        }
    }
}

/// Each volume is used once.
fn counts(found: &mut Findings, field: &Path<'_>, new: &VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let volumes = new.volumes.iter().filter(|volume| !volume.is_memory_dump());
    let volumes: BTreeSet<&str> = volumes.map(|volume| volume.name.as_str()).collect();
    let empty_drives = config.feature_gate("DeclarativeHotplugVolumes");
    let devices = &new.domain.devices;
    let empty = |disk: &&Disk| empty_drives && disk.is_cdrom() && !volumes.contains(disk.name.as_str());
    let wanted = devices.filesystems.len() + devices.disks.iter().filter(|disk| !empty(disk)).count();
    if wanted != volumes.len() {
        let message = format!("{} volumes for {wanted} disks and file systems", volumes.len());
        found.refuse(Cause::Invalid, &field.child("volumes"), message);
    }
}

/// Volumes and disks before and after, keyed by name and with their index in the list.
struct Storage<'a> {
    old_volumes: BTreeMap<&'a str, (usize, &'a Volume)>,
    new_volumes: BTreeMap<&'a str, (usize, &'a Volume)>,
    old_disks: BTreeMap<&'a str, (usize, &'a Disk)>,
    new_disks: BTreeMap<&'a str, (usize, &'a Disk)>,
    /// Volumes that the guest was started with.
    permanent: &'a BTreeSet<&'a str>,
    /// Volumes that are migrating to another claim.
    migrated: &'a BTreeSet<&'a str>,
}

impl<'a> Storage<'a> {
    fn new(
        old: &'a VirtualMachineInstanceSpec,
        new: &'a VirtualMachineInstanceSpec,
        permanent: &'a BTreeSet<&'a str>,
        migrated: &'a BTreeSet<&'a str>,
    ) -> Self {
        let volumes = |spec: &'a VirtualMachineInstanceSpec| {
            spec.volumes.iter().enumerate().map(|(index, volume)| (volume.name.as_str(), (index, volume))).collect()
        };
        let disks = |spec: &'a VirtualMachineInstanceSpec| {
            let disks = spec.domain.devices.disks.iter().enumerate();
            disks.map(|(index, disk)| (disk.name.as_str(), (index, disk))).collect()
        };
        Storage {
            old_volumes: volumes(old),
            new_volumes: volumes(new),
            old_disks: disks(old),
            new_disks: disks(new),
            permanent,
            migrated,
        }
    }

    fn check(&self, found: &mut Findings, field: &Path<'_>) {
        let volumes = field.child("volumes");
        let kept = |volumes: &BTreeMap<&str, (usize, &Volume)>| {
            volumes.keys().filter(|name| self.permanent.contains(*name)).count()
        };
        if kept(&self.old_volumes) != kept(&self.new_volumes) {
            let message = "the set of volumes the guest was started with cannot change";
            return found.refuse(Cause::Invalid, &volumes, message);
        }
        for (name, (index, volume)) in &self.new_volumes {
            let at = volumes.index(*index);
            let old = self.old_volumes.get(name).map(|(_, old)| *old);
            match (self.permanent.contains(name), old) {
                (true, None) => found.invalid(&at, *name, "the guest was not started with it"),
                (true, Some(_)) if self.migrated.contains(name) => {}
                (true, Some(old)) => {
                    if *volume != old {
                        found.invalid(&at, *name, "the guest was started with another volume of this name");
                    }
                    self.same_disk(found, field, name);
                }
                (false, Some(old)) => {
                    if *volume != old && !self.migrated.contains(name) {
                        found.invalid(&at, *name, "cannot change while it is plugged in");
                    }
                    if !volume.is_memory_dump() && self.has_disk(found, &at, name) {
                        self.same_disk(found, field, name);
                    }
                }
                (false, None) => self.newly_plugged(found, field, &at, volume),
            }
        }
    }

    fn has_disk(&self, found: &mut Findings, volume: &Path<'_>, name: &str) -> bool {
        let has_disk = self.new_disks.contains_key(name);
        if !has_disk {
            found.invalid(volume, name, "no disk has this name");
        }
        has_disk
    }

    fn same_disk(&self, found: &mut Findings, field: &Path<'_>, name: &str) {
        let disk = |disks: &BTreeMap<&str, (usize, &'a Disk)>| disks.get(name).map(|(_, disk)| *disk);
        if disk(&self.old_disks) != disk(&self.new_disks) {
            let index = self.new_disks.get(name).map_or(0, |(index, _)| *index);
            let disks = field.child("domain.devices.disks");
            found.invalid(&disks.index(index), name, "cannot change while the guest runs");
        }
    }

    fn newly_plugged(&self, found: &mut Findings, field: &Path<'_>, at: &Path<'_>, volume: &Volume) {
        let name = volume.name.as_str();
        match volume.source() {
            VolumeSource::MemoryDump(_) => return,
            VolumeSource::DataVolume(_) | VolumeSource::PersistentVolumeClaim(_) => {}
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => {
                let detail = "only a claim, a DataVolume or a memory dump can be plugged into a running guest";
                return found.invalid(at, name, detail);
            }
        }
        // An existing empty drive only gets a medium.
        if self.has_disk(found, at, name) && !self.old_disks.contains_key(name) {
            let disks = field.child("domain.devices.disks");
            if let Some((index, disk)) = self.new_disks.get(name) {
                disks::hotplug(found, &disks.index(*index), disk);
            }
        }
    }
}

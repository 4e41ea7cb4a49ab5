//! What a migration does with the data of each volume: what the target sees anyway is not copied, and what neither can be
//! seen there nor copied keeps the guest where it is.

use api::v1::{DiskDevice, PersistentVolumeClaimInfo, VirtualMachineInstance, Volume, VolumeSource};
use launcher_contract::migration::MovedVolume;

const READ_WRITE_MANY: &str = "ReadWriteMany";
const READ_ONLY_MANY: &str = "ReadOnlyMany";

/// The data of a volume during a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    /// The target has, or makes, its own: nothing that the guest has written is in it.
    Made,
    /// It is on the source's node, and goes along.
    Copied,
    /// Both nodes use it.
    Shared,
    /// It can neither be used by both nor copied, because of this.
    Stuck(String),
}

/// The volumes that both sides of a migration use.
pub(super) fn shared(vmi: &VirtualMachineInstance) -> Vec<String> {
    let volumes = vmi.spec.volumes.iter().filter(|volume| of(vmi, volume) == Data::Shared);
    volumes.map(|volume| volume.name.clone()).collect()
}

/// The volumes that get other claims.
pub(super) fn moved(vmi: &VirtualMachineInstance) -> Vec<MovedVolume> {
    let status = vmi.status.as_ref();
    let moved = status.iter().flat_map(|status| &status.migrated_volumes);
    let moved = moved.filter_map(|moved| {
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == moved.volume_name)?;
        let mut statuses = status.iter().flat_map(|status| &status.volume_status);
        Some(MovedVolume {
            volume: volume.name.clone(),
            block: moved.destination_pvc_info.as_ref().is_some_and(|to| to.volume_mode.as_deref() == Some("Block")),
            plugged: volume.source().is_hotpluggable()
                || statuses.any(|status| status.name == volume.name && status.hotplug_volume.is_some()),
        })
    });
    moved.collect()
}

/// Whether any data has to be copied.
pub(super) fn copies(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.volumes.iter().any(|volume| of(vmi, volume) == Data::Copied)
}

/// Why the disks cannot follow their guest, if they cannot.
pub(super) fn obstacle(vmi: &VirtualMachineInstance) -> Option<String> {
    vmi.spec.volumes.iter().find_map(|volume| match of(vmi, volume) {
        Data::Stuck(why) => Some(why),
        Data::Made | Data::Copied | Data::Shared => None,
    })
}

fn of(vmi: &VirtualMachineInstance, volume: &Volume) -> Data {
    match volume.source() {
        VolumeSource::PersistentVolumeClaim(source) => claim(vmi, volume, &source.claim_name),
        VolumeSource::DataVolume(source) => claim(vmi, volume, &source.name),
        VolumeSource::HostDisk(disk) if disk.shared == Some(true) => Data::Shared,
        VolumeSource::HostDisk(_) => Data::Stuck("cannot migrate VMI with non-shared HostDisk".to_owned()),
        // Its base is a claim; only what the guest has written over it is on this node.
        VolumeSource::Ephemeral(source) => match &source.persistent_volume_claim {
            Some(base) => match claim(vmi, volume, &base.claim_name) {
                Data::Stuck(why) => Data::Stuck(why),
                Data::Made | Data::Copied | Data::Shared => written(vmi, volume),
            },
            None => Data::Made,
        },
        VolumeSource::ContainerDisk(_)
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::CloudInitConfigDrive(_) => written(vmi, volume),
        VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::MemoryDump(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => Data::Made,
    }
}

/// A file of the launcher: the target makes an equal one, unless the guest can write to it.
fn written(vmi: &VirtualMachineInstance, volume: &Volume) -> Data {
    let disk = vmi.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    let writable = disk.is_some_and(|disk| match disk.device() {
        DiskDevice::CdRom(cdrom) => cdrom.readonly == Some(false),
        DiskDevice::Disk(_) | DiskDevice::Lun(_) | DiskDevice::Unset => true,
    });
    if writable { Data::Copied } else { Data::Made }
}

fn claim(vmi: &VirtualMachineInstance, volume: &Volume, name: &str) -> Data {
    let status = vmi.status.as_ref();
    if status.is_some_and(|status| status.migrated_volumes.iter().any(|moved| moved.volume_name == volume.name)) {
        return Data::Copied;
    }
    let statuses = status.map(|status| status.volume_status.as_slice()).unwrap_or_default();
    let known = statuses.iter().find(|status| status.name == volume.name);
    match known.and_then(|status| status.persistent_volume_claim_info.as_ref()) {
        Some(info) if is_shared(info) => Data::Shared,
        Some(_) => Data::Stuck(format!(
            "cannot migrate VMI: PVC {name} is not shared, live migration requires that all PVCs must be shared (using \
             ReadWriteMany access mode)"
        )),
        None => Data::Stuck(format!(
            "cannot migrate VMI: Unable to determine if PVC {name} is shared, live migration requires that all PVCs must be \
             shared (using ReadWriteMany access mode)"
        )),
    }
}

/// A claim that can only be read is the same everywhere; KubeVirt does not move its guests.
fn is_shared(info: &PersistentVolumeClaimInfo) -> bool {
    let modes = &info.access_modes;
    let only_read = !modes.is_empty() && modes.iter().all(|mode| mode == READ_ONLY_MANY);
    only_read || modes.iter().any(|mode| mode == READ_WRITE_MANY)
}

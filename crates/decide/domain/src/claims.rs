//! What a VMI's status says about the claims behind its disks.

use api::v1::{PersistentVolumeClaimInfo, VirtualMachineInstance, Volume, VolumeStatus};

fn status<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a VolumeStatus> {
    vmi.status.as_ref()?.volume_status.iter().find(|status| status.name == volume)
}

/// The claim of a volume.
pub fn info<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a PersistentVolumeClaimInfo> {
    status(vmi, volume)?.persistent_volume_claim_info.as_ref()
}

/// Whether the claim of a volume is a block device.
pub fn is_block(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    info(vmi, volume).is_some_and(|info| info.volume_mode.as_deref() == Some("Block"))
}

/// Whether a volume comes through an attachment Pod, and may come and go while the guest runs.
pub fn is_plugged(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    volume.source().is_hotpluggable() || status(vmi, &volume.name).is_some_and(|status| status.hotplug_volume.is_some())
}

/// Whether a volume gets another claim by a migration.
pub fn moves(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let mut moved = vmi.status.iter().flat_map(|status| &status.migrated_volumes);
    moved.any(|moved| moved.volume_name == volume)
}

/// The size of the disk of a volume that [`moves`].
pub fn moved_size(vmi: &VirtualMachineInstance, volume: &str) -> Option<u64> {
    status(vmi, volume)?.size.and_then(|size| u64::try_from(size).ok())
}

/// The device name of a disk in the guest that is running or has been.
pub(crate) fn target<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a str> {
    status(vmi, volume).map(|status| status.target.as_str()).filter(|target| !target.is_empty())
}

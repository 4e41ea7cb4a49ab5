//! Paths inside the launcher's Pod, as in the launcher contract unless its command line overrides them.

use api::v1::{VirtualMachineInstance, Volume, VolumeSource};
use launcher_contract::paths;

use crate::claims;
use crate::facts::Location;

/// The directories of a launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Sockets of the guest's consoles.
    pub private: String,
    /// Overlays and cloud-init images; removed with the Pod.
    pub ephemeral_disks: String,
    pub empty_disks: String,
    /// The image with kernel and initrd.
    pub kernel_boot: String,
    /// The parent of the container disk images, one directory per volume.
    pub image_volumes: String,
    /// The parent of the directories with claims and host disks.
    pub disks: String,
    /// The directory of devices.
    pub devices: String,
    /// Where volumes appear that are plugged into the running guest.
    pub plugged: String,
}

impl Default for Paths {
    fn default() -> Self {
        Paths {
            private: paths::PRIVATE.into(),
            ephemeral_disks: paths::EPHEMERAL_DISKS.into(),
            empty_disks: paths::EMPTY_DISKS.into(),
            kernel_boot: paths::KERNEL_BOOT.into(),
            image_volumes: paths::CONTAINER_DISKS.into(),
            disks: paths::DISKS.into(),
            devices: paths::DEVICES.into(),
            plugged: paths::HOTPLUG_DISKS.into(),
        }
    }
}

impl Paths {
    /// The directory of one VMI's console sockets.
    pub fn sockets(&self, vmi: &VirtualMachineInstance) -> String {
        paths::console_directory(&self.private, uid(vmi))
    }

    /// The qcow2 that takes the writes to a container disk or an ephemeral disk.
    pub fn overlay(&self, volume: &str) -> String {
        paths::container_disk_overlay(&self.ephemeral_disks, volume)
    }

    /// The mounted image of the container disk that is the `index`th volume.
    pub fn image_volume(&self, index: usize) -> String {
        format!("{}/{}", self.image_volumes, paths::image_directory(index))
    }

    /// Where the data of a claim or a host disk is, by its volume mode in the status: a file unless that says `Block`.
    /// `None` for volumes of other kinds.
    pub fn lasting(&self, vmi: &VirtualMachineInstance, volume: &Volume) -> Option<Location> {
        let claim = match volume.source() {
            VolumeSource::PersistentVolumeClaim(_) | VolumeSource::DataVolume(_) => true,
            VolumeSource::Ephemeral(source) => source.persistent_volume_claim.is_some(),
            VolumeSource::HostDisk(disk) => {
                let name = disk.path.rsplit('/').next().unwrap_or_default();
                return Some(Location::File(format!("{}/{}/{name}", self.disks, volume.name)));
            }
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::MemoryDump(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => false,
        };
        claim.then(|| self.claim(&volume.name, claims::is_block(vmi, &volume.name), claims::is_plugged(vmi, volume)))
    }

    /// Where a claim is in the Pod.
    pub fn claim(&self, volume: &str, block: bool, plugged: bool) -> Location {
        match (plugged, block) {
            (false, false) => Location::File(format!("{}/{volume}/{}", self.disks, paths::DISK_IMAGE)),
            (false, true) => Location::Device(format!("{}/{volume}", self.devices)),
            (true, false) => Location::File(format!("{}/{volume}.img", self.plugged)),
            (true, true) => Location::Device(format!("{}/{volume}", self.plugged)),
        }
    }

    pub fn empty_disk(&self, volume: &str) -> String {
        format!("{}/{volume}.qcow2", self.empty_disks)
    }

    pub fn no_cloud_iso(&self, vmi: &VirtualMachineInstance) -> String {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        format!("{}/noCloud.iso", paths::cloud_init_directory(&self.ephemeral_disks, namespace, name))
    }
}

/// Used for an object without a UID, which was never stored.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

pub(crate) fn uid(vmi: &VirtualMachineInstance) -> &str {
    vmi.metadata.uid.as_deref().unwrap_or(NO_UID)
}

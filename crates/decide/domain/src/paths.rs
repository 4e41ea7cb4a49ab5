//! Paths inside the launcher's Pod, as in the launcher contract unless its command line overrides them.

use api::v1::VirtualMachineInstance;
use launcher_contract::paths;

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
}

impl Default for Paths {
    fn default() -> Self {
        Paths {
            private: paths::PRIVATE.into(),
            ephemeral_disks: paths::EPHEMERAL_DISKS.into(),
            empty_disks: paths::EMPTY_DISKS.into(),
            kernel_boot: paths::KERNEL_BOOT.into(),
            image_volumes: paths::CONTAINER_DISKS.into(),
        }
    }
}

impl Paths {
    /// The directory of one VMI's console sockets.
    pub fn sockets(&self, vmi: &VirtualMachineInstance) -> String {
        paths::console_directory(&self.private, uid(vmi))
    }

    /// The qcow2 that takes the writes to a container disk.
    pub fn container_disk_overlay(&self, volume: &str) -> String {
        paths::container_disk_overlay(&self.ephemeral_disks, volume)
    }

    /// The mounted image of the container disk that is the `index`th volume.
    pub fn image_volume(&self, index: usize) -> String {
        format!("{}/{}", self.image_volumes, paths::image_directory(index))
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

//! Whether a guest can be live-migrated, and how.

use api::annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION;
use api::conditions::LIVE_MIGRATABLE;
use api::reasons::{HOST_DEVICE_NOT_LIVE_MIGRATABLE, INTERFACE_NOT_LIVE_MIGRATABLE};
use api::v1::{
    Binding, Condition, ConditionStatus, Disk, DiskDevice, Interface, VirtualMachineInstance, Volume, VolumeSource,
};
use jiff::Timestamp;

use crate::status::time;

const BLOCK_MIGRATION: &str = "BlockMigration";
const LIVE_MIGRATION: &str = "LiveMigration";

/// The condition, and the method of a migration: with or without copying disks.
pub(crate) fn live_migratable(vmi: &VirtualMachineInstance, now: Timestamp) -> (Condition, &'static str) {
    let condition = match obstacle(vmi) {
        Some((reason, why)) => Condition::new(LIVE_MIGRATABLE, ConditionStatus::False, reason, why, time(now)),
        None => Condition::new(LIVE_MIGRATABLE, ConditionStatus::True, "", "", time(now)),
    };
    let method =
        if vmi.spec.volumes.iter().any(|volume| is_copied(vmi, volume)) { BLOCK_MIGRATION } else { LIVE_MIGRATION };
    (condition, method)
}

fn obstacle(vmi: &VirtualMachineInstance) -> Option<(&'static str, &'static str)> {
    let devices = &vmi.spec.domain.devices;
    let pod_network = vmi.spec.networks.iter().find(|network| network.source().is_pod());
    let of_pod = pod_network.and_then(|network| devices.interfaces.iter().find(|i| i.name == network.name));
    if of_pod.is_some_and(|interface| !can_follow(vmi, interface)) {
        let why = "cannot migrate VMI which does not use masquerade, bridge with kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin to connect to the pod network";
        return Some((INTERFACE_NOT_LIVE_MIGRATABLE, why));
    }
    if !devices.host_devices.is_empty() || !devices.gpus.is_empty() {
        return Some((HOST_DEVICE_NOT_LIVE_MIGRATABLE, "VMI uses a host device, which cannot be migrated"));
    }
    None
}

fn can_follow(vmi: &VirtualMachineInstance, interface: &Interface) -> bool {
    let allowed = || {
        vmi.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION))
    };
    match interface.bound_by() {
        Binding::Masquerade => true,
        Binding::Bridge => allowed(),
        Binding::Sriov
        | Binding::Passt
        | Binding::Plugin(_)
        | Binding::Macvtap
        | Binding::OldPasst
        | Binding::Slirp
        | Binding::Unset => false,
    }
}

/// Whether a volume is local to the node and writable by the guest, so that it has to be copied.
fn is_copied(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    let local = match volume.source() {
        VolumeSource::ContainerDisk(_)
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::CloudInitConfigDrive(_) => true,
        VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DataVolume(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => false,
    };
    let writable = |disk: &Disk| match disk.device() {
        DiskDevice::CdRom(cdrom) => cdrom.readonly == Some(false),
        DiskDevice::Disk(_) | DiskDevice::Lun(_) | DiskDevice::Unset => true,
    };
    let disk = vmi.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    local && disk.is_some_and(writable)
}

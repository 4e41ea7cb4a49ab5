//! Whether a guest can be live-migrated, and how.

use api::annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION;
use api::conditions::{LIVE_MIGRATABLE, STORAGE_LIVE_MIGRATABLE};
use api::reasons::{
    DISKS_NOT_LIVE_MIGRATABLE, HOST_DEVICE_NOT_LIVE_MIGRATABLE, INTERFACE_NOT_LIVE_MIGRATABLE, NOT_MIGRATABLE,
    PERSISTENT_RESERVATION_NOT_LIVE_MIGRATABLE,
};
use api::v1::{Binding, Condition, ConditionStatus, Interface, VirtualMachineInstance};
use jiff::Timestamp;

use super::storage;
use crate::status::time;

const BLOCK_MIGRATION: &str = "BlockMigration";
const LIVE_MIGRATION: &str = "LiveMigration";
const RESERVES: &str = "VMI uses SCSI persistent reservation";

/// The condition, and the method of a migration: with or without copying disks.
pub(crate) fn live_migratable(vmi: &VirtualMachineInstance, now: Timestamp) -> (Condition, &'static str) {
    let condition = match obstacle(vmi) {
        Some((reason, why)) => Condition::new(LIVE_MIGRATABLE, ConditionStatus::False, reason, why, time(now)),
        None => Condition::new(LIVE_MIGRATABLE, ConditionStatus::True, "", "", time(now)),
    };
    let method = if storage::copies(vmi) { BLOCK_MIGRATION } else { LIVE_MIGRATION };
    (condition, method)
}

fn obstacle(vmi: &VirtualMachineInstance) -> Option<(&'static str, String)> {
    beyond_storage(vmi).map(|(reason, why)| (reason, why.to_owned())).or_else(|| {
        let why = storage::obstacle(vmi)?;
        Some((DISKS_NOT_LIVE_MIGRATABLE, why))
    })
}

/// Whether the guest could move if its disks were copied to other claims.
pub(crate) fn storage_live_migratable(vmi: &VirtualMachineInstance, now: Timestamp) -> Condition {
    let because = beyond_storage(vmi).map(|(reason, why)| format!("{reason}: {why}"));
    let reserves = vmi.spec.domain.devices.disks.iter().any(|disk| disk.device().takes_reservations());
    let reserves = reserves.then(|| format!("{PERSISTENT_RESERVATION_NOT_LIVE_MIGRATABLE}: {RESERVES}"));
    let because: Vec<String> = because.into_iter().chain(reserves).collect();
    let (status, reason) =
        if because.is_empty() { (ConditionStatus::True, "") } else { (ConditionStatus::False, NOT_MIGRATABLE) };
    Condition::new(STORAGE_LIVE_MIGRATABLE, status, reason, because.join(", "), time(now))
}

fn beyond_storage(vmi: &VirtualMachineInstance) -> Option<(&'static str, &'static str)> {
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

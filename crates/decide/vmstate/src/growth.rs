//! Disks that could be larger, because their claims are.

use std::time::Duration;

use api::v1::{PersistentVolumeClaimInfo, VirtualMachineInstance};
use launcher_contract::types::{DomainDisk, DomainState};
use machinery::quantity::Quantity;

/// How long after a sync that was to grow disks to these sizes it is tried again: the node may be late to see the growth, or have
/// no space for it.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// The size that all disks together should have which are smaller than their claims, if there are any.
pub(crate) fn due(vmi: &VirtualMachineInstance, domain: &DomainState) -> Option<u64> {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    let claims = statuses.filter_map(|status| Some((&status.name, status.persistent_volume_claim_info.as_ref()?)));
    // The claim of a volume that is about to move is not the one that its disk is on.
    let moves = |name: &str| {
        let mut moved = vmi.status.iter().flat_map(|status| &status.migrated_volumes);
        moved.any(|moved| moved.volume_name == name)
    };
    let claims =
        claims.filter(|(name, _)| !moves(name) && vmi.spec.volumes.iter().any(|v| v.name == **name && v.is_claim()));
    let wanted = claims.filter_map(|(name, info)| {
        let disk = domain.disks.iter().find(|disk| disk.alias == *name)?;
        larger(disk, info)
    });
    wanted.reduce(u64::saturating_add)
}

/// The size that a disk should have, if that is more than it has.
fn larger(disk: &DomainDisk, info: &PersistentVolumeClaimInfo) -> Option<u64> {
    let capacity = info.capacity.get("storage").and_then(|amount| Quantity::try_from(amount).ok());
    let capacity = capacity.and_then(|amount| u64::try_from(amount.value()).ok()).unwrap_or_default();
    let usable = match info.volume_mode.as_deref() {
        Some("Block") => capacity,
        _ => launcher_contract::disks::usable(capacity, info.filesystem_overhead.as_deref()),
    };
    (disk.capacity > 0 && disk.capacity / MIB < usable / MIB).then_some(usable)
}

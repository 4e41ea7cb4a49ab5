//! Disks: how volumes are presented to the guest.

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{BlockSize, Disk, DiskDevice, VirtualMachineInstanceSpec, VolumeSource};
use machinery::field::{Cause, Path};
use machinery::names::check_dns1123_label;

use super::findings::{Findings, given};

const BUSES: [&str; 4] = ["virtio", "scsi", "sata", "usb"];
const CACHES: [&str; 3] = ["none", "writethrough", "writeback"];
const IO_MODES: [&str; 2] = ["native", "threads"];
const ERROR_POLICIES: [&str; 4] = ["stop", "ignore", "report", "enospace"];
const MAX_SERIAL: usize = 256;
/// The block size that every guest supports, and the only one of the SATA controller.
const LEAST_BLOCK: u64 = 512;
const LARGEST_BLOCK: u64 = 2 << 20;

/// Rules about disks alone.
pub(super) fn check(found: &mut Findings, field: &Path<'_>, disks: &[Disk]) {
    let mut seen = BTreeSet::new();
    for (index, disk) in disks.iter().enumerate() {
        let field = field.index(index);
        if !seen.insert(disk.name.as_str()) {
            found.invalid(&field.child("name"), disk.name.as_str(), "is the name of another disk");
        }
        found.name(&field.child("name"), &disk.name, &check_dns1123_label(&disk.name));
        target(found, &field, disk);
        if let Some(order) = disk.boot_order.filter(|order| *order < 1) {
            found.invalid(&field.child("bootOrder"), order, "must be at least 1");
        }
        options(found, &field, disk);
        if let Some(size) = &disk.block_size {
            block_size(found, &field.child("blockSize"), size, bus(disk));
        }
    }
}

/// The disk's bus, empty if unset.
fn bus(disk: &Disk) -> &str {
    disk.device().bus().unwrap_or_default()
}

fn target(found: &mut Findings, field: &Path<'_>, disk: &Disk) {
    if disk.devices().count() > 1 {
        found.invalid(field, disk.name.as_str(), "at most one of disk, lun and cdrom may be set");
    }
    let (device, bus) = (disk.device(), bus(disk));
    if let DiskDevice::Disk(target) = device
        && let Some(address) = given(&target.pci_address)
    {
        let at = field.child("disk.pciAddress");
        if bus != "virtio" {
            found.invalid(&at, address, "only a disk on virtio has a PCI address of its own");
        }
        super::pci_address(found, &at, address);
    }
    let problem = match (bus, device) {
        ("", _) => return,
        ("ide", _) => Some("there is no IDE controller; use sata"),
        (bus, _) if !BUSES.contains(&bus) => Some("must be one of virtio, scsi, sata, usb"),
        ("virtio", DiskDevice::CdRom(_)) => Some("a CD-ROM cannot be on virtio; use sata or scsi"),
        ("sata", DiskDevice::Disk(target)) if target.readonly == Some(true) => {
            Some("a read-only disk cannot be on sata; use virtio or scsi, or make it a cdrom")
        }
        (_, DiskDevice::Disk(_) | DiskDevice::Lun(_) | DiskDevice::CdRom(_) | DiskDevice::Unset) => None,
    };
    if let Some(problem) = problem {
        found.invalid(&field.child(device.member()).child("bus"), bus, problem);
    }
    if disk.dedicated_io_thread == Some(true) && bus != "virtio" {
        let message = format!("a disk on {bus} cannot have a thread of its own; use virtio");
        found.refuse(Cause::NotSupported, &field.child("dedicatedIOThread"), message);
    }
}

fn options(found: &mut Findings, field: &Path<'_>, disk: &Disk) {
    if let Some(serial) = given(&disk.serial) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        if !serial.chars().all(allowed) || serial.len() > MAX_SERIAL {
            let detail = format_args!("must be at most {MAX_SERIAL} letters, digits and characters _ . + -");
            found.invalid(&field.child("serial"), serial, detail);
        }
    }
    if let Some(cache) = given(&disk.cache).filter(|cache| !CACHES.contains(cache)) {
        found.invalid(&field.child("cache"), cache, format_args!("must be one of {}", CACHES.join(", ")));
    }
    if let Some(io) = given(&disk.io).filter(|io| !IO_MODES.contains(io)) {
        found.not_supported(&field.child("io"), io, &IO_MODES);
    }
    if let Some(policy) = disk.error_policy.as_deref().filter(|policy| !ERROR_POLICIES.contains(policy)) {
        let detail = format_args!("must be one of {}", ERROR_POLICIES.join(", "));
        found.invalid(&field.child("errorPolicy"), policy, detail);
    }
}

fn block_size(found: &mut Findings, field: &Path<'_>, size: &BlockSize, bus: &str) {
    let Some(custom) = &size.custom else { return };
    if size.match_volume.as_ref().is_some_and(|state| state.enabled != Some(false)) {
        return found.refuse(Cause::Invalid, field, "custom and matchVolume exclude each other");
    }
    let field = field.child("custom");
    let (logical, physical) = (custom.logical.unwrap_or(0), custom.physical.unwrap_or(0));
    let discard = custom.discard_granularity.filter(|discard| logical != 0 && discard % logical != 0);
    if logical > physical {
        let detail = format_args!("must not be greater than the physical size {physical}");
        found.invalid(&field.child("logical"), logical, detail);
    } else if bus == "sata" && logical != LEAST_BLOCK {
        found.invalid(&field.child("logical"), logical, format_args!("must be {LEAST_BLOCK} on sata"));
    } else if let Some(discard) = discard {
        let detail = format_args!("must be a multiple of the logical size {logical}");
        found.invalid(&field.child("discardGranularity"), discard, detail);
    } else {
        for (name, size) in [("logical", logical), ("physical", physical)] {
            if !(LEAST_BLOCK..=LARGEST_BLOCK).contains(&size) || !size.is_power_of_two() {
                let detail = format_args!("must be a power of two from {LEAST_BLOCK} to {LARGEST_BLOCK}");
                found.invalid(&field.child(name), size, detail);
            }
        }
    }
}

/// Disks with their volumes, and the boot order.
pub(super) fn with_volumes(
    found: &mut Findings,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let mut orders = BTreeSet::new();
    let disks = devices.child("disks");
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        let field = disks.index(index);
        // Of several volumes with the same name, the last one counts.
        match spec.volumes.iter().rfind(|volume| volume.name == disk.name) {
            None if !disk.is_cdrom() => {
                found.invalid(&field.child("name"), disk.name.as_str(), "no volume has this name");
            }
            None => super::needs_gate(found, &field.child("name"), "DeclarativeHotplugVolumes", config),
            Some(volume) => {
                if disk.is_lun() && !volume.is_claim() {
                    let detail = "the volume has to be a claim or a DataVolume";
                    found.refuse(Cause::Invalid, &field.child("lun"), detail);
                }
                if volume.sources().any(|source| source == VolumeSource::DownwardMetrics) {
                    metrics_disk(found, &field, disk);
                }
            }
        }
        if let Some(order) = disk.boot_order.filter(|order| !orders.insert(*order)) {
            found.invalid(&field.child("bootOrder"), order, "is the order of another device");
        }
    }
    let interfaces = devices.child("interfaces");
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        let Some(order) = interface.boot_order else { continue };
        let field = interfaces.index(index);
        if order < 1 {
            found.invalid(&field.child("bootOrder"), order, "must be at least 1");
        } else if !orders.insert(order) {
            found.invalid(&field.child("bootOrder"), order, "is the order of another device");
        }
    }
}

fn metrics_disk(found: &mut Findings, field: &Path<'_>, disk: &Disk) {
    match disk.device() {
        DiskDevice::Disk(target) => {
            if let Some(bus) = given(&target.bus).filter(|bus| *bus != "virtio") {
                found.invalid(&field.child("disk.bus"), bus, "a volume of downward metrics has to be on virtio");
            }
        }
        DiskDevice::Lun(_) | DiskDevice::CdRom(_) | DiskDevice::Unset => {
            found.required(&field.child("disk"), "a volume of downward metrics shows as a disk only");
        }
    }
}

/// Validates a disk that is to be hot-plugged.
pub(super) fn hotplug(found: &mut Findings, field: &Path<'_>, disk: &Disk) {
    let bus = bus(disk);
    let problem = match (disk.device(), bus) {
        (DiskDevice::Disk(_), "scsi" | "virtio") | (DiskDevice::Lun(_), "scsi") => None,
        (DiskDevice::Disk(_), _) => Some("a disk is plugged into scsi or virtio only"),
        (DiskDevice::Lun(_), _) => Some("a LUN is plugged into scsi only"),
        (DiskDevice::CdRom(_) | DiskDevice::Unset, _) => {
            Some("only a disk or a LUN can be plugged into a running guest")
        }
    };
    if let Some(problem) = problem {
        found.invalid(field, disk.name.as_str(), problem);
    } else if disk.dedicated_io_thread == Some(true) && bus != "virtio" {
        found.invalid(field, disk.name.as_str(), "a thread of its own needs the virtio bus");
    } else if let Some(order) = disk.boot_order.filter(|order| *order < 1) {
        found.invalid(&field.child("bootOrder"), order, "must be at least 1");
    }
}

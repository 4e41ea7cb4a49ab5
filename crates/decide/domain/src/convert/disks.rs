//! Disks: a device in the guest, and the file or the device behind it.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::{Disk as Given, DiskDevice, VirtualMachineInstance, Volume, VolumeSource};

use super::refuse::later;
use super::virtio_model;
use crate::claims;
use crate::error::Error;
use crate::facts::{DiskFacts, HostFacts, Location, Storage};
use crate::xml::{Alias, BackingStore, Boot, Disk, DiskDriver, DiskSource, DiskTarget, DriveAddress, Empty, Format};

/// Admission's default bus.
const DEFAULT_BUS: &str = "sata";

pub(super) fn disks(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Result<Vec<Disk>, Error> {
    let targets = targets(vmi, facts);
    let given = vmi.spec.domain.devices.disks.iter().zip(targets).enumerate();
    let present = given.filter(|(_, (disk, _))| !is_to_come(vmi, facts, disk));
    present.map(|(index, (disk, target))| convert(vmi, facts, index, disk, target)).collect()
}

/// One disk of the guest, to plug it in while the guest runs.
pub fn disk(vmi: &VirtualMachineInstance, facts: &HostFacts, name: &str) -> Result<Disk, Error> {
    let mut given = vmi.spec.domain.devices.disks.iter().zip(targets(vmi, facts)).enumerate();
    let (index, (disk, target)) = given
        .find(|(_, (disk, _))| disk.name == name)
        .ok_or_else(|| Error::invalid("spec.domain.devices.disks", format!("no disk is named {name:?}")))?;
    convert(vmi, facts, index, disk, target)
}

/// Whether a disk is plugged in as soon as its volume is there. The guest starts without it; a drive is there from the
/// start.
fn is_to_come(vmi: &VirtualMachineInstance, facts: &HostFacts, disk: &Given) -> bool {
    let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
    !disk.is_cdrom() && volume.is_some_and(|volume| is_missing(vmi, facts, volume))
}

fn is_missing(vmi: &VirtualMachineInstance, facts: &HostFacts, volume: &Volume) -> bool {
    claims::is_plugged(vmi, volume) && !facts.disks.contains_key(&volume.name)
}

/// The device names of all disks: those that the guest knows already stay.
fn targets(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Vec<String> {
    let disks = &vmi.spec.domain.devices.disks;
    let mut taken: BTreeSet<&str> = facts.targets.values().map(String::as_str).collect();
    let mut known = Vec::new();
    for disk in disks {
        let of_guest = facts.targets.get(&disk.name).map(String::as_str);
        let recorded = || {
            let target = claims::target(vmi, &disk.name)?;
            (target.starts_with(prefix(disk)) && taken.insert(target)).then_some(target)
        };
        known.push(of_guest.or_else(recorded));
    }
    let mut targets = Vec::new();
    let mut new: BTreeMap<&str, usize> = BTreeMap::new();
    for (disk, known) in disks.iter().zip(known) {
        let prefix = prefix(disk);
        let next = || loop {
            let index = new.entry(prefix).or_default();
            let target = format!("{prefix}{}", letters_of(*index));
            *index += 1;
            if !taken.contains(target.as_str()) {
                break target;
            }
        };
        targets.push(known.map(str::to_owned).unwrap_or_else(next));
    }
    targets
}

fn prefix(disk: &Given) -> &'static str {
    if bus(disk) == "virtio" { "vd" } else { "sd" }
}

fn bus(disk: &Given) -> &str {
    disk.device().bus().filter(|bus| !bus.is_empty()).unwrap_or(DEFAULT_BUS)
}

/// The disk as the guest sees it.
struct Device {
    device: &'static str,
    bus: &'static str,
    readonly: bool,
}

fn convert(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    index: usize,
    given: &Given,
    target: String,
) -> Result<Disk, Error> {
    let field = format!("spec.domain.devices.disks[{index}]");
    refuse(given, &field)?;
    let volume = vmi.spec.volumes.iter().find(|volume| volume.name == given.name);
    if given.is_cdrom() && volume.is_none_or(|volume| is_missing(vmi, facts, volume)) {
        return drive(given, &field, index, target);
    }
    let volume = volume
        .ok_or_else(|| Error::invalid(format!("{field}.name"), format!("no volume is named {:?}", given.name)))?;
    let known = facts
        .disks
        .get(&volume.name)
        .ok_or_else(|| Error::MissingFact { what: "the state of the files", of: format!("volume {}", volume.name) })?;
    let device = device(given, known, &field)?;
    let source = source(vmi, facts, volume, known)?;
    let storage = known.storage.as_ref();
    let shareable = given.shareable == Some(true);
    if shareable && storage.is_none() {
        let detail = "only a claim, a DataVolume or a hostDisk can be shared by several guests";
        return Err(Error::invalid(format!("{field}.shareable"), detail));
    }
    let cache = cache(given, known, &field)?;
    let preallocated = storage.is_some_and(|storage| storage.preallocated);
    Ok(Disk {
        type_: source.location.kind(),
        device: device.device,
        model: (device.bus == "virtio").then(|| virtio_model(vmi)),
        driver: DiskDriver {
            name: "qemu",
            type_: source.format,
            io: io(given, &cache, storage),
            cache,
            error_policy: error_policy(given, &field)?,
            discard: (device.device == "disk" && !preallocated).then_some("unmap"),
        },
        source: Some(DiskSource::from(&source.location)),
        backing_store: source.backing,
        target: DiskTarget { dev: target, bus: device.bus },
        readonly: device.readonly.then_some(Empty {}),
        shareable: shareable.then_some(Empty {}),
        serial: serial(given, &field)?,
        boot: given.boot_order.map(|order| Boot { order }),
        alias: Alias::user(&given.name),
        address: address(device.bus, index),
    })
}

/// A drive without a medium.
fn drive(given: &Given, field: &str, index: usize, target: String) -> Result<Disk, Error> {
    let device = device(given, &DiskFacts::default(), field)?;
    let cache = given.cache.clone().filter(|cache| !cache.is_empty());
    Ok(Disk {
        type_: "file",
        device: device.device,
        model: None,
        driver: DiskDriver {
            name: "qemu",
            type_: "raw",
            io: given.io.clone().filter(|io| !io.is_empty()),
            // Of its media, which are only read.
            cache: cache.unwrap_or_else(|| "writethrough".to_owned()),
            error_policy: error_policy(given, field)?,
            discard: None,
        },
        source: None,
        backing_store: None,
        target: DiskTarget { dev: target, bus: device.bus },
        readonly: device.readonly.then_some(Empty {}),
        shareable: None,
        serial: serial(given, field)?,
        boot: given.boot_order.map(|order| Boot { order }),
        alias: Alias::user(&given.name),
        address: address(device.bus, index),
    })
}

fn address(bus: &str, index: usize) -> Option<DriveAddress> {
    let unit = index as u32;
    (bus == "scsi").then_some(DriveAddress { type_: "drive", controller: 0, bus: 0, target: 0, unit })
}

fn refuse(disk: &Given, field: &str) -> Result<(), Error> {
    let has_pci_address = matches!(disk.device(), DiskDevice::Disk(target) if target.pci_address.is_some());
    let fields = [
        (disk.is_lun(), "lun"),
        (disk.block_size.is_some(), "blockSize"),
        (disk.changed_block_tracking == Some(true), "changedBlockTracking"),
        (disk.dedicated_io_thread == Some(true), "dedicatedIOThread"),
        (has_pci_address, "disk.pciAddress"),
    ];
    match fields.iter().find(|(set, _)| *set) {
        Some((_, name)) => Err(later(format!("{field}.{name}"))),
        None => Ok(()),
    }
}

fn device(disk: &Given, known: &DiskFacts, field: &str) -> Result<Device, Error> {
    let (device, readonly) = match disk.device() {
        DiskDevice::CdRom(cdrom) => ("cdrom", cdrom.readonly.unwrap_or(true)),
        DiskDevice::Disk(disk) => ("disk", disk.readonly.unwrap_or(false)),
        DiskDevice::Unset => ("disk", false),
        DiskDevice::Lun(_) => return Err(later(format!("{field}.lun"))),
    };
    let bus = match bus(disk) {
        "virtio" if device == "cdrom" => {
            return Err(Error::invalid(format!("{field}.cdrom.bus"), "a CD-ROM cannot be on virtio; use sata or scsi"));
        }
        "virtio" => "virtio",
        "sata" => "sata",
        "scsi" => "scsi",
        other => {
            let detail = format!("bus {other:?} is none of virtio, sata, scsi");
            return Err(Error::unsupported(format!("{field}.{device}.bus"), detail));
        }
    };
    // QEMU does not open for writing what cannot be written to.
    let only_read = known.storage.as_ref().is_some_and(|storage| storage.readonly);
    if only_read && !readonly && bus == "sata" {
        let detail =
            "the volume can only be read, and a disk on sata cannot be read-only; use virtio or scsi, or a cdrom";
        return Err(Error::invalid(format!("{field}.{device}.bus"), detail));
    }
    Ok(Device { device, bus, readonly: readonly || only_read })
}

/// What is behind a disk. Every backing chain is written out to its end, so that nothing relies on an image's header
/// for what else to open: the header is under the tenant's control.
struct Source {
    location: Location,
    format: &'static str,
    backing: Option<BackingStore>,
}

fn source(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    volume: &Volume,
    known: &DiskFacts,
) -> Result<Source, Error> {
    let paths = &facts.paths;
    let fact = |what| Error::MissingFact { what, of: format!("volume {}", volume.name) };
    let raw = |location| Source { location, format: "raw", backing: None };
    match volume.source() {
        VolumeSource::ContainerDisk(_) | VolumeSource::Ephemeral(_) => {
            let backing = known.backing.as_ref().ok_or_else(|| fact("the image"))?;
            let backing = BackingStore {
                type_: Some(backing.location.kind()),
                format: Some(Format { type_: backing.format.as_str() }),
                source: Some(DiskSource::from(&backing.location)),
                backing_store: Some(Empty {}),
            };
            let location = Location::File(paths.overlay(&volume.name));
            Ok(Source { location, format: "qcow2", backing: Some(backing) })
        }
        VolumeSource::EmptyDisk(_) => {
            let location = Location::File(paths.empty_disk(&volume.name));
            Ok(Source { location, format: "qcow2", backing: Some(BackingStore::default()) })
        }
        VolumeSource::CloudInitNoCloud(_) => Ok(raw(Location::File(paths.no_cloud_iso(vmi)))),
        VolumeSource::PersistentVolumeClaim(_) | VolumeSource::DataVolume(_) | VolumeSource::HostDisk(_) => {
            known.storage.as_ref().map(|storage| raw(storage.location.clone())).ok_or_else(|| fact("the storage"))
        }
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::MemoryDump(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => {
            let detail = "this kind of volume cannot be a disk in this version";
            Err(Error::unsupported(format!("spec.volumes[{}]", volume.name), detail))
        }
    }
}

/// QEMU's own threads, unless no write has to wait until the file system has found space for it.
fn io(disk: &Given, cache: &str, storage: Option<&Storage>) -> Option<String> {
    let given = disk.io.clone().filter(|io| !io.is_empty());
    let native = cache == "none" && storage.is_some_and(|storage| storage.allocated);
    given.or_else(|| native.then(|| "native".to_owned()))
}

/// The host's page cache is bypassed if the file system allows it: the guest has its own, and data that the guest has
/// flushed is then on the disk.
fn cache(disk: &Given, known: &DiskFacts, field: &str) -> Result<String, Error> {
    if disk.shareable == Some(true) {
        return shared_cache(disk, known, field);
    }
    match disk.cache.as_deref().unwrap_or_default() {
        "" if known.direct_io => Ok("none".into()),
        "" => Ok("writethrough".into()),
        "none" if !known.direct_io => {
            let detail = "the file system under this disk does not support direct IO; leave the field out";
            Err(Error::invalid(format!("{field}.cache"), detail))
        }
        mode @ ("none" | "writethrough" | "writeback") => Ok(mode.into()),
        other => Err(Error::invalid(format!("{field}.cache"), format!("{other:?} is not a cache mode"))),
    }
}

/// Guests that share a disk must see each other's writes at once.
fn shared_cache(disk: &Given, known: &DiskFacts, field: &str) -> Result<String, Error> {
    let detail = match disk.cache.as_deref().unwrap_or_default() {
        "" | "none" if known.direct_io => return Ok("none".into()),
        "" | "none" => "sharing a disk needs direct IO, which the file system under it does not support",
        _ => "a shared disk cannot be cached; use none or leave the field out",
    };
    Err(Error::invalid(format!("{field}.cache"), detail))
}

/// Serial numbers end up on QEMU's command line; libvirt accepts only these characters.
fn serial(disk: &Given, field: &str) -> Result<Option<String>, Error> {
    let Some(serial) = disk.serial.as_deref().filter(|serial| !serial.is_empty()) else { return Ok(None) };
    if serial.chars().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '+' | '-'))) {
        let detail = "may consist of letters, digits, blanks and the characters _ . + - only";
        return Err(Error::invalid(format!("{field}.serial"), detail));
    }
    Ok(Some(serial.to_owned()))
}

/// A guest is paused on disk errors, so that it can resume once there is space again.
fn error_policy(disk: &Given, field: &str) -> Result<String, Error> {
    match disk.error_policy.as_deref().unwrap_or_default() {
        "" => Ok("stop".into()),
        policy @ ("stop" | "ignore" | "report" | "enospace") => Ok(policy.into()),
        other => Err(Error::invalid(format!("{field}.errorPolicy"), format!("{other:?} is not an error policy"))),
    }
}

/// a, b, … z, aa, ab, … as the kernel names disks.
fn letters_of(index: usize) -> String {
    let mut rest = index + 1;
    let mut letters = Vec::new();
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::letters_of;

    #[test]
    fn disk_letters_go_on_after_z() {
        let names: Vec<_> = [0, 1, 25, 26, 27, 51, 52, 701, 702].map(letters_of).into();
        assert_eq!(names, ["a", "b", "z", "aa", "ab", "az", "ba", "zz", "aaa"]);
    }
}

//! Disks: a device in the guest, and the file behind it.

use std::collections::BTreeMap;

use api::v1::{Disk as Given, DiskDevice, VirtualMachineInstance, Volume, VolumeSource};

use super::refuse::later;
use super::virtio_model;
use crate::error::Error;
use crate::facts::{DiskFacts, HostFacts};
use crate::xml::{Alias, BackingStore, Boot, Disk, DiskDriver, DiskTarget, DriveAddress, Empty, FileSource, Format};

/// Admission's default bus.
const DEFAULT_BUS: &str = "sata";

pub(super) fn disks(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Result<Vec<Disk>, Error> {
    let mut letters = BTreeMap::new();
    let given = vmi.spec.domain.devices.disks.iter().enumerate();
    given.map(|(index, disk)| convert(vmi, facts, &mut letters, index, disk)).collect()
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
    letters: &mut BTreeMap<&'static str, usize>,
    index: usize,
    given: &Given,
) -> Result<Disk, Error> {
    let field = format!("spec.domain.devices.disks[{index}]");
    refuse(given, &field)?;
    let device = device(given, &field)?;
    let volume = vmi
        .spec
        .volumes
        .iter()
        .find(|volume| volume.name == given.name)
        .ok_or_else(|| Error::invalid(format!("{field}.name"), format!("no volume is named {:?}", given.name)))?;
    let known = facts
        .disks
        .get(&volume.name)
        .ok_or_else(|| Error::MissingFact { what: "the state of the files", of: format!("volume {}", volume.name) })?;
    let source = source(vmi, facts, volume, known)?;
    let prefix = if device.bus == "virtio" { "vd" } else { "sd" };
    let letter = letters.entry(prefix).or_default();
    let target = format!("{prefix}{}", letters_of(*letter));
    *letter += 1;
    Ok(Disk {
        type_: "file",
        device: device.device,
        model: (device.bus == "virtio").then(|| virtio_model(vmi)),
        driver: DiskDriver {
            name: "qemu",
            type_: source.format,
            cache: cache(given, known, &field)?,
            error_policy: error_policy(given, &field)?,
            io: given.io.clone().filter(|io| !io.is_empty()),
            discard: (device.device == "disk").then_some("unmap"),
        },
        source: FileSource { file: source.file },
        backing_store: source.backing,
        target: DiskTarget { dev: target, bus: device.bus },
        readonly: device.readonly.then_some(Empty {}),
        serial: serial(given, &field)?,
        boot: given.boot_order.map(|order| Boot { order }),
        alias: Alias::user(&given.name),
        address: (device.bus == "scsi").then_some(DriveAddress {
            type_: "drive",
            controller: 0,
            bus: 0,
            target: 0,
            unit: index as u32,
        }),
    })
}

fn refuse(disk: &Given, field: &str) -> Result<(), Error> {
    let has_pci_address = matches!(disk.device(), DiskDevice::Disk(target) if target.pci_address.is_some());
    let fields = [
        (disk.is_lun(), "lun"),
        (disk.block_size.is_some(), "blockSize"),
        (disk.changed_block_tracking == Some(true), "changedBlockTracking"),
        (disk.dedicated_io_thread == Some(true), "dedicatedIOThread"),
        (disk.shareable == Some(true), "shareable"),
        (has_pci_address, "disk.pciAddress"),
    ];
    match fields.iter().find(|(set, _)| *set) {
        Some((_, name)) => Err(later(format!("{field}.{name}"))),
        None => Ok(()),
    }
}

fn device(disk: &Given, field: &str) -> Result<Device, Error> {
    let (device, readonly) = match disk.device() {
        DiskDevice::CdRom(cdrom) => ("cdrom", cdrom.readonly.unwrap_or(true)),
        DiskDevice::Disk(disk) => ("disk", disk.readonly.unwrap_or(false)),
        DiskDevice::Unset => ("disk", false),
        DiskDevice::Lun(_) => return Err(later(format!("{field}.lun"))),
    };
    let bus = match disk.device().bus().filter(|bus| !bus.is_empty()).unwrap_or(DEFAULT_BUS) {
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
    Ok(Device { device, bus, readonly })
}

/// The file behind a disk. Every backing chain is written out to its end, so that nothing relies on an image's header
/// for what else to open: the header is under the tenant's control.
struct Source {
    file: String,
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
    match volume.source() {
        VolumeSource::ContainerDisk(_) => {
            let backing = known
                .backing
                .as_ref()
                .ok_or_else(|| Error::MissingFact { what: "the image", of: format!("volume {}", volume.name) })?;
            let backing = BackingStore {
                type_: Some("file"),
                format: Some(Format { type_: backing.format.as_str() }),
                source: Some(FileSource { file: backing.path.clone() }),
                backing_store: Some(Empty {}),
            };
            let file = paths.container_disk_overlay(&volume.name);
            Ok(Source { file, format: "qcow2", backing: Some(backing) })
        }
        VolumeSource::EmptyDisk(_) => {
            let file = paths.empty_disk(&volume.name);
            Ok(Source { file, format: "qcow2", backing: Some(BackingStore::default()) })
        }
        VolumeSource::CloudInitNoCloud(_) => Ok(Source { file: paths.no_cloud_iso(vmi), format: "raw", backing: None }),
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::ConfigMap(_)
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
        | VolumeSource::Unset => {
            let detail = "only containerDisk, emptyDisk and cloudInitNoCloud volumes are supported by this version";
            Err(Error::unsupported(format!("spec.volumes[{}]", volume.name), detail))
        }
    }
}

/// The host's page cache is bypassed if the file system allows it: the guest has its own, and data that the guest has
/// flushed is then on the disk.
fn cache(disk: &Given, known: &DiskFacts, field: &str) -> Result<String, Error> {
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

//! Disks: how the guest sees its volumes.

use std::collections::BTreeSet;

use api::v1::{Disk, VirtualMachineInstanceSpec};
use machinery::field::{FieldError, FieldPath};
use machinery::names::check_dns1123_label;

use super::names;
use crate::unsupported;

const BUSES: [&str; 4] = ["virtio", "scsi", "sata", "usb"];
const CACHES: [&str; 3] = ["none", "writethrough", "writeback"];
const IO_MODES: [&str; 2] = ["native", "threads"];
const ERROR_POLICIES: [&str; 4] = ["stop", "ignore", "report", "enospace"];
const MAX_SERIAL: usize = 256;

pub(super) fn check(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        let field = field.index(index);
        errors.extend(names(&field.child("name"), &disk.name, check_dns1123_label(&disk.name)));
        if !seen.insert(disk.name.as_str()) {
            let detail = "is the name of another disk";
            errors.push(FieldError::invalid(field.child("name"), disk.name.as_str(), detail));
        }
        errors.extend(has_volume(&field, disk, spec));
        errors.extend(target(&field, disk));
        errors.extend(options(&field, disk));
    }
    errors
}

fn has_volume(field: &FieldPath, disk: &Disk, spec: &VirtualMachineInstanceSpec) -> Option<FieldError> {
    if spec.volumes.iter().any(|volume| volume.name == disk.name) {
        return None;
    }
    if disk.cdrom.is_some() {
        return Some(unsupported::refusal(field.clone(), "an empty CD-ROM drive is"));
    }
    let detail = "no volume has this name";
    Some(FieldError::invalid(field.child("name"), disk.name.as_str(), detail))
}

fn target(field: &FieldPath, disk: &Disk) -> Vec<FieldError> {
    let targets = [disk.disk.is_some(), disk.lun.is_some(), disk.cdrom.is_some()];
    if targets.iter().filter(|set| **set).count() > 1 {
        let detail = "at most one of disk, lun and cdrom may be set";
        return vec![FieldError::invalid(field.clone(), disk.name.as_str(), detail)];
    }
    let mut errors = Vec::new();
    let mut check = |name: &str, bus: &Option<String>, forbidden: &[(&str, &str)]| {
        let Some(bus) = bus.as_deref().filter(|bus| !bus.is_empty()) else { return };
        let field = field.child(name).child("bus");
        if let Some((_, why)) = forbidden.iter().find(|(refused, _)| *refused == bus) {
            errors.push(FieldError::invalid(field, bus, why));
        } else if !BUSES.contains(&bus) {
            errors.push(FieldError::invalid(field, bus, format!("must be one of {}", BUSES.join(", "))));
        }
    };
    if let Some(target) = &disk.disk {
        let no_sata = ("sata", "a read-only disk cannot be on sata; use virtio or scsi, or make it a cdrom");
        let read_only = if target.readonly == Some(true) { &[no_sata][..] } else { &[] };
        check("disk", &target.bus, read_only);
    }
    if let Some(target) = &disk.cdrom {
        check("cdrom", &target.bus, &[("virtio", "a CD-ROM cannot be on virtio; use sata or scsi")]);
    }
    errors
}

fn options(field: &FieldPath, disk: &Disk) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(serial) = given(&disk.serial) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        if !serial.chars().all(allowed) || serial.len() > MAX_SERIAL {
            let detail = format!("must be at most {MAX_SERIAL} letters, digits and characters _ . + -");
            errors.push(FieldError::invalid(field.child("serial"), serial.as_str(), detail));
        }
    }
    if let Some(cache) = given(&disk.cache).filter(|cache| !CACHES.contains(&cache.as_str())) {
        let detail = format!("must be one of {}", CACHES.join(", "));
        errors.push(FieldError::invalid(field.child("cache"), cache, detail));
    }
    if let Some(io) = given(&disk.io).filter(|io| !IO_MODES.contains(&io.as_str())) {
        errors.push(FieldError::not_supported(field.child("io"), io, &IO_MODES));
    }
    if let Some(policy) = given(&disk.error_policy).filter(|policy| !ERROR_POLICIES.contains(&policy.as_str())) {
        let detail = format!("must be one of {}", ERROR_POLICIES.join(", "));
        errors.push(FieldError::invalid(field.child("errorPolicy"), policy, detail));
    }
    errors
}

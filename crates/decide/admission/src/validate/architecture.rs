//! Hardware and confidential computing per architecture.

use api::config::ClusterConfig;
use api::v1::{Devices, LaunchSecurity, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};

use super::findings::{Findings, given, text};
use super::firmware::{has_smm, secures_boot};

const AMD64_VIDEO: [&str; 5] = ["vga", "cirrus", "virtio", "ramfb", "bochs"];
const ARM64_VIDEO: [&str; 2] = ["virtio", "ramfb"];
const S390X_VIDEO: [&str; 1] = ["virtio"];
const ARM64_BUSES: [&str; 3] = ["", "virtio", "scsi"];

/// Hardware that the architecture supports. Applies to VMIs only.
pub(super) fn check(found: &mut Findings, field: &Path<'_>, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let devices = domain.child("devices");
    let given = &spec.domain.devices;
    match text(&spec.architecture) {
        "amd64" => {
            let only = given.watchdog.as_ref().is_none_or(|dog| dog.i6300esb.is_some() && dog.diag288.is_none());
            watchdog(found, &devices, only, "amd64 has the watchdog i6300esb only");
            video(found, &devices, given, &AMD64_VIDEO);
        }
        "arm64" => arm64(found, domain, &devices, spec),
        "s390x" => {
            let only = given.watchdog.as_ref().is_none_or(|dog| dog.diag288.is_some() && dog.i6300esb.is_none());
            watchdog(found, &devices, only, "s390x has the watchdog diag288 only");
            video(found, &devices, given, &S390X_VIDEO);
        }
        other => found.invalid(&field.child("architecture"), other, "must be amd64, arm64 or s390x"),
    }
}

fn arm64(found: &mut Findings, domain: &Path<'_>, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let bootloader = spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    if bootloader.is_some_and(|bootloader| bootloader.bios.is_some()) {
        let message = "arm64 has no BIOS; use efi";
        found.refuse(Cause::NotSupported, &domain.child("firmware.bootloader.bios"), message);
    }
    let model = spec.domain.cpu.as_ref().map(|cpu| text(&cpu.model)).unwrap_or_default();
    if !["", "host-passthrough"].contains(&model) {
        found.not_supported(&domain.child("cpu.model"), model, &["host-passthrough"]);
    }
    let disks = devices.child("disks");
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        for device in disk.devices() {
            let bus = device.bus().unwrap_or_default();
            if !ARM64_BUSES.contains(&bus) {
                let field = disks.index(index);
                found.not_supported(&field.child(device.member()).child("bus"), bus, &ARM64_BUSES[1..]);
            }
        }
    }
    watchdog(found, devices, spec.domain.devices.watchdog.is_none(), "arm64 has no watchdog");
    if spec.domain.devices.sound.is_some() {
        found.refuse(Cause::NotSupported, &devices.child("sound"), "arm64 has no sound card");
    }
    video(found, devices, &spec.domain.devices, &ARM64_VIDEO);
}

fn watchdog(found: &mut Findings, devices: &Path<'_>, fine: bool, message: &str) {
    if !fine {
        found.refuse(Cause::NotSupported, &devices.child("watchdog"), message);
    }
}

fn video(found: &mut Findings, devices: &Path<'_>, given: &Devices, models: &[&str]) {
    if let Some(video) = &given.video {
        let type_ = text(&video.type_);
        if !models.contains(&type_) {
            found.not_supported(&devices.child("video.type"), type_, models);
        }
    }
}

/// Confidential computing.
pub(super) fn launch_security(
    found: &mut Findings,
    field: &Path<'_>,
    domain: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let Some(security) = &spec.domain.launch_security else { return };
    match text(&spec.architecture) {
        "amd64" => amd64_security(found, &domain.child("launchSecurity"), security, spec, config),
        "s390x" => {}
        other => {
            let detail = "guests of this architecture cannot be kept confidential: remove domain.launchSecurity";
            found.invalid(&field.child("architecture"), other, detail);
        }
    }
}

fn amd64_security(
    found: &mut Findings,
    field: &Path<'_>,
    security: &LaunchSecurity,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let LaunchSecurity { sev, snp, tdx } = security;
    let (name, gate) = match (sev, snp, tdx) {
        (Some(_), None, None) => ("SEV", "WorkloadEncryptionSEV"),
        (None, Some(_), None) => ("SNP", "WorkloadEncryptionSEV"),
        (None, None, Some(_)) => ("TDX", "WorkloadEncryptionTDX"),
        _ => return found.refuse(Cause::Forbidden, field, "exactly one of sev, snp and tdx has to be set"),
    };
    if !config.feature_gate(gate) {
        return super::needs_gate(found, field, gate, config);
    }
    let firmware = spec.domain.firmware.as_ref();
    let efi = firmware.and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref());
    let persistent = efi.is_some_and(|efi| efi.persistent == Some(true));
    let paused = given(&spec.start_strategy) == Some("Paused");
    let problems = [
        (tdx.is_some() && has_smm(&spec.domain), "does not work with features.smm"),
        (efi.is_none(), "needs firmware.bootloader.efi"),
        (
            tdx.is_none() && firmware.is_some_and(secures_boot),
            "does not work with secure boot, which is on unless turned off",
        ),
        (sev.is_none() && persistent, "does not work with persistent EFI variables"),
        (
            sev.as_ref().is_some_and(|sev| sev.attestation.is_some()) && !paused,
            "needs startStrategy Paused for its attestation",
        ),
        (
            spec.domain.devices.interfaces.iter().any(|interface| interface.boot_order.is_some()),
            "does not work with an interface that is booted from",
        ),
    ];
    for (_, problem) in problems.iter().filter(|(is, _)| *is) {
        found.refuse(Cause::Invalid, field, format!("{name} {problem}"));
    }
}

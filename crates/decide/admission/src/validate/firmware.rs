//! Firmware: ACPI tables, boot loader, and direct kernel boot.

use api::v1::{DomainSpec, Firmware, KernelBoot, KernelBootContainer, Volume, VolumeSource};
use machinery::field::{Cause, Path};

use super::findings::{Findings, given};

/// ACPI tables come from volumes: from Secrets, since they hold license keys.
pub(super) fn acpi(found: &mut Findings, domain: &Path<'_>, given_domain: &DomainSpec, volumes: &[Volume]) {
    let Some(acpi) = given_domain.firmware.as_ref().and_then(|firmware| firmware.acpi.as_ref()) else { return };
    let field = domain.child("firmware.acpi");
    let references = [("slicNameRef", given(&acpi.slic_name_ref)), ("msdmNameRef", given(&acpi.msdm_name_ref))];
    if references.iter().all(|(_, name)| name.is_none()) {
        found.refuse(Cause::Invalid, &field, "at least one of slicNameRef and msdmNameRef has to name a volume");
    }
    for (name, reference) in references {
        let Some(reference) = reference else { continue };
        match volumes.iter().find(|volume| volume.name == reference) {
            None => found.invalid(&field.child(name), reference, "no volume has this name"),
            Some(volume) if !volume.sources().any(|source| matches!(source, VolumeSource::Secret(_))) => {
                found.invalid(&field.child(name), reference, "the volume has to be a Secret");
            }
            Some(_) => {}
        }
    }
}

/// Boot loader and kernel.
pub(super) fn check(found: &mut Findings, field: &Path<'_>, firmware: &Firmware) {
    if firmware.bootloader.as_ref().is_some_and(|bootloader| bootloader.efi.is_some() && bootloader.bios.is_some()) {
        found.refuse(Cause::Invalid, &field.child("bootloader"), "efi and bios exclude each other");
    }
    if let Some(boot) = &firmware.kernel_boot {
        kernel_boot(found, &field.child("kernelBoot"), boot);
    }
}

/// Secure boot needs SMM to protect its variables. A TDX guest has neither.
pub(super) fn secure_boot(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(firmware) = given.firmware.as_ref() else { return };
    let trust_domain = given.launch_security.as_ref().is_some_and(|security| security.tdx.is_some());
    if secures_boot(firmware) && !has_smm(given) && !trust_domain {
        let detail = "secure boot, which is on unless turned off, needs features.smm";
        found.refuse(Cause::Invalid, &domain.child("firmware.bootloader.efi.secureBoot"), detail);
    }
}

/// Whether secure boot is on, which is the default with EFI.
pub(super) fn secures_boot(firmware: &Firmware) -> bool {
    let efi = firmware.bootloader.as_ref().and_then(|bootloader| bootloader.efi.as_ref());
    efi.is_some_and(|efi| efi.secure_boot != Some(false))
}

/// Whether the guest has SMM.
pub(super) fn has_smm(given: &DomainSpec) -> bool {
    let smm = given.features.as_ref().and_then(|features| features.smm.as_ref());
    smm.is_some_and(|smm| smm.enabled != Some(false))
}

fn kernel_boot(found: &mut Findings, field: &Path<'_>, boot: &KernelBoot) {
    match &boot.container {
        Some(container) => kernel_container(found, &field.child("container"), container),
        None => {
            if let Some(args) = given(&boot.kernel_args) {
                let detail = "kernel arguments cannot be given without a kernel: set container";
                found.invalid(&field.child("kernelArgs"), args, detail);
            }
        }
    }
}

fn kernel_container(found: &mut Findings, field: &Path<'_>, container: &KernelBootContainer) {
    if container.image.is_empty() {
        found.required(&field.child("image"), "the image that holds the kernel has to be named");
    }
    let paths = [("kernelPath", given(&container.kernel_path)), ("initrdPath", given(&container.initrd_path))];
    if paths.iter().all(|(_, path)| path.is_none()) {
        found.required(field, "at least one of kernelPath and initrdPath has to be set");
    }
    for (name, path) in paths {
        if let Some(path) = path {
            image_path(found, &field.child(name), path);
        }
    }
}

/// The path of a file inside an image.
pub(super) fn image_path(found: &mut Findings, field: &Path<'_>, path: &str) {
    let clean = |path: &str| path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if path == "/" {
        found.invalid(field, path, "must name a file, not the root directory");
    } else if !path.strip_prefix('/').is_some_and(|path| clean(path.strip_suffix('/').unwrap_or(path))) {
        found.invalid(field, path, "must be an absolute path without empty or relative parts");
    }
}

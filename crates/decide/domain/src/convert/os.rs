//! Firmware, direct kernel boot, and SMBIOS information.

use api::v1::{Firmware, SMBiosConfiguration, VirtualMachineInstance};

use super::yes_no;
use crate::error::Error;
use crate::paths::Paths;
use crate::xml::{Bios, BootMenu, Entries, Mode, Os, OsType, Sysinfo};

/// The boot menu timeout of a guest that starts paused, in milliseconds.
const BOOT_MENU_TIMEOUT: u32 = 10_000;

pub(super) fn os(vmi: &VirtualMachineInstance, paths: &Paths) -> Result<Os, Error> {
    let spec = &vmi.spec;
    if !matches!(spec.architecture.as_deref(), None | Some("" | "amd64")) {
        return Err(Error::unsupported("spec.architecture", "only amd64 is supported by this version"));
    }
    let machine = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref());
    let firmware = spec.domain.firmware.as_ref();
    let kernel_boot = firmware.and_then(|firmware| firmware.kernel_boot.as_ref());
    let container = kernel_boot.and_then(|boot| boot.container.as_ref());
    let file = |path: Option<&String>, field: &str| match path.filter(|path| !path.is_empty()) {
        Some(path) => inside(&paths.kernel_boot, path, &format!("spec.domain.firmware.kernelBoot.container.{field}")),
        None => Ok(None),
    };
    let paused = spec.start_strategy.as_deref() == Some("Paused");
    Ok(Os {
        type_: OsType {
            arch: "x86_64",
            machine: machine.filter(|machine| !machine.is_empty()).unwrap_or("q35").to_owned(),
            os: "hvm",
        },
        kernel: file(container.and_then(|c| c.kernel_path.as_ref()), "kernelPath")?,
        initrd: file(container.and_then(|c| c.initrd_path.as_ref()), "initrdPath")?,
        cmdline: kernel_boot.and_then(|boot| boot.kernel_args.clone()).filter(|args| !args.is_empty()),
        bootmenu: paused.then_some(BootMenu { enable: "yes", timeout: BOOT_MENU_TIMEOUT }),
        smbios: Mode { mode: "sysinfo" },
        bios: firmware.and_then(bios),
    })
}

fn bios(firmware: &Firmware) -> Option<Bios> {
    let use_serial = firmware.bootloader.as_ref()?.bios.as_ref()?.use_serial?;
    use_serial.then_some(Bios { useserial: yes_no(true) })
}

/// `path` inside an image that is mounted at `root`; a path that escapes it is rejected.
fn inside(root: &str, path: &str, field: &str) -> Result<Option<String>, Error> {
    if path.split('/').any(|part| part == "..") {
        return Err(Error::invalid(field, "must not contain .."));
    }
    Ok(Some(format!("{root}/{}", path.trim_start_matches('/'))))
}

pub(super) fn sysinfo(vmi: &VirtualMachineInstance, uuid: &str, smbios: &SMBiosConfiguration) -> Sysinfo {
    let domain = &vmi.spec.domain;
    let mut system = Entries::default();
    system.add("uuid", Some(uuid));
    system.add("serial", domain.firmware.as_ref().and_then(|firmware| firmware.serial.as_deref()));
    system.add("manufacturer", smbios.manufacturer.as_deref());
    system.add("family", smbios.family.as_deref());
    system.add("product", smbios.product.as_deref());
    system.add("sku", smbios.sku.as_deref());
    system.add("version", smbios.version.as_deref());
    let mut chassis = Entries::default();
    if let Some(given) = &domain.chassis {
        chassis.add("manufacturer", given.manufacturer.as_deref());
        chassis.add("version", given.version.as_deref());
        chassis.add("serial", given.serial.as_deref());
        chassis.add("asset", given.asset.as_deref());
        chassis.add("sku", given.sku.as_deref());
    }
    Sysinfo { type_: "smbios", system, chassis }
}

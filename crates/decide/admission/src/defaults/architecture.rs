//! Architecture-specific defaults.

use api::config::ClusterConfig;
use api::v1::{EFI, VirtualMachineInstanceSpec};

use super::fill;

const WATCHDOG_ACTION: &str = "reset";

pub(super) fn architecture(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    match spec.architecture.as_deref().unwrap_or_default() {
        "arm64" => {
            fill(&mut spec.domain.cpu.get_or_insert_default().model, "host-passthrough");
            bootloader(spec);
            buses(spec, "virtio");
        }
        "s390x" => {
            buses(spec, "virtio");
            if let Some(watchdog) = &mut spec.domain.devices.watchdog {
                fill(&mut watchdog.diag288.get_or_insert_default().action, WATCHDOG_ACTION);
            }
        }
        _ => {
            // Slow but supported by every guest.
            buses(spec, "sata");
            if let Some(watchdog) = &mut spec.domain.devices.watchdog {
                fill(&mut watchdog.i6300esb.get_or_insert_default().action, WATCHDOG_ACTION);
            }
        }
    }
    fill(&mut spec.domain.cpu.get_or_insert_default().model, config.cpu_model());
}

/// EFI is the only firmware, without secure boot.
fn bootloader(spec: &mut VirtualMachineInstanceSpec) {
    let bootloader = &mut spec.domain.firmware.get_or_insert_default().bootloader;
    let bootloader =
        bootloader.get_or_insert_with(|| api::v1::Bootloader { efi: Some(EFI::default()), ..Default::default() });
    if let Some(efi) = &mut bootloader.efi {
        efi.secure_boot.get_or_insert(false);
    }
}

fn buses(spec: &mut VirtualMachineInstanceSpec, bus: &str) {
    for disk in &mut spec.domain.devices.disks {
        disk.buses_mut().for_each(|target| fill(target, bus));
    }
}

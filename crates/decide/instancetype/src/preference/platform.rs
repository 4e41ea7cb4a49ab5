//! The preferred platform: features, firmware, machine, clock and launch security.

use api::instancetype::{ClockPreferences, FeaturePreferences, FirmwarePreferences, VirtualMachinePreferenceSpec};
use api::v1::{BIOS, EFI, FeatureHyperv, VirtualMachineInstanceSpec};

use super::{fill, fill_text};

pub(super) fn apply(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    if let Some(preferred) = &preference.features {
        features(preferred, spec);
    }
    if let Some(preferred) = &preference.firmware {
        firmware(preferred, spec);
    }
    let machine = preference.machine.as_ref().map(|machine| &machine.preferred_machine_type);
    if let Some(preferred @ Some(_)) = machine {
        fill_text(&mut spec.domain.machine.get_or_insert_default().type_, preferred);
    }
    if let Some(preferred) = &preference.clock {
        clock(preferred, spec);
    }
    fill(&mut spec.domain.launch_security, &preference.preferred_launch_security);
}

fn features(preferred: &FeaturePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let features = spec.domain.features.get_or_insert_default();
    if preferred.preferred_acpi.is_some() {
        // KubeVirt cannot tell whether this field is set and lets the preference win; guests have come to rely on it.
        features.acpi.clone_from(&preferred.preferred_acpi);
    }
    fill(&mut features.apic, &preferred.preferred_apic);
    if let Some(preferred) = &preferred.preferred_hyperv {
        hyperv(preferred, features.hyperv.get_or_insert_default());
    }
    fill(&mut features.kvm, &preferred.preferred_kvm);
    fill(&mut features.pvspinlock, &preferred.preferred_pvspinlock);
    fill(&mut features.smm, &preferred.preferred_smm);
}

/// Each enlightenment separately. Destructured without `..`, so that a new one cannot be forgotten.
fn hyperv(preferred: &FeatureHyperv, hyperv: &mut FeatureHyperv) {
    let FeatureHyperv {
        evmcs,
        frequencies,
        ipi,
        reenlightenment,
        relaxed,
        reset,
        runtime,
        spinlocks,
        synic,
        synictimer,
        tlbflush,
        vapic,
        vendorid,
        vpindex,
    } = preferred;
    fill(&mut hyperv.evmcs, evmcs);
    fill(&mut hyperv.frequencies, frequencies);
    fill(&mut hyperv.ipi, ipi);
    fill(&mut hyperv.reenlightenment, reenlightenment);
    fill(&mut hyperv.relaxed, relaxed);
    fill(&mut hyperv.reset, reset);
    fill(&mut hyperv.runtime, runtime);
    fill(&mut hyperv.spinlocks, spinlocks);
    fill(&mut hyperv.synic, synic);
    fill(&mut hyperv.synictimer, synictimer);
    fill(&mut hyperv.tlbflush, tlbflush);
    fill(&mut hyperv.vapic, vapic);
    fill(&mut hyperv.vendorid, vendorid);
    fill(&mut hyperv.vpindex, vpindex);
}

fn firmware(preferred: &FirmwarePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let bootloader = spec.domain.firmware.get_or_insert_default().bootloader.get_or_insert_default();
    if preferred.preferred_use_bios == Some(true) && bootloader.bios.is_none() && bootloader.efi.is_none() {
        bootloader.bios = Some(BIOS::default());
    }
    if let Some(bios) = &mut bootloader.bios {
        fill(&mut bios.use_serial, &preferred.preferred_use_bios_serial);
        return;
    }
    if bootloader.efi.is_none() && preferred.preferred_efi.is_some() {
        // A complete EFI configuration; the two older fields are ignored next to it.
        bootloader.efi.clone_from(&preferred.preferred_efi);
        return;
    }
    if bootloader.efi.is_none() && preferred.preferred_use_efi == Some(true) {
        bootloader.efi = Some(EFI::default());
    }
    if let Some(efi) = &mut bootloader.efi {
        fill(&mut efi.secure_boot, &preferred.preferred_use_secure_boot);
    }
}

/// The offset is only set as a whole: mixing parts of two would be wrong.
fn clock(preferred: &ClockPreferences, spec: &mut VirtualMachineInstanceSpec) {
    let clock = spec.domain.clock.get_or_insert_default();
    if let Some(offset) = &preferred.preferred_clock_offset
        && clock.utc.is_none()
        && clock.timezone.is_none()
    {
        clock.utc.clone_from(&offset.utc);
        clock.timezone.clone_from(&offset.timezone);
    }
    fill(&mut clock.timer, &preferred.preferred_timer);
}

//! Defaults of a new VMI's own fields: listed features are on, and enabled features get their details.

use api::v1::{FeatureHyperv, FeatureState, Features, Probe, Timer, VirtualMachineInstance};

use super::{fill, firmware_uuid};

/// How often a guest retries a lock before it notifies the hypervisor.
const SPINLOCK_RETRIES: u32 = 4096;

pub(super) fn object(vmi: &mut VirtualMachineInstance) {
    firmware(vmi);
    let spec = &mut vmi.spec;
    if spec.architecture.as_deref() == Some("s390x") {
        // There is no ACPI on this architecture.
        let acpi = spec.domain.features.get_or_insert_default().acpi.get_or_insert_default();
        acpi.enabled.get_or_insert(false);
    }
    features(spec.domain.features.get_or_insert_default());
    if let Some(timer) = spec.domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) {
        timers(timer);
    }
    devices(vmi);
    for probe in [&mut vmi.spec.readiness_probe, &mut vmi.spec.liveness_probe].into_iter().flatten() {
        check_often(probe);
    }
}

fn firmware(vmi: &mut VirtualMachineInstance) {
    let firmware = vmi.spec.domain.firmware.get_or_insert_default();
    // A name that is still to be generated cannot identify the guest.
    if let Some(name) = vmi.metadata.name.as_deref().filter(|name| !name.is_empty()) {
        fill(&mut firmware.uuid, firmware_uuid(name));
    }
}

fn devices(vmi: &mut VirtualMachineInstance) {
    let devices = &mut vmi.spec.domain.devices;
    for disk in &mut devices.disks {
        disk.fill_device();
        if let Some(cdrom) = disk.cdrom_mut() {
            fill(&mut cdrom.tray, "closed");
            cdrom.readonly.get_or_insert(true);
        }
        on(disk.block_size.as_mut().and_then(|size| size.match_volume.as_mut()));
    }
    for input in &mut devices.inputs {
        fill(&mut input.bus, "usb");
        if input.type_.is_empty() {
            input.type_ = "tablet".to_owned();
        }
    }
    let options = devices.gpus.iter_mut().filter_map(|gpu| gpu.virtual_gpu_options.as_mut());
    for display in options.filter_map(|options| options.display.as_mut()) {
        on(display.ram_fb.as_mut());
    }
}

/// A listed feature is on unless it says otherwise.
fn on(feature: Option<&mut FeatureState>) {
    if let Some(feature) = feature {
        feature.enabled.get_or_insert(true);
    }
}

/// A listed timer is present unless it says otherwise.
fn timers(timer: &mut Timer) {
    let present = [
        timer.hpet.as_mut().map(|timer| &mut timer.present),
        timer.kvm.as_mut().map(|timer| &mut timer.present),
        timer.pit.as_mut().map(|timer| &mut timer.present),
        timer.rtc.as_mut().map(|timer| &mut timer.present),
        timer.hyperv.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}

/// ACPI is on even if it is not listed.
fn features(features: &mut Features) {
    on(Some(features.acpi.get_or_insert_default()));
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    if let Some(enlightenments) = &mut features.hyperv {
        hyperv(enlightenments);
    }
    on(features.smm.as_mut());
    on(features.pvspinlock.as_mut());
}

fn hyperv(hyperv: &mut FeatureHyperv) {
    let plain = [
        &mut hyperv.evmcs,
        &mut hyperv.frequencies,
        &mut hyperv.ipi,
        &mut hyperv.reenlightenment,
        &mut hyperv.relaxed,
        &mut hyperv.reset,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
    ];
    plain.into_iter().for_each(|feature| on(feature.as_mut()));
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && *spinlocks.enabled.get_or_insert(true)
    {
        spinlocks.spinlocks.get_or_insert(SPINLOCK_RETRIES);
    }
    if let Some(timer) = &mut hyperv.synictimer {
        timer.enabled.get_or_insert(true);
        on(timer.direct.as_mut());
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
        on(flush.direct.as_mut());
        on(flush.extended.as_mut());
    }
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
}

/// Invalid numbers count as unset.
fn check_often(probe: &mut Probe) {
    let numbers = [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ];
    for (number, default) in numbers {
        if number.unwrap_or(0) < 1 {
            *number = Some(default);
        }
    }
}

//! Defaults of a new instance.
//!
//! KubeVirt also sizes instances for growth here (`maxSockets`, `maxGuest`). This build cannot plug CPUs or memory into
//! a running guest, so it makes no room for them.

use api::config::ClusterConfig;
use api::finalizers;
use api::v1::{
    CPUTopology, DiskTarget, Features, MemoryStatus, Timer, VirtualMachineInstance, VirtualMachineInstancePhase,
    VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta;

use super::{PCI_TOPOLOGY, fill, firmware_uuid, has_pcie, spec};

/// The bus of disks that name none. Slow but known to every guest.
const DEFAULT_BUS: &str = "sata";

/// The user a launcher runs as.
const RUNTIME_USER: u64 = 107;

/// Fills in a new instance.
pub(crate) fn vmi(vmi: &mut VirtualMachineInstance, config: &ClusterConfig, now: &Time) {
    spec(&mut vmi.spec, config);
    firmware(vmi);
    disks(vmi);
    if let Some(timer) = vmi.spec.domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) {
        timers(timer);
    }
    features(vmi.spec.domain.features.get_or_insert_default());
    fill(&mut vmi.spec.domain.cpu.get_or_insert_default().model, config.cpu_model());
    if has_pcie(&vmi.spec) {
        let (key, value) = PCI_TOPOLOGY;
        let annotations = vmi.metadata.annotations.get_or_insert_default();
        annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    meta::add_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    status(vmi, now);
}

fn firmware(vmi: &mut VirtualMachineInstance) {
    let name = vmi.metadata.name.clone().unwrap_or_default();
    if !name.is_empty() {
        fill(&mut vmi.spec.domain.firmware.get_or_insert_default().uuid, firmware_uuid(&name));
    }
}

fn disks(vmi: &mut VirtualMachineInstance) {
    for disk in &mut vmi.spec.domain.devices.disks {
        if disk.disk.is_none() && disk.lun.is_none() && disk.cdrom.is_none() {
            disk.disk = Some(DiskTarget::default());
        }
        if let Some(target) = &mut disk.disk {
            fill(&mut target.bus, DEFAULT_BUS);
        }
        if let Some(cdrom) = &mut disk.cdrom {
            fill(&mut cdrom.bus, DEFAULT_BUS);
            fill(&mut cdrom.tray, "closed");
            cdrom.readonly.get_or_insert(true);
        }
    }
}

/// A timer that is listed is there unless it says otherwise.
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

/// A feature that is listed is on unless it says otherwise.
fn features(features: &mut Features) {
    let enabled = [
        features.acpi.as_mut().map(|feature| &mut feature.enabled),
        features.apic.as_mut().map(|feature| &mut feature.enabled),
        features.smm.as_mut().map(|feature| &mut feature.enabled),
    ];
    for enabled in enabled.into_iter().flatten() {
        enabled.get_or_insert(true);
    }
}

fn status(vmi: &mut VirtualMachineInstance, now: &Time) {
    let guest = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone());
    let cpu = vmi.spec.domain.cpu.clone().unwrap_or_default();
    let status = vmi.status.get_or_insert_default();
    if let Some(guest) = guest {
        let memory = status.memory.get_or_insert_default();
        *memory = MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest),
            memory_overhead: memory.memory_overhead.take(),
        };
    }
    status.current_cpu_topology.get_or_insert(CPUTopology {
        cores: cpu.cores,
        sockets: cpu.sockets,
        threads: cpu.threads,
    });
    status.runtime_user = Some(RUNTIME_USER);
    status.phase = Some(VirtualMachineInstancePhase::Pending);
    note_phase(status, now);
}

/// The time of the first phase, written once.
fn note_phase(status: &mut VirtualMachineInstanceStatus, now: &Time) {
    let phase = status.phase.clone();
    if !status.phase_transition_timestamps.iter().any(|noted| noted.phase == phase) {
        let phase_transition_timestamp = Some(now.clone());
        let noted = VirtualMachineInstancePhaseTransitionTimestamp { phase, phase_transition_timestamp };
        status.phase_transition_timestamps.push(noted);
    }
}

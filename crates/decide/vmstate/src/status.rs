//! The VMI's status as virt-handler maintains it.

use api::v1::VirtualMachineInstancePhase as Phase;
use api::v1::{
    Machine, MemoryStatus, VirtualMachineInstance, VirtualMachineInstancePhaseTransitionTimestamp as Transition,
    VirtualMachineInstanceStatus, VolumeStatus,
};
use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::launcher::Verdict;
use crate::{DomainDisk, DomainState, LauncherState, World, conditions, interfaces, migration, volumes};

/// The new status, or `None` if the stored one is up to date.
pub(crate) fn status(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    phase: &Phase,
    why: Option<&str>,
) -> Option<VirtualMachineInstanceStatus> {
    let old = vmi.status.clone().unwrap_or_default();
    let mut new = old.clone();
    if let Verdict::Connected(state) = w.launcher.verdict(w.now) {
        from_launcher(w, vmi, state, &mut new);
        migration::source::report(w, vmi, state, &mut new);
    }
    conditions::failure(w, why, &mut new.conditions);
    set_phase(&mut new, phase, w.now);
    (new != old).then_some(new)
}

fn from_launcher(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    state: &LauncherState,
    status: &mut VirtualMachineInstanceStatus,
) {
    // Attachment Pods need it, and a guest with plugged volumes starts after they have come.
    if let Some(label) = w.selinux.filter(|_| state.domain.is_some() || volumes::has_plugged(vmi)) {
        status.selinux_context = Some(label.to_owned());
    }
    let Some(domain) = &state.domain else { return volumes::report(w, vmi, state, &mut status.volume_status) };
    if let Some(os) = state.guest_agent.as_ref().and_then(|agent| agent.os.as_ref()) {
        status.guest_os_info = Some(os.clone());
    }
    machine_and_memory(domain, status);
    conditions::from_domain(w, domain, &mut status.conditions);
    let (migratable, method) = migration::live_migratable(vmi, w.now);
    api::conditions::set(&mut status.conditions, migratable);
    status.migration_method = Some(method.to_owned());
    api::conditions::set(&mut status.conditions, migration::storage_live_migratable(vmi, w.now));
    if !domain.is_down() {
        volume_targets(&mut status.volume_status, &domain.disks);
        moved_sizes(status, &domain.disks);
        volumes::report(w, vmi, state, &mut status.volume_status);
        status.interfaces = interfaces::interfaces(w, vmi, domain, state.guest_agent.as_ref(), &status.interfaces);
    }
}

fn volume_targets(volumes: &mut [VolumeStatus], disks: &[DomainDisk]) {
    for volume in volumes.iter_mut() {
        let disk = disks.iter().find(|disk| disk.alias == volume.name && !disk.source.is_empty());
        volume.target = disk.map(|disk| disk.target.clone()).unwrap_or_default();
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
}

/// A volume that gets another claim needs a disk of the same size there. The target's node knows it from here.
fn moved_sizes(status: &mut VirtualMachineInstanceStatus, disks: &[DomainDisk]) {
    for volume in &mut status.volume_status {
        let moves = status.migrated_volumes.iter().any(|moved| moved.volume_name == volume.name);
        let disk = disks.iter().find(|disk| disk.alias == volume.name && disk.capacity > 0).filter(|_| moves);
        match disk.and_then(|disk| i64::try_from(disk.capacity).ok()) {
            Some(size) => volume.size = Some(size),
            None if volume.persistent_volume_claim_info.is_some() && !moves => volume.size = None,
            None => {}
        }
    }
}

fn machine_and_memory(domain: &DomainState, status: &mut VirtualMachineInstanceStatus) {
    if !domain.os_machine.is_empty() {
        status.machine = Some(Machine { type_: Some(domain.os_machine.clone()) });
    }
    if domain.memory_bytes > 0 {
        let memory = status.memory.get_or_insert_with(MemoryStatus::default);
        let bytes = i64::try_from(domain.memory_bytes).unwrap_or(i64::MAX);
        memory.guest_current = Some(Quantity(machinery::quantity::Quantity::bytes(bytes).to_string()));
    }
}

pub(crate) fn set_phase(status: &mut VirtualMachineInstanceStatus, phase: &Phase, now: Timestamp) {
    if status.phase.as_ref() == Some(phase) {
        return;
    }
    status.phase = Some(phase.clone());
    let transitions = &mut status.phase_transition_timestamps;
    if !transitions.iter().any(|t| t.phase.as_ref() == Some(phase)) {
        transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(time(now)) });
    }
}

/// The API has a resolution of one second.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(now.round(Unit::Second).unwrap_or(now))
}

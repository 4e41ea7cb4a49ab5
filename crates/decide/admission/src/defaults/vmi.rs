//! Defaults of a new VMI.

use api::annotations::{PCI_TOPOLOGY_VERSION, pci_topology};
use api::config::ClusterConfig;
use api::finalizers;
use api::v1::{
    CPUTopology, MemoryStatus, VirtualMachineInstance, VirtualMachineInstancePhase,
    VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta;

use super::architecture::architecture;
use super::hyperv::dependencies;
use super::live_update::live_update;
use super::object::object;
use super::{has_pcie, spec};
use crate::Refusal;

/// The user a launcher runs as.
const RUNTIME_USER: u64 = 107;

/// Adds a CPU for emulator threads where that makes their number even: on the KubeVirt object for all VMIs, or on one
/// VMI.
const EVEN_EMULATOR_THREADS: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";

/// On VMIs: the socket of the quote generation service for TDX attestation.
const QGS_SOCKET_PATH: &str = "kubevirt.io/qgs-socket-path";

/// Applies defaults to a new VMI, after presets.
pub(crate) fn vmi(vmi: &mut VirtualMachineInstance, config: &ClusterConfig, now: &Time) -> Result<(), Refusal> {
    spec(&mut vmi.spec, config)?;
    object(vmi);
    dependencies(&mut vmi.spec);
    architecture(&mut vmi.spec, config);
    sizes(vmi);
    live_update(&mut vmi.spec, config);
    annotations(vmi, config);
    let status = vmi.status.get_or_insert_default();
    if !config.feature_gate("Root") {
        status.runtime_user = Some(RUNTIME_USER);
    }
    meta::add_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    status.phase = Some(VirtualMachineInstancePhase::Pending);
    note_phase(status, now);
    Ok(())
}

/// The guest's initial sizes.
fn sizes(vmi: &mut VirtualMachineInstance) {
    let guest = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let status = vmi.status.get_or_insert_default();
    if let Some(guest) = guest {
        let memory = status.memory.get_or_insert_default();
        *memory = MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest.clone()),
            memory_overhead: memory.memory_overhead.take(),
        };
    }
    if let Some(cpu) = &vmi.spec.domain.cpu {
        let some = |part: Option<u32>| part.filter(|part| *part > 0);
        let topology = CPUTopology { cores: some(cpu.cores), sockets: some(cpu.sockets), threads: some(cpu.threads) };
        status.current_cpu_topology.get_or_insert(topology);
    }
}

fn annotations(vmi: &mut VirtualMachineInstance, config: &ClusterConfig) {
    let mut annotate = |key: &str, value: &str, keep: bool| {
        let annotations = vmi.metadata.annotations.get_or_insert_default();
        if !keep || !annotations.contains_key(key) {
            annotations.insert(key.to_owned(), value.to_owned());
        }
    };
    let domain = &vmi.spec.domain;
    if has_pcie(&vmi.spec) {
        annotate(PCI_TOPOLOGY_VERSION, pci_topology::V3, true);
    }
    let isolated = domain.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true));
    if isolated && config.annotations.contains_key(EVEN_EMULATOR_THREADS) && config.feature_gate("AlignCPUs") {
        annotate(EVEN_EMULATOR_THREADS, "", false);
    }
    if domain.launch_security.as_ref().is_some_and(|security| security.tdx.is_some()) {
        annotate(QGS_SOCKET_PATH, config.qgs_socket_path(), false);
    }
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

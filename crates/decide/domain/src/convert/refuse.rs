//! Fields that this build does not support. Admission rejects them earlier; this is a second check, so that nothing is
//! silently dropped should the two ever disagree.

use api::v1::VirtualMachineInstance;

use crate::error::Error;

const LATER: &str = "is not supported by this version; remove it";

pub(super) fn unsupported(vmi: &VirtualMachineInstance) -> Result<(), Error> {
    let spec = &vmi.spec;
    let domain = &spec.domain;
    let devices = &domain.devices;
    let cpu = domain.cpu.as_ref();
    let features = domain.features.as_ref();
    let firmware = domain.firmware.as_ref();
    let fields = [
        (!spec.access_credentials.is_empty(), "spec.accessCredentials"),
        (!spec.utility_volumes.is_empty(), "spec.utilityVolumes"),
        (domain.launch_security.is_some(), "spec.domain.launchSecurity"),
        (domain.io_threads_policy.is_some(), "spec.domain.ioThreadsPolicy"),
        (domain.io_threads.is_some(), "spec.domain.ioThreads"),
        (domain.memory.as_ref().is_some_and(|memory| memory.hugepages.is_some()), "spec.domain.memory.hugepages"),
        (cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true)), "spec.domain.cpu.dedicatedCpuPlacement"),
        (cpu.is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true)), "spec.domain.cpu.isolateEmulatorThread"),
        (cpu.is_some_and(|cpu| cpu.numa.is_some()), "spec.domain.cpu.numa"),
        (cpu.is_some_and(|cpu| cpu.realtime.is_some()), "spec.domain.cpu.realtime"),
        (features.is_some_and(|features| features.hyperv.is_some()), "spec.domain.features.hyperv"),
        (features.is_some_and(|f| f.hyperv_passthrough.is_some()), "spec.domain.features.hypervPassthrough"),
        (features.is_some_and(|features| features.kvm.is_some()), "spec.domain.features.kvm"),
        (features.is_some_and(|features| features.pvspinlock.is_some()), "spec.domain.features.pvspinlock"),
        (firmware.is_some_and(|firmware| firmware.acpi.is_some()), "spec.domain.firmware.acpi"),
        (
            firmware.and_then(|f| f.bootloader.as_ref()).is_some_and(|b| b.efi.is_some()),
            "spec.domain.firmware.bootloader.efi",
        ),
        (devices.autoattach_vsock == Some(true), "spec.domain.devices.autoattachVSOCK"),
        (devices.block_multi_queue == Some(true), "spec.domain.devices.blockMultiQueue"),
        (devices.client_passthrough.is_some(), "spec.domain.devices.clientPassthrough"),
        (devices.downward_metrics.is_some(), "spec.domain.devices.downwardMetrics"),
        (!devices.filesystems.is_empty(), "spec.domain.devices.filesystems"),
        (!devices.gpus.is_empty(), "spec.domain.devices.gpus"),
        (!devices.host_devices.is_empty(), "spec.domain.devices.hostDevices"),
        (!devices.inputs.is_empty(), "spec.domain.devices.inputs"),
        (devices.network_interface_multiqueue == Some(true), "spec.domain.devices.networkInterfaceMultiqueue"),
        (devices.sound.is_some(), "spec.domain.devices.sound"),
        (devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false)), "spec.domain.devices.tpm"),
        (devices.watchdog.is_some(), "spec.domain.devices.watchdog"),
    ];
    match fields.iter().find(|(set, _)| *set) {
        Some((_, field)) => Err(Error::unsupported(*field, LATER)),
        None => Ok(()),
    }
}

/// An error for a field inside a list.
pub(super) fn later(field: String) -> Error {
    Error::unsupported(field, LATER)
}

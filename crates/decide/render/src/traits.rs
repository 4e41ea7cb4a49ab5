//! Properties of a VMI that several parts of its Pods depend on.

use api::annotations;
use api::config::ClusterConfig;
use api::v1::{
    Binding, ChangedBlockTrackingState, Hugepages, Interface, KernelBootContainer, LaunchSecurity,
    VirtualMachineInstance, Volume, VolumeSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

pub(crate) fn annotation<'a>(vmi: &'a VirtualMachineInstance, key: &str) -> Option<&'a str> {
    machinery::meta::annotation(&vmi.metadata, key)
}

/// The value of an annotation that turns something on, if it requests anything.
pub(crate) fn requested<'a>(vmi: &'a VirtualMachineInstance, key: &str) -> Option<&'a str> {
    annotation(vmi, key).filter(|value| annotations::requests(value))
}

pub(crate) fn label<'a>(vmi: &'a VirtualMachineInstance, key: &str) -> Option<&'a str> {
    machinery::meta::label(&vmi.metadata, key)
}

/// Whether the launcher runs as non-root. Admission sets this for every VMI unless the feature gate Root is enabled.
pub(crate) fn non_root(vmi: &VirtualMachineInstance) -> bool {
    let user = vmi.status.as_ref().and_then(|status| status.runtime_user).unwrap_or(0);
    user != 0 || annotation(vmi, annotations::NON_ROOT).is_some()
}

pub(crate) fn architecture<'a>(vmi: &'a VirtualMachineInstance, config: &'a ClusterConfig) -> &'a str {
    vmi.spec.architecture.as_deref().filter(|arch| !arch.is_empty()).unwrap_or_else(|| config.default_architecture())
}

pub(crate) fn dedicated_cpus(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
}

/// Whether the Pod must have QoS class Guaranteed: for dedicated CPUs, or because the VMI's own resources say so.
pub(crate) fn guaranteed(vmi: &VirtualMachineInstance) -> bool {
    dedicated_cpus(vmi) || wants_guaranteed(vmi)
}

fn wants_guaranteed(vmi: &VirtualMachineInstance) -> bool {
    let Some(resources) = &vmi.spec.domain.resources else { return false };
    let amount = |amount: Option<&Wire>| amount.and_then(|amount| amount.try_into().ok()).unwrap_or(Quantity::ZERO);
    let both = |name: &str| (amount(resources.requests.get(name)), amount(resources.limits.get(name)));
    let ((cpu_request, cpu_limit), (request, limit)) = (both("cpu"), both("memory"));
    let memory = if request.is_zero() { !limit.is_zero() } else { request == limit };
    memory && !cpu_request.is_zero() && cpu_request == cpu_limit
}

pub(crate) fn hugepages(vmi: &VirtualMachineInstance) -> Option<&Hugepages> {
    vmi.spec.domain.memory.as_ref()?.hugepages.as_ref()
}

/// The image that holds a directly booted kernel.
pub(crate) fn kernel_boot(vmi: &VirtualMachineInstance) -> Option<&KernelBootContainer> {
    vmi.spec.domain.firmware.as_ref()?.kernel_boot.as_ref()?.container.as_ref()
}

pub(crate) fn interfaces(vmi: &VirtualMachineInstance) -> &[Interface] {
    &vmi.spec.domain.devices.interfaces
}

pub(crate) fn has_sriov(vmi: &VirtualMachineInstance) -> bool {
    interfaces(vmi).iter().any(|interface| interface.bound_by() == Binding::Sriov)
}

/// Whether host devices access the guest's memory (VFIO).
pub(crate) fn has_vfio(vmi: &VirtualMachineInstance) -> bool {
    let devices = &vmi.spec.domain.devices;
    !devices.host_devices.is_empty() || !devices.gpus.is_empty() || has_sriov(vmi)
}

pub(crate) fn has_virtiofs(vmi: &VirtualMachineInstance) -> bool {
    !vmi.spec.domain.devices.filesystems.is_empty()
}

pub(crate) fn has_downward_metrics(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.volumes.iter().any(|volume| volume.source() == VolumeSource::DownwardMetrics)
}

fn launch_security(vmi: &VirtualMachineInstance) -> Option<&LaunchSecurity> {
    vmi.spec.domain.launch_security.as_ref()
}

/// AMD memory encryption, in any generation (SEV, SEV-ES, SEV-SNP).
pub(crate) fn sev(vmi: &VirtualMachineInstance) -> bool {
    launch_security(vmi).is_some_and(|security| security.sev.is_some() || security.snp.is_some())
}

pub(crate) fn sev_es(vmi: &VirtualMachineInstance) -> bool {
    let policy = launch_security(vmi).and_then(|security| security.sev.as_ref()?.policy.as_ref());
    policy.is_some_and(|policy| policy.encrypted_state == Some(true))
}

pub(crate) fn sev_snp(vmi: &VirtualMachineInstance) -> bool {
    launch_security(vmi).is_some_and(|security| security.snp.is_some())
}

pub(crate) fn tdx(vmi: &VirtualMachineInstance) -> bool {
    launch_security(vmi).is_some_and(|security| security.tdx.is_some())
}

pub(crate) fn secure_execution(vmi: &VirtualMachineInstance) -> bool {
    launch_security(vmi).is_some() && vmi.spec.architecture.as_deref() == Some("s390x")
}

pub(crate) fn has_tpm(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false))
}

pub(crate) fn has_persistent_tpm(vmi: &VirtualMachineInstance) -> bool {
    has_tpm(vmi) && vmi.spec.domain.devices.tpm.as_ref().is_some_and(|tpm| tpm.persistent == Some(true))
}

pub(crate) fn has_efi(vmi: &VirtualMachineInstance) -> bool {
    efi_flag(vmi, |_| true)
}

pub(crate) fn has_persistent_efi(vmi: &VirtualMachineInstance) -> bool {
    efi_flag(vmi, |efi| efi.persistent == Some(true))
}

fn efi_flag(vmi: &VirtualMachineInstance, flag: fn(&api::v1::EFI) -> bool) -> bool {
    let firmware = vmi.spec.domain.firmware.as_ref();
    firmware.and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref()).is_some_and(flag)
}

/// Whether changed block tracking is enabled, or about to be.
pub(crate) fn tracks_blocks(vmi: &VirtualMachineInstance) -> bool {
    let tracking = vmi.status.as_ref().and_then(|status| status.changed_block_tracking.as_ref());
    tracking.is_some_and(|tracking| {
        matches!(tracking.state, ChangedBlockTrackingState::Initializing | ChangedBlockTrackingState::Enabled)
    })
}

/// Whether the guest has persistent state beyond its disks: TPM, NVRAM or changed block tracking.
pub fn needs_backend_claim(vmi: &VirtualMachineInstance) -> bool {
    has_persistent_tpm(vmi) || has_persistent_efi(vmi) || tracks_blocks(vmi)
}

/// The claim of a volume; `None` if it is not backed by one.
pub fn claim_name(volume: &Volume) -> Option<&str> {
    volume.source().claim_name()
}

/// Volumes with SCSI persistent reservations.
pub(crate) fn reserved_volumes(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Volume> {
    let disks = vmi.spec.domain.devices.disks.iter();
    let reserving = disks.filter(|disk| disk.device().takes_reservations());
    reserving.filter_map(|disk| vmi.spec.volumes.iter().find(|volume| volume.name == disk.name))
}

pub(crate) fn has_reservation(vmi: &VirtualMachineInstance) -> bool {
    let mut disks = vmi.spec.domain.devices.disks.iter();
    disks.any(|disk| disk.device().takes_reservations())
}

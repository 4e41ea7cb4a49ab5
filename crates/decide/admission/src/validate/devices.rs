//! Devices other than disks and interfaces.

use api::config::ClusterConfig;
use api::v1::{DiskDevice, GPU, VirtualMachineInstanceSpec, Volume};
use machinery::field::{Cause, Path};

use super::findings::{Findings, text};
use super::{architecture, needs_gate};

const INPUT_BUSES: [&str; 3] = ["", "virtio", "usb"];
const SOUND_MODELS: [&str; 3] = ["", "ich9", "ac97"];
const PANIC_MODELS: [&str; 3] = ["hyperv", "isa", "pvpanic"];
const IO_THREADS_POLICIES: [&str; 3] = ["shared", "auto", "supplementalPool"];

/// Pointing devices.
pub(super) fn inputs(found: &mut Findings, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let field = devices.child("inputs");
    for (index, input) in spec.domain.devices.inputs.iter().enumerate() {
        let field = field.index(index);
        let bus = text(&input.bus);
        if !INPUT_BUSES.contains(&bus) {
            found.invalid(&field.child("bus"), bus, "must be virtio or usb");
        }
        if input.type_ != "tablet" {
            found.invalid(&field.child("type"), input.type_.as_str(), "must be tablet");
        }
    }
}

/// I/O threads.
pub(super) fn io_threads(found: &mut Findings, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(policy) = spec.domain.io_threads_policy.as_deref() else { return };
    if !IO_THREADS_POLICIES.contains(&policy) {
        let detail = format_args!("must be one of {}", IO_THREADS_POLICIES.join(", "));
        found.invalid(&domain.child("ioThreadsPolicy"), policy, detail);
    }
    let count = spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    if policy == "supplementalPool" && count.unwrap_or(0) < 1 {
        let field = domain.child("ioThreads.supplementalPoolThreadCount");
        found.invalid(&field, count.unwrap_or(0), "must be at least 1 with the policy supplementalPool");
    }
}

/// At most one GPU can be the boot display.
pub(super) fn gpus(found: &mut Findings, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    if spec.domain.devices.gpus.iter().filter(|gpu| drives_boot_display(gpu)).count() > 1 {
        let message = "at most one GPU can have a display with ramFB; both are on unless turned off";
        found.refuse(Cause::Invalid, &devices.child("gpus"), message);
    }
}

fn drives_boot_display(gpu: &GPU) -> bool {
    let display = gpu.virtual_gpu_options.as_ref().and_then(|options| options.display.as_ref());
    display.is_some_and(|display| {
        let ram_fb = display.ram_fb.as_ref().is_none_or(|ram_fb| ram_fb.enabled == Some(true));
        display.enabled != Some(false) && ram_fb
    })
}

/// Host devices, which the cluster's administrator has to permit.
pub(super) fn host_devices(
    found: &mut Findings,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    if !spec.domain.devices.host_devices.is_empty() {
        needs_gate(found, &devices.child("hostDevices"), "HostDevices", config);
    }
}

/// The sound card.
pub(super) fn sound(found: &mut Findings, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(sound) = &spec.domain.devices.sound else { return };
    let field = devices.child("sound");
    let model = text(&sound.model);
    if !SOUND_MODELS.contains(&model) {
        found.invalid(&field, model, "the model must be ich9 or ac97");
    }
    if sound.name.is_empty() {
        found.refuse(Cause::Invalid, &field, "the sound card needs a name");
    }
}

/// Devices behind a feature gate.
pub(super) fn gated(
    found: &mut Findings,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let given = &spec.domain.devices;
    if given.autoattach_vsock == Some(true) {
        needs_gate(found, &devices.child("autoattachVSOCK"), "VSOCK", config);
    }
    let reserves = |disk: &api::v1::Disk| disk.devices().any(DiskDevice::takes_reservations);
    if let Some(index) = given.disks.iter().position(reserves).filter(|_| !config.persistent_reservation()) {
        let disks = devices.child("disks");
        let message = "persistent reservation is not enabled in the cluster";
        found.refuse(Cause::Invalid, &disks.index(index).child("lun.reservation"), message);
    }
    if given.downward_metrics.is_some() {
        needs_gate(found, &devices.child("downwardMetrics"), "DownwardMetrics", config);
    }
    let on_claim = |name: &str| {
        let volume = spec.volumes.iter().rfind(|volume| volume.name == name);
        volume.is_some_and(Volume::is_claim)
    };
    if given.filesystems.iter().any(|filesystem| on_claim(&filesystem.name)) {
        needs_gate(found, &devices.child("filesystems"), "EnableVirtioFsStorageVolumes", config);
    }
}

/// The video device, which needs a display.
pub(super) fn video(found: &mut Findings, devices: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let given = &spec.domain.devices;
    if let Some(video) = given.video.as_ref().filter(|_| given.autoattach_graphics_device == Some(false)) {
        let detail = "makes no sense while autoattachGraphicsDevice is false";
        found.invalid(&devices.child("video"), text(&video.type_), detail);
    }
}

/// Devices through which the guest reports a panic.
pub(super) fn panic_devices(
    found: &mut Findings,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let given = &spec.domain.devices.panic_devices;
    let field = devices.child("panicDevices");
    if !given.is_empty() && architecture(spec, config) == "s390x" {
        found.refuse(Cause::Invalid, &field, "s390x has a panic device of its own and takes no other");
    }
    for (index, device) in given.iter().enumerate() {
        if let Some(model) = device.model.as_deref().filter(|model| !PANIC_MODELS.contains(model)) {
            let detail = format_args!("must be one of {}", PANIC_MODELS.join(", "));
            found.invalid(&field.index(index).child("model"), model, detail);
        }
    }
}

//! Preferred devices.

use api::instancetype::DevicePreferences;
use api::v1::{Binding, Devices, Disk, DiskDevice, Interface, PanicDevice, VideoDevice, VirtualMachineInstanceSpec};

use super::{fill, fill_text};

pub(super) fn apply(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    switches(preferred, spec);
    spec.domain.devices.disks.iter_mut().for_each(|disk| self::disk(preferred, disk));
    let on_pod_network: Vec<String> =
        spec.networks.iter().filter(|network| network.source().is_pod()).map(|network| network.name.clone()).collect();
    for interface in &mut spec.domain.devices.interfaces {
        self::interface(preferred, interface, on_pod_network.contains(&interface.name));
    }
    for input in &mut spec.domain.devices.inputs {
        fill_text(&mut input.bus, &preferred.preferred_input_bus);
        if input.type_.is_empty() {
            input.type_ = preferred.preferred_input_type.clone().unwrap_or_default();
        }
    }
    panic_devices(preferred, spec);
}

fn switches(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    fill(&mut devices.use_virtio_transitional, &preferred.preferred_use_virtio_transitional);
    fill(&mut devices.block_multi_queue, &preferred.preferred_block_multi_queue);
    fill(&mut devices.network_interface_multiqueue, &preferred.preferred_network_interface_multi_queue);
    autoattach(preferred, devices);
    fill(&mut devices.rng, &preferred.preferred_rng);
    fill(&mut devices.tpm, &preferred.preferred_tpm);
    if preferred.preferred_disable_hotplug.is_some() {
        // KubeVirt cannot distinguish false from unset here and lets the preference win; guests have come to rely on
        // it.
        devices.disable_hotplug = preferred.preferred_disable_hotplug;
    }
    if let Some(sound) = &mut devices.sound {
        fill_text(&mut sound.model, &preferred.preferred_sound_model);
    }
    // A video device would make a guest without graphics invalid.
    if preferred.preferred_video_type.as_deref().is_some_and(|type_| !type_.is_empty())
        && devices.autoattach_graphics_device != Some(false)
    {
        let video = devices.video.get_or_insert_with(VideoDevice::default);
        fill_text(&mut video.type_, &preferred.preferred_video_type);
    }
}

/// Which default devices a guest gets.
pub(super) fn autoattach(preferred: &DevicePreferences, devices: &mut Devices) {
    fill(&mut devices.autoattach_graphics_device, &preferred.preferred_autoattach_graphics_device);
    fill(&mut devices.autoattach_mem_balloon, &preferred.preferred_autoattach_mem_balloon);
    fill(&mut devices.autoattach_pod_interface, &preferred.preferred_autoattach_pod_interface);
    fill(&mut devices.autoattach_serial_console, &preferred.preferred_autoattach_serial_console);
    fill(&mut devices.autoattach_input_device, &preferred.preferred_autoattach_input_device);
}

fn disk(preferred: &DevicePreferences, disk: &mut Disk) {
    disk.fill_device();
    let (bus, is_plain) = match disk.device() {
        DiskDevice::Disk(_) | DiskDevice::Unset => (&preferred.preferred_disk_bus, true),
        DiskDevice::CdRom(_) => (&preferred.preferred_cdrom_bus, false),
        DiskDevice::Lun(_) => (&preferred.preferred_lun_bus, false),
    };
    disk.buses_mut().take(1).for_each(|target| fill_text(target, bus));
    if is_plain {
        fill(&mut disk.block_size, &preferred.preferred_disk_block_size);
        fill_text(&mut disk.cache, &preferred.preferred_disk_cache);
        fill_text(&mut disk.io, &preferred.preferred_disk_io);
        if disk.device().bus() == Some("virtio") {
            fill(&mut disk.dedicated_io_thread, &preferred.preferred_disk_dedicated_io_thread);
        }
    }
}

fn interface(preferred: &DevicePreferences, interface: &mut Interface, on_pod_network: bool) {
    fill_text(&mut interface.model, &preferred.preferred_interface_model);
    if on_pod_network && interface.bound_by() == Binding::Unset && preferred.preferred_interface_masquerade.is_some() {
        interface.bind(Binding::Masquerade);
    }
}

/// Adds a panic device, unless the guest's architecture has its own and supports no other.
fn panic_devices(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    if preferred.preferred_panic_device_model.is_none() {
        return;
    }
    let devices = &mut spec.domain.devices.panic_devices;
    if devices.is_empty() && spec.architecture.as_deref() != Some("s390x") {
        devices.push(PanicDevice::default());
    }
    devices.iter_mut().for_each(|device| fill(&mut device.model, &preferred.preferred_panic_device_model));
}

//! Rules for an instance's spec, wherever it stands: in an instance or in a virtual machine's template.
//!
//! Every rule looks at the spec after its defaults and reports all it finds; the first error does not hide the second.

mod compute;
mod disks;
mod firmware;
mod metadata;
mod naming;
mod network;
mod placement;
mod volumes;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use machinery::field::{FieldError, FieldPath};

pub(crate) use metadata::{reserved_labels, reserved_labels_kept};

/// What is wrong with a spec at `field`.
pub(crate) fn spec(field: &FieldPath, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let domain = field.child("domain");
    let devices = domain.child("devices");
    [
        network::check(field, &devices, spec),
        volumes::check(&field.child("volumes"), &spec.volumes),
        naming::check(field, spec),
        compute::check(field, &domain, spec, config),
        placement::check(field, spec),
        disks::check(&devices.child("disks"), spec),
        boot_order(&devices, spec),
        firmware::check(&domain.child("firmware"), spec.domain.firmware.as_ref()),
        graphics(&devices, spec),
    ]
    .concat()
}

/// QEMU holds a boot order in a signed 32-bit number; libvirt hands it on as it is.
const LAST_IN_BOOT_ORDER: u64 = i32::MAX as u64;

/// Two devices cannot be the first to boot from.
fn boot_order(devices: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let disks = spec.domain.devices.disks.iter().enumerate();
    let disks = disks.map(|(i, disk)| (devices.child("disks").index(i), disk.boot_order));
    let interfaces = spec.domain.devices.interfaces.iter().enumerate();
    let interfaces = interfaces.map(|(i, interface)| (devices.child("interfaces").index(i), interface.boot_order));
    let mut taken = Vec::new();
    let mut errors = Vec::new();
    for (device, order) in disks.chain(interfaces) {
        let Some(order) = order else { continue };
        if order < 1 {
            errors.push(FieldError::invalid(device.child("bootOrder"), order, "must be at least 1"));
        } else if order > LAST_IN_BOOT_ORDER {
            let detail = format!("must be at most {LAST_IN_BOOT_ORDER}");
            errors.push(FieldError::invalid(device.child("bootOrder"), order, detail));
        } else if taken.contains(&order) {
            errors.push(FieldError::invalid(device.child("bootOrder"), order, "is the order of another device"));
        } else {
            taken.push(order);
        }
    }
    errors
}

fn graphics(devices: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let given = &spec.domain.devices;
    match &given.video {
        Some(video) if given.autoattach_graphics_device == Some(false) => {
            let type_ = video.type_.clone().unwrap_or_default();
            let detail = "makes no sense while autoattachGraphicsDevice is false";
            vec![FieldError::invalid(devices.child("video"), type_, detail)]
        }
        _ => Vec::new(),
    }
}

/// An error for each problem Kubernetes finds with a name.
fn names(field: &FieldPath, value: &str, problems: Vec<String>) -> Vec<FieldError> {
    problems.into_iter().map(|problem| FieldError::invalid(field.clone(), value, problem)).collect()
}

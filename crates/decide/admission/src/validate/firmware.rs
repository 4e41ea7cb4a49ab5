//! Firmware: the guest's UUID and a kernel booted directly.

use api::v1::{Firmware, KernelBoot, KernelBootContainer};
use machinery::field::{FieldError, FieldPath};
use uuid::Uuid;

pub(super) fn check(field: &FieldPath, firmware: Option<&Firmware>) -> Vec<FieldError> {
    let Some(firmware) = firmware else { return Vec::new() };
    let mut errors = Vec::new();
    if let Some(uuid) = firmware.uuid.as_deref().filter(|uuid| !uuid.is_empty() && Uuid::parse_str(uuid).is_err()) {
        let detail = "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223";
        errors.push(FieldError::invalid(field.child("uuid"), uuid, detail));
    }
    if let Some(boot) = &firmware.kernel_boot {
        errors.extend(kernel_boot(&field.child("kernelBoot"), boot));
    }
    errors
}

fn kernel_boot(field: &FieldPath, boot: &KernelBoot) -> Vec<FieldError> {
    match (&boot.container, boot.kernel_args.as_deref().unwrap_or_default()) {
        (None, "") => Vec::new(),
        (None, args) => {
            let detail = "kernel arguments cannot be given without a kernel: set container";
            vec![FieldError::invalid(field.child("kernelArgs"), args, detail)]
        }
        (Some(container), args) => {
            let mut errors = kernel_container(&field.child("container"), container);
            if !args.is_empty() && is_empty(&container.kernel_path) {
                let detail = "kernel arguments cannot be given without a kernel: set container.kernelPath";
                errors.push(FieldError::invalid(field.child("kernelArgs"), args, detail));
            }
            errors
        }
    }
}

fn kernel_container(field: &FieldPath, container: &KernelBootContainer) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if container.image.is_empty() {
        errors.push(FieldError::required(field.child("image"), "the image that holds the kernel has to be named"));
    }
    if is_empty(&container.kernel_path) && is_empty(&container.initrd_path) {
        errors.push(FieldError::required(field.clone(), "at least one of kernelPath and initrdPath has to be set"));
    }
    for (name, path) in [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)] {
        if let Some(path) = path.as_deref().filter(|path| !path.is_empty())
            && let Some(problem) = super::volumes::image_path_problem(path)
        {
            errors.push(FieldError::invalid(field.child(name), path, problem));
        }
    }
    errors
}

fn is_empty(text: &Option<String>) -> bool {
    text.as_deref().unwrap_or_default().is_empty()
}

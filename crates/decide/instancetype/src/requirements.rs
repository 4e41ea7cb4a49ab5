//! Requirements of a preference.

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::quantity::Quantity;

use crate::topology::{Across, Preferred};

/// Checks whether a VMI, with everything applied and its defaults set, meets a preference's requirements. `field` is
/// the VM's spec. Several fields that are only too small together share one error.
pub fn check_requirements(
    field: &FieldPath,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
    spec: &VirtualMachineInstanceSpec,
) -> Option<FieldError> {
    let requirements = preference.requirements.as_ref()?;
    let cpu = requirements.cpu.as_ref().and_then(|cpu| check_cpu(field, instancetype, preference, cpu.guest, spec));
    let memory = || check_memory(field, instancetype, &requirements.memory.as_ref()?.guest, spec);
    let architecture = || check_architecture(field, requirements.architecture.as_deref()?, spec);
    cpu.or_else(memory).or_else(architecture)
}

fn unmet(fields: &[FieldPath], message: String) -> Option<FieldError> {
    let fields: Vec<&str> = fields.iter().map(FieldPath::as_str).collect();
    Some(FieldError::new(Cause::NotFound, FieldPath::new(fields.join(", ")), message))
}

fn check_cpu(
    field: &FieldPath,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
    required: u32,
    spec: &VirtualMachineInstanceSpec,
) -> Option<FieldError> {
    if let Some(instancetype) = instancetype {
        let provided = instancetype.cpu.guest;
        let message = format!("the instance type provides {provided} vCPUs, and the preference requires {required}");
        return (provided < required).then(|| unmet(&[field.child("instancetype")], message)).flatten();
    }
    let parts: &[&str] = match Preferred::by(Some(preference)) {
        Preferred::Sockets => &["sockets"],
        Preferred::Cores => &["cores"],
        Preferred::Threads => &["threads"],
        Preferred::Any => &["cores", "sockets", "threads"],
        Preferred::Spread { across: Across::SocketsCores, .. } => &["sockets", "cores"],
        Preferred::Spread { across: Across::CoresThreads, .. } => &["cores", "threads"],
        Preferred::Spread { across: Across::SocketsCoresThreads, .. } => &["sockets", "cores", "threads"],
    };
    let field = field.child("template").child("spec").child("domain").child("cpu");
    let Some(cpu) = &spec.domain.cpu else {
        let message = format!("the virtual machine names no CPUs, and the preference requires {required}");
        return unmet(&[field], message);
    };
    let provided = parts.iter().fold(1u32, |product, part| {
        let part = match *part {
            "sockets" => cpu.sockets,
            "cores" => cpu.cores,
            _ => cpu.threads,
        };
        product.saturating_mul(part.unwrap_or_default())
    });
    if provided >= required {
        return None;
    }
    let fields: Vec<FieldPath> = parts.iter().map(|part| field.child(part)).collect();
    let message = format!(
        "the virtual machine provides {provided} vCPUs as {}, and the preference requires {required}",
        parts.join(" × ")
    );
    unmet(&fields, message)
}

/// The guest's own memory counts, which is the instance type's if that sets it.
fn check_memory(
    field: &FieldPath,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    required: &Wire,
    spec: &VirtualMachineInstanceSpec,
) -> Option<FieldError> {
    let of_guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let provided = of_guest.or_else(|| instancetype.map(|instancetype| &instancetype.memory.guest));
    let amount = |wire: &Wire| Quantity::try_from(wire).unwrap_or(Quantity::ZERO);
    let (provided, required) = (provided.map_or(Quantity::ZERO, amount), amount(required));
    if provided >= required {
        return None;
    }
    let (by, field) = match instancetype {
        Some(_) => ("instance type", field.child("instancetype")),
        None => ("virtual machine", field.child("template").child("spec").child("domain").child("memory")),
    };
    let message = format!("the {by} provides {provided} of memory, and the preference requires {required}");
    unmet(&[field], message)
}

fn check_architecture(field: &FieldPath, required: &str, spec: &VirtualMachineInstanceSpec) -> Option<FieldError> {
    let provided = spec.architecture.as_deref().unwrap_or_default();
    if provided == required {
        return None;
    }
    let field = field.child("template").child("spec").child("architecture");
    unmet(&[field], format!("the architecture is {provided:?}, and the preference requires {required:?}"))
}

//! Defaults of objects.

mod architecture;
mod hyperv;
mod live_update;
mod object;
mod spec;
mod vm;
mod vmi;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use uuid::Uuid;

pub use live_update::memory_hotplug;
pub(crate) use spec::spec;
pub(crate) use vm::{preferred, vm};
pub(crate) use vmi::vmi;

/// The namespace of firmware UUIDs. Guests may have licenses bound to the result, so it must never change.
const FIRMWARE_NAMESPACE: Uuid = Uuid::from_u128(0x6a1a24a1_4061_4607_8bf4_a3963d0c5895);

/// The default UUID of a guest: always the same for the same name.
pub fn firmware_uuid(name: &str) -> String {
    Uuid::new_v5(&FIRMWARE_NAMESPACE, name.as_bytes()).to_string()
}

fn is_empty(text: &Option<String>) -> bool {
    text.as_deref().unwrap_or_default().is_empty()
}

fn fill(field: &mut Option<String>, value: impl Into<String>) {
    if is_empty(field) {
        *field = Some(value.into());
    }
}

/// Architecture and the machine type that follows from it.
fn platform(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    fill(&mut spec.architecture, config.default_architecture());
    let machine = &mut spec.domain.machine.get_or_insert_default().type_;
    if is_empty(machine) {
        *machine = Some(config.machine_type(spec.architecture.as_deref().unwrap_or_default()).to_owned());
    }
}

/// Whether the guest's machine has PCI Express.
fn has_pcie(spec: &VirtualMachineInstanceSpec) -> bool {
    let machine = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or_default();
    let architecture = spec.architecture.as_deref().unwrap_or_default();
    matches!(architecture, "" | "amd64" | "arm64") && (machine.contains("q35") || machine.starts_with("virt"))
}

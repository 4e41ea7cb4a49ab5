//! Rules for a VMI's spec, in a VMI or in a template.
//!
//! Every rule checks the spec after defaulting and reports all errors; the first error does not hide the second. Cause
//! types and paths are KubeVirt's, for clients that parse them. Where KubeVirt's path names no field of the object,
//! ours names the field that the rule is about.

mod access;
mod architecture;
mod cpu;
mod devices;
mod disks;
mod dra;
mod findings;
mod firmware;
mod grace;
mod hyperv;
mod life_cycle;
mod limits;
mod machine;
mod memory;
mod metadata;
mod naming;
mod network;
mod placement;
mod update;
mod volumes;

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::{Binding, Disk, Firmware, VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, FieldPath, Path};
use machinery::quantity::Quantity;

pub(crate) use cpu::maps_numa;
use findings::Findings;
pub(crate) use hyperv::{DEPENDENCIES as HYPERV_DEPENDENCIES, EVMCS_FLAG};
pub(crate) use update::{changed_labels, changed_spec};

/// Validates a new VMI.
pub(crate) fn instance(vmi: &VirtualMachineInstance, own: bool, config: &ClusterConfig) -> Vec<FieldError> {
    let mut found = Findings::default();
    let field = Path::new("spec");
    let domain = field.child("domain");
    let metadata_field = Path::new("metadata");
    discontinued(&mut found, &field, &vmi.spec, config);
    rules(&mut found, &field, &vmi.spec, config);
    volumes::used(&mut found, &field, &vmi.spec);
    memory::mandatory(&mut found, &vmi.spec);
    metadata::check(&mut found, &metadata_field, &vmi.metadata, own, config);
    grace::annotations(&mut found, &metadata_field, &vmi.metadata, &vmi.spec, config);
    hyperv::check(&mut found, &domain, &vmi.spec);
    architecture::check(&mut found, &field, &domain, &vmi.spec);
    found.into_errors()
}

/// Validates a spec at `field`, of a VMI or of a template.
pub(crate) fn spec(field: &FieldPath, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<FieldError> {
    collect(|found| rules(found, &Path::new(field.as_str()), spec, config))
}

/// Rejects removed features in a new template at `field`. Existing templates keep them.
pub(crate) fn new_spec(
    field: &FieldPath,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) -> Vec<FieldError> {
    collect(|found| discontinued(found, &Path::new(field.as_str()), spec, config))
}

/// Validates the metadata at `field` of a VMI or of a template.
pub(crate) fn metadata(field: &FieldPath, metadata: &ObjectMeta, own: bool, config: &ClusterConfig) -> Vec<FieldError> {
    collect(|found| metadata::check(found, &Path::new(field.as_str()), metadata, own, config))
}

/// Rejects what KubeVirt would admit at `field` and no guest of this build could run with.
pub(crate) fn limits(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    collect(|found| limits::check(found, &Path::new(field.as_str()), spec))
}

/// Validates disks independently of their volumes.
pub(crate) fn disks(field: &FieldPath, disks: &[Disk]) -> Vec<FieldError> {
    collect(|found| disks::check(found, &Path::new(field.as_str()), disks))
}

/// Validates boot loader and kernel.
pub(crate) fn firmware(field: &FieldPath, firmware: &Firmware) -> Vec<FieldError> {
    collect(|found| firmware::check(found, &Path::new(field.as_str()), firmware))
}

/// Validates a disk that is to be hot-plugged.
pub(crate) fn hotplug_disk(field: &FieldPath, disk: &Disk) -> Vec<FieldError> {
    collect(|found| disks::hotplug(found, &Path::new(field.as_str()), disk))
}

fn collect(rules: impl FnOnce(&mut Findings)) -> Vec<FieldError> {
    let mut found = Findings::default();
    rules(&mut found);
    found.into_errors()
}

/// Every rule for a spec, networks and storage first.
fn rules(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let domain = field.child("domain");
    let devices = domain.child("devices");
    network::check(found, field, &devices, spec, config);
    volumes::check(found, &field.child("volumes"), &spec.volumes, config);
    disks::check(found, &devices.child("disks"), &spec.domain.devices.disks);
    naming::host(found, field, spec);
    memory::resources(found, &domain, &spec.domain);
    memory::hugepages(found, &domain, &spec.domain);
    memory::guest(found, &domain, &spec.domain);
    machine::check(found, &domain, spec, config);
    firmware::acpi(found, &domain, &spec.domain, &spec.volumes);
    cpu::resources(found, &domain, &spec.domain);
    cpu::check(found, field, &domain, spec, config);
    life_cycle::start_strategy(found, field, spec);
    cpu::realtime(found, &domain, &spec.domain);
    placement::check(found, field, spec);
    dra::check(found, field, &devices, spec, config);
    disks::with_volumes(found, &devices, spec, config);
    devices::inputs(found, &devices, spec);
    devices::io_threads(found, &domain, spec);
    life_cycle::probes(found, field, spec);
    if let Some(firmware) = &spec.domain.firmware {
        firmware::check(found, &domain.child("firmware"), firmware);
    }
    firmware::secure_boot(found, &domain, &spec.domain);
    if !spec.utility_volumes.is_empty() {
        let message = "utility volumes are plugged into a running guest only";
        found.refuse(Cause::Invalid, &field.child("utilityVolumes"), message);
    }
    access::check(found, field, spec);
    naming::dns(found, field, spec);
    life_cycle::eviction(found, field, spec, config);
    devices::gpus(found, &devices, spec);
    devices::host_devices(found, &devices, spec, config);
    grace::check(found, field, &domain, spec, config);
    devices::sound(found, &devices, spec);
    architecture::launch_security(found, field, &domain, spec, config);
    devices::gated(found, &devices, spec, config);
    devices::video(found, &devices, spec);
    devices::panic_devices(found, &devices, spec, config);
    life_cycle::reboot_policy(found, &domain, &spec.domain, config);
    memory::reserved_overhead(found, &domain, &spec.domain, config);
    naming::service_account(found, field, spec);
}

/// Removed features, requested by feature gate or by field.
fn discontinued(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let interfaces = &spec.domain.devices.interfaces;
    let uses = [
        ("Passt", interfaces.iter().any(|interface| interface.has_binding(Binding::OldPasst))),
        ("Macvtap", interfaces.iter().any(|interface| interface.has_binding(Binding::Macvtap))),
    ];
    for (gate, used) in uses {
        if used && config.requested_gates().iter().any(|requested| requested == gate) {
            let message = format!("the feature gate {gate} and its binding were discontinued");
            // The cause has no field: the feature gate was removed.
            found.refuse(Cause::NotSupported, &Path::new(""), message);
        }
    }
    let devices = field.child("domain.devices");
    network::discontinued(found, &devices, spec);
}

/// Rejects a field whose feature gate is disabled.
fn needs_gate(found: &mut Findings, field: &Path<'_>, gate: &str, config: &ClusterConfig) {
    if !config.feature_gate(gate) {
        found.refuse(Cause::Invalid, field, format!("the feature gate {gate} is not enabled in the cluster"));
    }
}

/// The architecture the guest will have.
fn architecture<'a>(spec: &'a VirtualMachineInstanceSpec, config: &'a ClusterConfig) -> &'a str {
    findings::given(&spec.architecture).unwrap_or_else(|| config.default_architecture())
}

/// An address of the form `domain:bus:slot.function`, in hexadecimal.
fn pci_address(found: &mut Findings, field: &Path<'_>, address: &str) {
    let hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = address.split(':').collect();
    let fine = match parts.as_slice() {
        [domain, bus, rest] => rest.split_once('.').is_some_and(|(slot, function)| {
            let function = matches!(function.as_bytes(), [b'0'..=b'7']);
            hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && function
        }),
        _ => false,
    };
    if !fine {
        found.invalid(field, address, "must be a PCI address such as 0000:81:01.0");
    }
}

/// An entry of a resource list, zero if it is missing.
fn amount(amounts: &BTreeMap<String, Wire>, name: &str) -> Quantity {
    amounts.get(name).map(parsed).unwrap_or_default()
}

/// Parses a quantity that the schema has validated.
fn parsed(quantity: &Wire) -> Quantity {
    Quantity::try_from(quantity).unwrap_or_default()
}

//! Passthrough of NVIDIA Grace GPUs, which works on one platform only.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, Path};
use machinery::meta::annotation;

use super::findings::{Findings, given};
use super::needs_gate;

const GATE: &str = "GraceIOVirtualization";
const NVIDIA: &str = "10de";
const GRACE_GPUS: [&str; 3] = ["2342", "2348", "2941"];

/// Annotations that would change the device layout these GPUs need, and why.
const LAYOUT: [(&str, &str); 2] = [
    ("kubevirt.io/placePCIDevicesOnRootComplex", "a Grace GPU cannot be on the PCI root complex"),
    ("kubevirt.io/disablePCIHole64", "a Grace GPU needs the 64-bit PCI hole"),
];

/// What a permitted selector of PCI devices means for these rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selects {
    Grace,
    /// Any device of the vendor, possibly a Grace GPU.
    Ambiguous,
    Other,
}

fn selects(selector: &str) -> Selects {
    let id = |text: &str| {
        let text = text.trim().to_ascii_lowercase();
        text.strip_prefix("0x").unwrap_or(&text).to_owned()
    };
    match selector.split_once(':').map(|(vendor, device)| (id(vendor), id(device))) {
        Some((vendor, device)) if vendor == NVIDIA && device == "*" => Selects::Ambiguous,
        Some((vendor, device)) if vendor == NVIDIA && GRACE_GPUS.contains(&device.as_str()) => Selects::Grace,
        _ => Selects::Other,
    }
}

/// The devices the guest requests by name: the list, the index in it, and the meaning of their selector.
fn requests<'a>(
    spec: &'a VirtualMachineInstanceSpec,
    config: &'a ClusterConfig,
) -> impl Iterator<Item = (&'static str, usize, Selects)> + 'a {
    let gpus = spec.domain.devices.gpus.iter().enumerate().map(|(index, gpu)| ("gpus", index, &gpu.device_name));
    let hosts = spec.domain.devices.host_devices.iter().enumerate();
    let hosts = hosts.map(|(index, host)| ("hostDevices", index, &host.device_name));
    gpus.chain(hosts).filter_map(|(list, index, name)| {
        let name = given(name)?;
        let permitted = config.permitted_pci_devices().iter().rfind(|device| device.resource_name == name)?;
        Some((list, index, selects(&permitted.pci_vendor_selector)))
    })
}

pub(super) fn check(
    found: &mut Findings,
    field: &Path<'_>,
    domain: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    if config.permitted_pci_devices().is_empty() {
        return;
    }
    let devices = domain.child("devices");
    let open = config.feature_gate(GATE);
    let mut grace = false;
    for (list, index, selects) in requests(spec, config) {
        let list = devices.child(list);
        let device = list.index(index);
        match selects {
            Selects::Ambiguous if open => {
                let message = "the permitted device has to be selected by vendor and product, not by vendor alone";
                found.refuse(Cause::Invalid, &device.child("deviceName"), message);
            }
            Selects::Grace if !open => needs_gate(found, &device.child("deviceName"), GATE, config),
            Selects::Grace => grace = true,
            _ => {}
        }
    }
    if grace {
        platform(found, field, domain, spec, config);
    }
}

fn platform(
    found: &mut Findings,
    field: &Path<'_>,
    domain: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let architecture = super::architecture(spec, config);
    if architecture != "arm64" {
        found.invalid(&field.child("architecture"), architecture, "a Grace GPU needs arm64");
    }
    let machine = spec.domain.machine.as_ref().and_then(|machine| given(&machine.type_));
    let machine = machine.unwrap_or_else(|| config.machine_type(architecture));
    if !machine.starts_with("virt") {
        found.invalid(&domain.child("machine.type"), machine, "a Grace GPU needs the machine type virt");
    }
    if spec.domain.cpu.as_ref().is_none_or(|cpu| cpu.dedicated_cpu_placement != Some(true)) {
        let message = "a Grace GPU needs dedicated CPUs";
        found.refuse(Cause::Invalid, &domain.child("cpu.dedicatedCpuPlacement"), message);
    }
    for gate in ["PCINUMAAwareTopology", "IOMMUFD"] {
        needs_gate(found, &domain.child("devices"), gate, config);
    }
}

/// Annotations of a VMI with such a device.
pub(super) fn annotations(
    found: &mut Findings,
    field: &Path<'_>,
    metadata: &ObjectMeta,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    if requests(spec, config).all(|(_, _, selects)| selects != Selects::Grace) {
        return;
    }
    let field = field.child("annotations");
    for (key, message) in LAYOUT {
        if annotation(metadata, key) == Some("true") {
            found.refuse(Cause::Invalid, &field.key(key), message);
        }
    }
}

//! Labels and annotations, and the devices that some annotations do not go with.

use api::config::ClusterConfig;
use api::v1::{PciHostDevice, PermittedHostDevices};
use serde_json::{Value, json};

use super::{both, causes, check, devices, domain, gate, row, spec};
use crate::{config, gated};

fn labels(key: &str) -> Value {
    json!({ "metadata": { "labels": { key: "x" } } })
}

fn annotation(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

#[test]
fn reserved_labels() {
    check(
        [
            "kubevirt.io/created-by",
            "kubevirt.io/migrationJobUID",
            "kubevirt.io/nodeName",
            "kubevirt.io/migrationTargetNodeName",
            "kubevirt.io/schedulable",
            "kubevirt.io/install-strategy",
        ]
        .map(|key| row(key, labels(key), "NotSupported metadata.labels", labels("kubevirt.io/domain"))),
    );
}

#[test]
fn annotations_behind_gates() {
    check([
        gate(
            "ExperimentalIgnitionSupport",
            annotation("kubevirt.io/ignitiondata", "{}"),
            "Invalid metadata.annotations",
        ),
        gate("Sidecar", annotation("hooks.kubevirt.io/hookSidecars", "[]"), "Invalid metadata.annotations"),
    ]);
}

/// A cluster that permits a PCI device of this selector.
fn permitting(selector: &str, mut config: ClusterConfig) -> ClusterConfig {
    let device = PciHostDevice {
        pci_vendor_selector: selector.to_owned(),
        resource_name: "nvidia.com/gpu".to_owned(),
        ..PciHostDevice::default()
    };
    let permitted = PermittedHostDevices { pci_host_devices: vec![device], ..PermittedHostDevices::default() };
    config.configuration.permitted_host_devices = Some(permitted);
    config
}

#[test]
fn grace_gpus() {
    let all = ["GraceIOVirtualization", "PCINUMAAwareTopology", "IOMMUFD"];
    let grace = permitting("10DE:2342", gated(&all));
    let gpu = devices(json!({ "gpus": [{ "name": "g", "deviceName": "nvidia.com/gpu" }] }));
    let fine = both(
        both(gpu.clone(), domain(json!({ "cpu": { "dedicatedCpuPlacement": true } }))),
        spec(json!({ "architecture": "arm64" })),
    );
    let with = |over: Value| both(fine.clone(), over);
    check([
        row(
            "arm64",
            with(spec(json!({ "architecture": "amd64", "domain": { "machine": { "type": "q35" } } }))),
            "Invalid spec.architecture",
            fine.clone(),
        )
        .of(&grace)
        .and("Invalid spec.domain.machine.type"),
        row(
            "dedicated CPUs",
            both(gpu, spec(json!({ "architecture": "arm64" }))),
            "Invalid spec.domain.cpu.dedicatedCpuPlacement",
            fine.clone(),
        )
        .of(&grace),
        row(
            "not on the root complex",
            with(annotation("kubevirt.io/placePCIDevicesOnRootComplex", "true")),
            "Invalid metadata.annotations[kubevirt.io/placePCIDevicesOnRootComplex]",
            with(annotation("kubevirt.io/placePCIDevicesOnRootComplex", "false")),
        )
        .of(&grace),
        row(
            "with the 64-bit hole",
            with(annotation("kubevirt.io/disablePCIHole64", "true")),
            "Invalid metadata.annotations[kubevirt.io/disablePCIHole64]",
            with(annotation("kubevirt.io/disablePCIHole64", "false")),
        )
        .of(&grace),
    ]);
    let refused = |selector: &str, gates: &[&str]| causes(&fine, &permitting(selector, gated(gates)));
    let device = ["Invalid spec.domain.devices.gpus[0].deviceName"];
    let devices = ["Invalid spec.domain.devices"];
    assert_eq!(refused("0x10de:0x2941", &all[1..]), device, "without its gate");
    assert_eq!(refused("10de:2348", &["GraceIOVirtualization", "IOMMUFD"]), devices, "without NUMA");
    assert_eq!(refused("10de:2348", &["GraceIOVirtualization", "PCINUMAAwareTopology"]), devices, "without IOMMUFD");
    assert_eq!(refused("10de:*", &all), device, "which device?");
    assert_eq!(refused("10de:*", &[]), Vec::<String>::new(), "any device, and no Grace about it");
    assert_eq!(refused("10de:2330", &[]), Vec::<String>::new(), "another GPU");
    assert_eq!(causes(&fine, &config()), Vec::<String>::new(), "nothing is permitted, and nothing is known");
    let host = |mut object: Value| {
        object["spec"]["domain"]["devices"] =
            json!({ "hostDevices": [{ "name": "h", "deviceName": "nvidia.com/gpu" }] });
        object
    };
    let closed = permitting("10de:2342", gated(&["HostDevices"]));
    assert_eq!(causes(&host(fine.clone()), &closed), ["Invalid spec.domain.devices.hostDevices[0].deviceName"]);
}

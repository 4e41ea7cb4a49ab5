//! Devices of nodes that the launcher opens or the guest gets, as extended resources.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::ResourceClaim;
use launcher_contract::devices::{TUN, VHOST_NET, VHOST_VSOCK, resource};

use crate::context::Context;
use crate::error::Error;
use crate::resources::is_networked;
use crate::traits::{self, interfaces};

/// Device nodes without which the launcher cannot run the guest.
pub(crate) fn virtualization(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<String> {
    let emulation = config.use_emulation();
    let virtio = interfaces(vmi).iter().any(|i| matches!(i.model.as_deref(), None | Some("" | "virtio")));
    let hypervisor = match config.hypervisor() {
        "hyperv-direct" => "mshv",
        name => name,
    };
    let needed = [
        (TUN.name, is_networked(vmi)),
        (VHOST_NET.name, virtio && !emulation),
        (hypervisor, !emulation),
        (VHOST_VSOCK.name, vmi.spec.domain.devices.autoattach_vsock == Some(true)),
    ];
    needed.into_iter().filter(|(_, needed)| *needed).map(|(device, _)| resource(device)).collect()
}

/// Resources for the guest, one entry per device.
pub(crate) fn plugins(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Vec<String> {
    let mut all = vec![];
    if !config.feature_gate("ExternalNetResourceInjection") {
        let networks = vmi.spec.networks.iter().filter(|network| network.source().multus().is_some());
        let resources = networks.filter_map(|network| ctx.network_resources.get(&network.name));
        all.extend(resources.filter(|resource| !resource.is_empty()).cloned());
    }
    let devices = requested(vmi).into_iter().filter(|device| device.claim.is_none());
    all.extend(devices.map(|device| device.resource.to_owned()).filter(|resource| !resource.is_empty()));
    let needed = [
        ("sev", traits::sev(vmi)),
        ("tdx", traits::tdx(vmi)),
        ("pr-helper", traits::has_reservation(vmi)),
        ("iommufd", config.feature_gate("IOMMUFD")),
    ];
    all.extend(needed.into_iter().filter(|(_, needed)| *needed).map(|(device, _)| resource(device)));
    all
}

/// A host device that the guest gets.
struct Requested<'a> {
    field: String,
    gate: &'static str,
    resource: &'a str,
    claim: Option<(&'a str, Option<&'a str>)>,
}

/// GPUs, then other devices.
fn requested(vmi: &VirtualMachineInstance) -> Vec<Requested<'_>> {
    let devices = &vmi.spec.domain.devices;
    let gpus = devices.gpus.iter().map(|gpu| (&gpu.device_name, &gpu.claim_name, &gpu.request_name));
    let others =
        devices.host_devices.iter().map(|device| (&device.device_name, &device.claim_name, &device.request_name));
    let lists =
        [("gpus", "GPUsWithDRA", gpus.collect::<Vec<_>>()), ("hostDevices", "HostDevicesWithDRA", others.collect())];
    let mut all = vec![];
    for (list, gate, entries) in lists {
        for (index, (device, claim, request)) in entries.into_iter().enumerate() {
            let claim = claim.as_deref().or(request.as_ref().map(|_| ""));
            all.push(Requested {
                field: format!("spec.domain.devices.{list}[{index}].deviceName"),
                gate,
                resource: device.as_deref().unwrap_or_default(),
                claim: claim.map(|claim| (claim, request.as_deref())),
            });
        }
    }
    all
}

/// Rejects devices that the cluster's administrator does not permit. Without a list nothing is checked.
pub(crate) fn check_permitted(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<(), Error> {
    let Some(permitted) = config.permitted_host_devices() else { return Ok(()) };
    let pci = permitted.pci_host_devices.iter().map(|device| device.resource_name.as_str());
    let mediated = permitted.mediated_devices.iter().map(|device| device.resource_name.as_str());
    let usb = permitted.usb.iter().map(|device| device.resource_name.as_str());
    let permitted: Vec<&str> = pci.chain(mediated).chain(usb).collect();
    for device in requested(vmi) {
        // Devices allocated by a resource claim are permitted by the claim's class.
        let claimed = device.claim.is_some() && config.feature_gate(device.gate);
        if !claimed && !permitted.contains(&device.resource) {
            return Err(Error::NotPermitted { field: device.field, resource: device.resource.to_owned() });
        }
    }
    Ok(())
}

/// Resource claims of dynamically allocated devices that the container uses.
pub(crate) fn claims(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<ResourceClaim> {
    let claim = |(name, request): (&str, Option<&str>)| ResourceClaim {
        name: name.to_owned(),
        request: request.filter(|request| !request.is_empty()).map(str::to_owned),
    };
    let devices =
        requested(vmi).into_iter().filter(|device| device.resource.is_empty() && config.feature_gate(device.gate));
    let mut all: Vec<ResourceClaim> = devices.filter_map(|device| device.claim.map(claim)).collect();
    if config.feature_gate("NetworkDevicesWithDRA") {
        let networks = vmi.spec.networks.iter().filter_map(|network| network.source().resource_claim());
        all.extend(
            networks.map(|source| {
                claim((source.claim_name.as_deref().unwrap_or_default(), source.request_name.as_deref()))
            }),
        );
    }
    all
}

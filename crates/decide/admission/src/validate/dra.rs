//! Devices allocated by resource claims of the Pod (DRA).

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::{NetworkSource, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::PodResourceClaim;
use machinery::field::{Cause, Path};
use machinery::names::{check_dns1123_label, check_dns1123_subdomain};

use super::findings::{Findings, given};
use super::needs_gate;

/// A device of the guest with its claim.
struct Device<'a> {
    name: &'a Option<String>,
    claim: &'a Option<String>,
    request: &'a Option<String>,
}

impl Device<'_> {
    fn is_named(&self) -> bool {
        given(self.name).is_some()
    }

    fn has_claim(&self) -> bool {
        self.claim.is_some() || self.request.is_some()
    }

    fn is_claimed(&self) -> bool {
        !self.is_named() && self.has_claim()
    }
}

/// The device that uses a claim's request first.
type Taken<'a> = BTreeMap<(&'a str, &'a str), (&'static str, usize)>;

pub(super) fn check(
    found: &mut Findings,
    field: &Path<'_>,
    devices: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let given_devices = &spec.domain.devices;
    if spec.resource_claims.is_empty() && given_devices.gpus.is_empty() && given_devices.host_devices.is_empty() {
        return;
    }
    let claims = field.child("resourceClaims");
    resource_claims(found, &claims, &spec.resource_claims);
    let mut taken = networks(spec);
    let gpus: Vec<Device<'_>> = given_devices
        .gpus
        .iter()
        .map(|gpu| Device { name: &gpu.device_name, claim: &gpu.claim_name, request: &gpu.request_name })
        .collect();
    let hosts: Vec<Device<'_>> = given_devices
        .host_devices
        .iter()
        .map(|host| Device { name: &host.device_name, claim: &host.claim_name, request: &host.request_name })
        .collect();
    let gpus_field = devices.child("gpus");
    let claimed = gpus.iter().filter(|gpu| gpu.is_claimed()).count();
    if claimed > 0 && claimed < gpus.len() {
        let message = "GPUs come either all from resource claims or all from device plugins";
        found.refuse(Cause::Invalid, &gpus_field, message);
    }
    let mut used = claimed_devices(found, &gpus_field, ("gpus", "GPUsWithDRA"), &gpus, &mut taken, config);
    let gate = ("hostDevices", "HostDevicesWithDRA");
    used.extend(claimed_devices(found, &devices.child("hostDevices"), gate, &hosts, &mut taken, config));
    let listed = |claim: &&str| spec.resource_claims.iter().any(|listed| listed.name == *claim);
    if let Some(missing) = used.iter().find(|claim| !listed(claim)) {
        found.refuse(Cause::Invalid, &claims, format!("a device uses the claim {missing:?}, which is not listed"));
    }
}

fn resource_claims(found: &mut Findings, field: &Path<'_>, claims: &[PodResourceClaim]) {
    for (index, claim) in claims.iter().enumerate() {
        let field = field.index(index);
        let at = field.child("name");
        if claim.name.is_empty() {
            found.required(&at, "the claim has to be named");
        } else {
            found.name(&at, &claim.name, &check_dns1123_label(&claim.name));
        }
        if claims[..index].iter().any(|other| other.name == claim.name) {
            found.duplicate(&at, &claim.name);
        }
        let sources = [
            ("resourceClaimName", given(&claim.resource_claim_name)),
            ("resourceClaimTemplateName", given(&claim.resource_claim_template_name)),
        ];
        if sources.iter().filter(|(_, source)| source.is_some()).count() != 1 {
            let detail = "exactly one of resourceClaimName and resourceClaimTemplateName has to be set";
            found.invalid(&field, claim.name.as_str(), detail);
        }
        for (name, source) in sources {
            if let Some(source) = source {
                found.name(&field.child(name), source, &check_dns1123_subdomain(source));
            }
        }
    }
}

/// Requests used by networks; their own rules detect duplicates among them.
fn networks(spec: &VirtualMachineInstanceSpec) -> Taken<'_> {
    let networks = spec.networks.iter().enumerate().filter_map(|(index, network)| {
        let claim = network.sources().find_map(NetworkSource::resource_claim)?;
        Some(((given(&claim.claim_name)?, given(&claim.request_name)?), ("networks", index)))
    });
    networks.collect()
}

/// Checks the devices of one list and returns the claims they use.
fn claimed_devices<'a>(
    found: &mut Findings,
    field: &Path<'_>,
    (list, gate): (&'static str, &str),
    devices: &[Device<'a>],
    taken: &mut Taken<'a>,
    config: &ClusterConfig,
) -> Vec<&'a str> {
    if devices.iter().any(|device| !device.is_named() && !device.has_claim()) {
        found.required(field, "each device needs a deviceName, or a claimName and a requestName");
    }
    if devices.iter().any(|device| device.is_named() && device.has_claim()) {
        found.refuse(Cause::Invalid, field, "deviceName excludes claimName and requestName");
    }
    if !devices.iter().any(Device::is_claimed) {
        return Vec::new();
    }
    if !config.feature_gate(gate) {
        needs_gate(found, field, gate, config);
        return Vec::new();
    }
    let mut used = Vec::new();
    for (index, device) in devices.iter().enumerate().filter(|(_, device)| device.is_claimed()) {
        let at = field.index(index);
        for (name, value) in [("claimName", device.claim), ("requestName", device.request)] {
            if given(value).is_none() {
                found.required(&at.child(name), "the device has to be named by claim and request");
            }
        }
        let (Some(claim), Some(request)) = (given(device.claim), given(device.request)) else { continue };
        used.push(claim);
        match taken.get(&(claim, request)) {
            Some((list, index)) => {
                found.duplicate(&at, &format!("{claim}/{request}, which {list}[{index}] has"));
            }
            None => {
                taken.insert((claim, request), (list, index));
            }
        }
    }
    used
}

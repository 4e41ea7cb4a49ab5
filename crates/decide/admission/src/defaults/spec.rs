//! Defaults of a VMI's spec, used for new VMIs and for validating templates.

use std::collections::{BTreeMap, BTreeSet};

use api::config::ClusterConfig;
use api::v1::{Binding, Devices, Disk, Interface, Network, ResourceRequirements, VirtualMachineInstanceSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

use super::{fill, platform};
use crate::Refusal;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// The CPU request in millicores that means "not configured".
const NO_CPU_REQUEST: i64 = 100;

/// The name of the default interface and network.
const DEFAULT_NETWORK: &str = "default";

/// Applies defaults to a spec, in an order in which later steps see the results of earlier ones.
pub(crate) fn spec(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) -> Result<(), Refusal> {
    platform(spec, config);
    cpu_request(spec, config);
    guest_memory(spec);
    topology(spec);
    pull_policies(spec);
    if spec.eviction_strategy.is_none() {
        spec.eviction_strategy = Some(config.eviction_strategy().to_owned());
    }
    network(spec, config)?;
    disks(spec);
    Ok(())
}

/// An entry of a resource list, if it is present and greater than zero.
fn some<'a>(amounts: &'a BTreeMap<String, Wire>, name: &str) -> Option<&'a Wire> {
    amounts.get(name).filter(|amount| Quantity::try_from(*amount).is_ok_and(|amount| !amount.is_zero()))
}

fn cpu_request(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let dedicated = spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
    let resources = spec.domain.resources.get_or_insert_default();
    if let Some(limit) = some(&resources.limits, CPU).filter(|_| some(&resources.requests, CPU).is_none()) {
        resources.requests.insert(CPU.to_owned(), limit.clone());
    }
    let configured = config.cpu_request();
    let unset = Quantity::try_from(&configured).is_ok_and(|amount| amount.milli_value() == NO_CPU_REQUEST);
    if !unset && !dedicated && !resources.requests.contains_key(CPU) {
        resources.requests.insert(CPU.to_owned(), configured);
    }
}

fn guest_memory(spec: &mut VirtualMachineInstanceSpec) {
    let resources = spec.domain.resources.as_ref();
    let memory = spec.domain.memory.get_or_insert_default();
    if memory.guest.is_some() {
        return;
    }
    let asked = resources.and_then(|r| some(&r.requests, MEMORY).or_else(|| some(&r.limits, MEMORY))).cloned();
    let page = || {
        let size = memory.hugepages.as_ref()?.page_size.as_deref()?;
        Some(size.parse::<Quantity>().ok()?.into())
    };
    memory.guest = asked.or_else(page);
}

/// A guest without a topology gets one socket per requested CPU.
fn topology(spec: &mut VirtualMachineInstanceSpec) {
    let sockets = sockets(spec.domain.resources.as_ref());
    let cpu = spec.domain.cpu.get_or_insert_default();
    let named = [cpu.sockets, cpu.cores, cpu.threads];
    if named.iter().all(|part| part.unwrap_or(0) == 0) {
        cpu.sockets = Some(sockets);
        cpu.cores = Some(1);
        cpu.threads = Some(1);
    }
}

fn sockets(resources: Option<&ResourceRequirements>) -> u32 {
    let asked = resources.and_then(|r| r.limits.get(CPU).or_else(|| r.requests.get(CPU)));
    let cpus = asked.and_then(|amount| Quantity::try_from(amount).ok()).map_or(1, Quantity::value);
    // The schema limits sockets to signed 32-bit numbers.
    i32::try_from(cpus.max(1)).unwrap_or(i32::MAX).unsigned_abs()
}

/// An image without a tag is always pulled, as Kubernetes does for containers. A registry's port counts as a tag here,
/// for compatibility.
fn pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec.volumes.iter_mut().filter_map(Volume::container_disk_mut) {
        let floating = disk.image.ends_with(":latest") || !disk.image.contains([':', '@']);
        fill(&mut disk.image_pull_policy, if floating { "Always" } else { "IfNotPresent" });
    }
}

fn network(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) -> Result<(), Refusal> {
    let Devices { interfaces, autoattach_pod_interface, .. } = &mut spec.domain.devices;
    if *autoattach_pod_interface == Some(false) || !interfaces.is_empty() || !spec.networks.is_empty() {
        return Ok(());
    }
    let mut interface = Interface { name: DEFAULT_NETWORK.to_owned(), ..Interface::default() };
    match config.default_network_interface() {
        "masquerade" => interface.bind(Binding::Masquerade),
        "slirp" => {
            let message = "the cluster's default binding, slirp, was discontinued: name an interface and a network";
            return Err(Refusal::BadRequest(message.to_owned()));
        }
        _ if !config.permit_bridge_on_pod_network() => {
            let message = "the cluster's default binding, bridge, is not permitted on the Pod network: \
                           name an interface and a network";
            return Err(Refusal::BadRequest(message.to_owned()));
        }
        _ => interface.bind(Binding::Bridge),
    }
    interfaces.push(interface);
    spec.networks.push(Network::of_pod(DEFAULT_NETWORK));
    Ok(())
}

/// A volume without a disk gets one. The kind of disk is left to the VMI's own defaults.
fn disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    let names = devices.disks.iter().map(|disk| &disk.name).chain(devices.filesystems.iter().map(|fs| &fs.name));
    let used: BTreeSet<&String> = names.collect();
    let unused = spec.volumes.iter().filter(|volume| !used.contains(&volume.name));
    let new: Vec<Disk> = unused.map(|volume| Disk { name: volume.name.clone(), ..Disk::default() }).collect();
    devices.disks.extend(new);
}

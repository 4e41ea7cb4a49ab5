//! Defaults of an instance's spec, shared by the instance's creation and the judgement of a template.

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{Devices, Disk, Empty, Interface, Network, PodNetwork, ResourceRequirements, VirtualMachineInstanceSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

use super::{fill, platform};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// The CPU request that stands for "none was configured".
const NO_CPU_REQUEST: &str = "100m";

/// The interface and network a guest gets that names none.
const DEFAULT_NETWORK: &str = "default";

/// Fills in a spec, in an order in which later steps see what earlier ones did.
pub(crate) fn spec(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    platform(spec, config);
    cpu_request(spec, config);
    guest_memory(spec);
    topology(spec);
    pull_policies(spec);
    fill(&mut spec.eviction_strategy, config.eviction_strategy());
    network(spec, config);
    disks(spec);
}

fn cpu_request(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let resources = spec.domain.resources.get_or_insert_default();
    if resources.requests.contains_key(CPU) {
        return;
    }
    let configured = config.cpu_request();
    if let Some(limit) = resources.limits.get(CPU).cloned() {
        resources.requests.insert(CPU.to_owned(), limit);
    } else if configured.0 != NO_CPU_REQUEST {
        resources.requests.insert(CPU.to_owned(), configured);
    }
}

fn guest_memory(spec: &mut VirtualMachineInstanceSpec) {
    let resources = spec.domain.resources.clone().unwrap_or_default();
    let asked = resources.requests.get(MEMORY).or_else(|| resources.limits.get(MEMORY));
    let memory = spec.domain.memory.get_or_insert_default();
    if memory.guest.is_none() {
        memory.guest = asked.cloned();
    }
}

/// A guest without a topology gets a socket for each CPU it asks the cluster for.
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
    let cpus = asked.and_then(|amount: &Wire| Quantity::try_from(amount).ok()).map_or(1, Quantity::value);
    u32::try_from(cpus.max(1)).unwrap_or(u32::MAX)
}

/// An image without a version is looked up each time, as Kubernetes does for containers. A registry's port counts as a
/// version here; it always has.
fn pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec.volumes.iter_mut().filter_map(|volume| volume.container_disk.as_mut()) {
        let floating = disk.image.ends_with(":latest") || !disk.image.contains([':', '@']);
        fill(&mut disk.image_pull_policy, if floating { "Always" } else { "IfNotPresent" });
    }
}

fn network(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let Devices { interfaces, autoattach_pod_interface, .. } = &mut spec.domain.devices;
    if *autoattach_pod_interface == Some(false) || !interfaces.is_empty() || !spec.networks.is_empty() {
        return;
    }
    let mut interface = Interface { name: DEFAULT_NETWORK.to_owned(), ..Interface::default() };
    match config.default_network_interface() {
        "masquerade" => interface.masquerade = Some(Empty {}),
        "slirp" => interface.slirp = Some(Empty {}),
        _ => interface.bridge = Some(Empty {}),
    }
    interfaces.push(interface);
    let pod = Some(PodNetwork::default());
    spec.networks.push(Network { name: DEFAULT_NETWORK.to_owned(), pod, ..Network::default() });
}

/// A volume that nothing uses becomes a disk. What kind of disk is for the instance's own defaults.
fn disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    let disks = devices.disks.iter().map(|disk| disk.name.clone());
    let mut used: BTreeSet<String> = disks.chain(devices.filesystems.iter().map(|fs| fs.name.clone())).collect();
    for volume in spec.volumes.iter().filter(|volume| volume.memory_dump.is_none()) {
        if used.insert(volume.name.clone()) {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
}

//! Headroom for live updates: the maximum CPUs and memory of a running guest.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

use crate::validate::maps_numa;

/// The number of CPUs that every machine type supports.
const MOST_CPUS: u64 = 512;

/// Memory is hot-plugged in blocks of a transparent huge page.
const BLOCK: i64 = 2 << 20;
/// Guests with huge pages of this size use blocks of the same size.
const LARGE_PAGE: (&str, i64) = ("1Gi", 1 << 30);
/// The minimum memory at start for memory hotplug.
const LEAST_GUEST: i64 = 1 << 30;

/// Adds headroom, if the cluster enables live updates.
pub(super) fn live_update(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if spec.architecture.as_deref() == Some("arm64") || !config.is_live_update() {
        return;
    }
    sockets(spec, config);
    memory(spec, config);
}

fn sockets(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let cpu = spec.domain.cpu.get_or_insert_default();
    if cpu.max_sockets.unwrap_or(0) != 0 {
        return;
    }
    let sockets = cpu.sockets.unwrap_or(0);
    let per_socket = u64::from(cpu.cores.unwrap_or(0)) * u64::from(cpu.threads.unwrap_or(0));
    let most = match config.max_cpu_sockets().unwrap_or(0) {
        0 => {
            let grown = u64::from(sockets) * u64::from(config.max_hotplug_ratio());
            let most = if grown.saturating_mul(per_socket) > MOST_CPUS { MOST_CPUS / per_socket } else { grown };
            i32::try_from(most).unwrap_or(i32::MAX).unsigned_abs().max(sockets)
        }
        configured => configured.max(sockets),
    };
    if most != 0 {
        cpu.max_sockets = Some(most);
    }
}

fn memory(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let memory = spec.domain.memory.get_or_insert_default();
    if memory.max_guest.is_some() {
        return;
    }
    let grown = |guest: &Wire| {
        let bytes = Quantity::try_from(guest).ok()?.value();
        Some(Quantity::bytes(bytes.saturating_mul(i64::from(config.max_hotplug_ratio()))).into())
    };
    let most = config.max_guest_memory().cloned().or_else(|| memory.guest.as_ref().and_then(grown));
    if memory_hotplug(spec, most.as_ref()).is_ok() {
        spec.domain.memory.get_or_insert_default().max_guest = most;
    }
}

/// Whether memory can be hot-plugged up to `most`, or why not.
pub fn memory_hotplug(spec: &VirtualMachineInstanceSpec, most: Option<&Wire>) -> Result<(), String> {
    let cpu = spec.domain.cpu.as_ref();
    let memory = spec.domain.memory.as_ref();
    let refuse = |why: &str| Err(format!("memory hot plug {why}"));
    if cpu.is_some_and(|cpu| cpu.realtime.is_some()) {
        return refuse("is not possible with real-time CPUs");
    }
    if cpu.is_some_and(maps_numa) {
        return refuse("is not possible with the node's NUMA topology passed through");
    }
    if spec.domain.launch_security.is_some() {
        return refuse("is not possible with an encrypted guest");
    }
    let page = memory.and_then(|memory| memory.hugepages.as_ref()?.page_size.as_deref());
    let (size, block) = if page == Some(LARGE_PAGE.0) { LARGE_PAGE } else { ("2Mi", BLOCK) };
    let read = |amount: Option<&Wire>| amount.and_then(|amount| Quantity::try_from(amount).ok());
    let Some(guest) = read(memory.and_then(|memory| memory.guest.as_ref())) else {
        return refuse("needs guest memory");
    };
    let Some(most) = read(most) else { return refuse("needs maxGuest") };
    if guest > most {
        return refuse("needs maxGuest to be at least the guest memory");
    }
    if guest.value() % block != 0 || most.value() % block != 0 {
        return refuse(&format!("needs guest memory and maxGuest to be multiples of {size}"));
    }
    if spec.architecture.as_deref() != Some("amd64") {
        return refuse("is possible on amd64 only");
    }
    if guest.value() < LEAST_GUEST {
        return refuse("needs at least 1Gi of guest memory");
    }
    Ok(())
}

//! Compute resources of the `compute` container.
//!
//! Starts from what the instance asks for and adds, in this order: scratch space, devices, a memory request, a CPU
//! request, the memory overhead, and limits where the namespace's quota demands them.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::amount::{bytes, listed, milli, parse};
use crate::overhead::{self, Facts};
use crate::{Context, Error};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Room for the launcher's logs and sockets on the node's disk, in bytes.
const SCRATCH_SPACE: i64 = 50_000_000;

const TUN: &str = "devices.kubevirt.io/tun";
const VHOST_NET: &str = "devices.kubevirt.io/vhost-net";
const KVM: &str = "devices.kubevirt.io/kvm";

type Amounts = BTreeMap<String, Wire>;

/// The container's resources, and the memory overhead that went into them.
pub(crate) struct Compute {
    pub(crate) requirements: ResourceRequirements,
    pub(crate) overhead: u64,
}

pub(crate) fn compute(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<Compute, Error> {
    let asked = vmi.spec.domain.resources.clone().unwrap_or_default();
    let (mut requests, mut limits) = (asked.requests.clone(), asked.limits.clone());
    let written_request = listed("requests", MEMORY, &requests)?.unwrap_or_default();
    let facts = Facts::of(vmi, written_request.value().max(0).unsigned_abs(), config.use_emulation());
    let overhead = overhead::memory_overhead(&facts, config.additional_guest_memory_overhead_ratio());
    scratch_space(&mut requests, &mut limits)?;
    devices(vmi, config, &mut requests, &mut limits);
    memory_request(vmi, config, &mut requests, &limits)?;
    cpu_request(vmi, config, ctx, &mut requests, &mut limits);
    if !asked.overcommit_guest_overhead.unwrap_or(false) {
        add("requests", MEMORY, &mut requests, bytes(overhead))?;
    }
    if limits.contains_key(MEMORY) {
        add("limits", MEMORY, &mut limits, bytes(overhead))?;
    }
    memory_limit(ctx, &requests, &mut limits)?;
    let requirements = ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None };
    Ok(Compute { requirements, overhead })
}

fn scratch_space(requests: &mut Amounts, limits: &mut Amounts) -> Result<(), Error> {
    let scratch = Quantity::new(SCRATCH_SPACE, Format::DecimalSi);
    add("requests", EPHEMERAL_STORAGE, requests, scratch)?;
    if limits.contains_key(EPHEMERAL_STORAGE) {
        add("limits", EPHEMERAL_STORAGE, limits, scratch)?;
    }
    Ok(())
}

/// Device nodes the launcher opens. Kubernetes would copy such limits into the requests; written out, the Pod says the
/// same everywhere.
fn devices(vmi: &VirtualMachineInstance, config: &ClusterConfig, requests: &mut Amounts, limits: &mut Amounts) {
    let devices = &vmi.spec.domain.devices;
    let networked = !devices.interfaces.is_empty() || devices.autoattach_pod_interface.unwrap_or(true);
    let virtio = devices.interfaces.iter().any(|i| matches!(i.model.as_deref(), None | Some("" | "virtio")));
    let needed = [(TUN, networked), (VHOST_NET, virtio && !config.use_emulation()), (KVM, !config.use_emulation())];
    for (device, _) in needed.into_iter().filter(|(_, needed)| *needed) {
        for amounts in [&mut *requests, &mut *limits] {
            amounts.insert(device.to_owned(), Wire("1".to_owned()));
        }
    }
}

fn memory_request(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    requests: &mut Amounts,
    limits: &Amounts,
) -> Result<(), Error> {
    if requests.contains_key(MEMORY) {
        return Ok(());
    }
    let request =
        match (listed("limits", MEMORY, limits)?, vmi.spec.domain.memory.as_ref().and_then(|m| m.guest.as_ref())) {
            (Some(limit), _) => limit.into(),
            (None, Some(guest)) => {
                let guest = parse("spec.domain.memory.guest", guest)?.value().max(0).unsigned_abs();
                let overcommit = u128::from(config.memory_overcommit().max(1).unsigned_abs());
                let request = u128::from(guest) * 100 / overcommit;
                bytes(u64::try_from(request).unwrap_or(u64::MAX)).into()
            }
            (None, None) => return Err(Error::Missing("spec.domain.memory.guest")),
        };
    requests.insert(MEMORY.to_owned(), request);
    Ok(())
}

/// A share of a CPU per virtual CPU, and the whole of them as a limit where the namespace demands limits.
fn cpu_request(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    requests: &mut Amounts,
    limits: &mut Amounts,
) {
    let vcpus = topology_vcpus(vmi).max(1);
    let ratio = config.cpu_allocation_ratio().max(1).unsigned_abs();
    requests.entry(CPU.to_owned()).or_insert_with(|| milli(vcpus.saturating_mul(1000) / ratio).into());
    if ctx.quota_limits_cpu {
        limits.entry(CPU.to_owned()).or_insert_with(|| milli(vcpus.saturating_mul(1000)).into());
    }
}

/// A namespace whose quota counts memory limits refuses Pods without one.
fn memory_limit(ctx: &Context, requests: &Amounts, limits: &mut Amounts) -> Result<(), Error> {
    if let Some(ratio) = ctx.quota_memory_limit_ratio
        && !limits.contains_key(MEMORY)
    {
        let request = listed("requests", MEMORY, requests)?.unwrap_or_default();
        limits.insert(MEMORY.to_owned(), bytes((request.value() as f64 * ratio) as u64).into());
    }
    Ok(())
}

fn add(list: &str, name: &str, amounts: &mut Amounts, more: Quantity) -> Result<(), Error> {
    let before = listed(list, name, amounts)?.unwrap_or_default();
    amounts.insert(name.to_owned(), (before + more).into());
    Ok(())
}

/// Virtual CPUs of the guest: its topology, else its CPU limit, else its CPU request; 0 if it has none of them.
pub(crate) fn vcpus(vmi: &VirtualMachineInstance) -> u64 {
    let by_topology = topology_vcpus(vmi);
    if by_topology > 0 {
        return by_topology;
    }
    let resources = vmi.spec.domain.resources.as_ref();
    let cpus = |amounts: &Amounts| amounts.get(CPU).and_then(|amount| parse(CPU, amount).ok());
    let cpus = resources.and_then(|r| cpus(&r.limits).or_else(|| cpus(&r.requests))).unwrap_or_default();
    cpus.value().max(0).unsigned_abs()
}

/// The product of what the topology names; 0 if it names nothing.
fn topology_vcpus(vmi: &VirtualMachineInstance) -> u64 {
    let Some(cpu) = &vmi.spec.domain.cpu else { return 0 };
    let named: Vec<u64> =
        [cpu.sockets, cpu.cores, cpu.threads].into_iter().flatten().filter(|&n| n > 0).map(u64::from).collect();
    if named.is_empty() { 0 } else { named.iter().copied().fold(1, u64::saturating_mul) }
}

//! Compute resources of the `compute` container.
//!
//! Starts from the VMI's own resources and adds, in this order: scratch space, devices, a memory request, CPUs, the
//! memory overhead, limits where the namespace's quota requires them, and devices of plugins. Values from the VMI are
//! changed only where a step says so; everything else is derived, and the VMI's values take precedence.

use std::collections::BTreeMap;

use api::annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY;
use api::config::ClusterConfig;
use api::labels::AUTO_MEMORY_LIMITS_RATIO;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::amount::{bytes, count, milli, parse, value};
use crate::context::Context;
use crate::devices;
use crate::error::Error;
use crate::overhead::{self, Facts};
use crate::traits::{self, annotation, hugepages, interfaces};

pub(crate) const CPU: &str = "cpu";
pub(crate) const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Room for the launcher's logs and sockets on the node's disk, in bytes.
const SCRATCH_SPACE: i64 = 50_000_000;
/// The ratio of memory limit to request where a quota requires a limit and the namespace specifies no other ratio.
const MEMORY_LIMIT_RATIO: f64 = 2.0;

type Amounts = BTreeMap<String, Wire>;

/// Requests or limits under construction.
pub(crate) struct List {
    field: &'static str,
    /// Values from the VMI, increased by what it does not account for.
    written: Amounts,
    /// Derived values.
    derived: Amounts,
}

impl List {
    fn new(field: &'static str, written: &Amounts) -> Self {
        List { field, written: written.clone(), derived: Amounts::new() }
    }

    fn written(&self, name: &str) -> Result<Option<Quantity>, Error> {
        self.parse(name, self.written.get(name))
    }

    fn parse(&self, name: &str, amount: Option<&Wire>) -> Result<Option<Quantity>, Error> {
        amount.map(|amount| parse(&format!("spec.domain.resources.{}.{name}", self.field), amount)).transpose()
    }

    /// Replaces the VMI's value.
    fn write(&mut self, name: &str, amount: Quantity) {
        self.written.insert(name.to_owned(), amount.into());
    }

    /// Increases the VMI's value, starting from zero if there is none.
    fn raise(&mut self, name: &str, more: Quantity) -> Result<(), Error> {
        let before = self.written(name)?;
        self.write(name, before.map_or(more, |before| before + more));
        Ok(())
    }

    /// Increases the VMI's value, if there is one.
    fn raise_written(&mut self, name: &str, more: Quantity) -> Result<(), Error> {
        if self.written.contains_key(name) { self.raise(name, more) } else { Ok(()) }
    }

    /// A value that applies if the VMI has none.
    fn derive(&mut self, name: &str, amount: Quantity) {
        self.derived.insert(name.to_owned(), amount.into());
    }

    /// Adds one device.
    fn one_more(&mut self, name: &str) -> Result<(), Error> {
        let before = self.parse(name, self.written.get(name).or_else(|| self.derived.get(name)))?;
        self.derive(name, before.unwrap_or(Quantity::ZERO) + count(1));
        Ok(())
    }

    fn finish(self) -> Option<Amounts> {
        let mut all = self.derived;
        all.extend(self.written);
        (!all.is_empty()).then_some(all)
    }
}

/// The container's resources, and the memory overhead included in them.
pub(crate) struct Compute {
    pub(crate) requirements: ResourceRequirements,
    pub(crate) overhead: u64,
}

pub(crate) fn compute(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<Compute, Error> {
    devices::check_permitted(vmi, config)?;
    let asked = vmi.spec.domain.resources.clone().unwrap_or_default();
    let (mut requests, mut limits) = (List::new("requests", &asked.requests), List::new("limits", &asked.limits));
    let overhead = overhead::memory_overhead(&Facts::of(vmi, config)?, config.additional_guest_memory_overhead_ratio());
    scratch_space(&mut requests, &mut limits)?;
    for device in devices::virtualization(vmi, config) {
        limits.write(&device, count(1));
    }
    memory_request(vmi, config, &mut requests, &limits)?;
    if traits::dedicated_cpus(vmi) {
        dedicated_cpus(vmi, &mut requests, &mut limits)?;
    } else {
        shared_cpus(vmi, config, ctx, &mut requests, &mut limits)?;
    }
    if hugepages(vmi).is_some() {
        huge_memory(vmi, overhead, &mut requests, &mut limits)?;
    } else {
        let request = if asked.overcommit_guest_overhead == Some(true) { 0 } else { overhead };
        requests.raise(MEMORY, bytes(request))?;
        limits.raise_written(MEMORY, bytes(overhead))?;
    }
    if ctx.quotas.limits_memory && !asked.limits.contains_key(MEMORY) {
        let request = value(requests.written(MEMORY)?.unwrap_or(Quantity::ZERO));
        limits.derive(MEMORY, bytes((request as f64 * memory_limit_ratio(ctx)) as u64));
    }
    for device in devices::plugins(vmi, config, ctx) {
        requests.one_more(&device)?;
        limits.one_more(&device)?;
    }
    let claims = crate::some(devices::claims(vmi, config));
    let requirements = ResourceRequirements { requests: requests.finish(), limits: limits.finish(), claims };
    Ok(Compute { requirements, overhead })
}

fn scratch_space(requests: &mut List, limits: &mut List) -> Result<(), Error> {
    let scratch = Quantity::new(SCRATCH_SPACE, Format::DecimalSi);
    requests.raise(EPHEMERAL_STORAGE, scratch)?;
    limits.raise_written(EPHEMERAL_STORAGE, scratch)
}

/// The guest's memory, or part of it if memory is overcommitted, unless the VMI has a request.
fn memory_request(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    requests: &mut List,
    limits: &List,
) -> Result<(), Error> {
    let asked = requests.written(MEMORY)?;
    if asked.is_some_and(|asked| !asked.is_zero()) {
        return Ok(());
    }
    if let Some(limit) = limits.written(MEMORY)?.filter(|limit| !limit.is_zero()) {
        requests.write(MEMORY, limit);
        return Ok(());
    }
    if asked.is_some() {
        return Ok(());
    }
    let memory = guest_memory(vmi)?.ok_or(Error::Missing("spec.domain.memory.guest"))?;
    let overcommit = u128::from(config.memory_overcommit().max(1).unsigned_abs());
    if overcommit == 100 {
        requests.write(MEMORY, memory);
        return Ok(());
    }
    let part = i64::try_from(u128::from(value(memory)) * 100 / overcommit).unwrap_or(i64::MAX);
    requests.write(MEMORY, Quantity::new(part, memory.format()));
    Ok(())
}

/// The guest's visible memory: one huge page if only their size is given.
fn guest_memory(vmi: &VirtualMachineInstance) -> Result<Option<Quantity>, Error> {
    let Some(memory) = &vmi.spec.domain.memory else { return Ok(None) };
    if let Some(guest) = &memory.guest {
        return parse("spec.domain.memory.guest", guest).map(Some);
    }
    let size = memory.hugepages.as_ref().and_then(|pages| pages.page_size.clone());
    size.map(|size| parse("spec.domain.memory.hugepages.pageSize", &Wire(size))).transpose()
}

/// I/O threads with CPUs of their own.
fn io_threads(vmi: &VirtualMachineInstance) -> u64 {
    let threads = vmi.spec.domain.io_threads.as_ref();
    threads.and_then(|threads| threads.supplemental_pool_thread_count).unwrap_or(0).into()
}

/// One CPU for each vCPU and for each thread that must not disturb them.
fn dedicated_cpus(vmi: &VirtualMachineInstance, requests: &mut List, limits: &mut List) -> Result<(), Error> {
    let (vcpus, io_threads) = (topology_vcpus(vmi), io_threads(vmi));
    if vcpus > 0 {
        let all = count(vcpus.saturating_add(io_threads));
        requests.write(CPU, all);
        limits.write(CPU, all);
    } else {
        requests.raise_written(CPU, count(io_threads))?;
        limits.raise_written(CPU, count(io_threads))?;
    }
    if vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true)) {
        let emulator = count(emulator_cpus(vmi, limits)?);
        limits.raise(CPU, emulator)?;
        requests.raise_written(CPU, emulator)?;
    }
    if let Some(memory) = requests.written(MEMORY)? {
        limits.write(MEMORY, memory);
    }
    Ok(())
}

/// CPUs for QEMU's emulator threads: one, or two if the total has to be made even.
fn emulator_cpus(vmi: &VirtualMachineInstance, limits: &List) -> Result<u64, Error> {
    let pool = vmi.spec.domain.io_threads_policy.as_deref() == Some("supplementalPool");
    let others = value(limits.written(CPU)?.unwrap_or(Quantity::ZERO)) + if pool { io_threads(vmi) } else { 0 };
    let even = annotation(vmi, EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY).is_some();
    Ok(if even && others.is_multiple_of(2) { 2 } else { 1 })
}

/// A fraction of a CPU per vCPU, and full CPUs as a limit where the namespace requires limits.
fn shared_cpus(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    requests: &mut List,
    limits: &mut List,
) -> Result<(), Error> {
    let vcpus = if vmi.spec.domain.cpu.is_some() { topology_vcpus(vmi) } else { 1 };
    let all = vcpus.saturating_add(io_threads(vmi));
    if all == 0 {
        return Ok(());
    }
    let ratio = config.cpu_allocation_ratio().max(1).unsigned_abs();
    requests.derive(CPU, milli(all.saturating_mul(1000).div_ceil(ratio)));
    if limits_cpu(config, ctx) && limits.written(CPU)?.is_none() {
        limits.derive(CPU, count(all));
    }
    Ok(())
}

/// Whether the namespace requires CPU limits, by quota or by the cluster configuration.
fn limits_cpu(config: &ClusterConfig, ctx: &Context) -> bool {
    let selector = config.configuration.auto_cpu_limit_namespace_label_selector.as_ref();
    let selected = selector.and_then(|selector| machinery::selector::Selector::from_label_selector(selector).ok());
    ctx.quotas.limits_cpu || selected.is_some_and(|selector| selector.matches(&ctx.namespace_labels))
}

/// The guest's memory uses huge pages; any request beyond it, and the overhead, use normal pages.
fn huge_memory(
    vmi: &VirtualMachineInstance,
    overhead: u64,
    requests: &mut List,
    limits: &mut List,
) -> Result<(), Error> {
    let Some(pages) = hugepages(vmi) else { return Ok(()) };
    let resource = format!("hugepages-{}", pages.page_size.as_deref().unwrap_or_default());
    let guest = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let guest = guest.map(|guest| parse("spec.domain.memory.guest", guest)).transpose()?;
    let request = requests.written(MEMORY)?.unwrap_or(Quantity::ZERO);
    let huge = guest.filter(|guest| request.value() > guest.value()).unwrap_or(request);
    requests.derive(&resource, huge);
    limits.derive(&resource, huge);
    let beyond = |amount: Quantity| guest.map_or(0, |guest| value(amount).saturating_sub(value(guest)));
    requests.write(MEMORY, bytes(beyond(request).saturating_add(overhead)));
    if let Some(limit) = limits.written(MEMORY)? {
        limits.write(MEMORY, bytes(beyond(limit).saturating_add(overhead)));
    }
    Ok(())
}

fn memory_limit_ratio(ctx: &Context) -> f64 {
    let written = ctx.namespace_labels.get(AUTO_MEMORY_LIMITS_RATIO).and_then(|ratio| ratio.parse::<f64>().ok());
    written.filter(|ratio| *ratio >= 1.0).unwrap_or(MEMORY_LIMIT_RATIO)
}

/// vCPUs of the guest: its topology, else its CPU limit, else its CPU request; 0 if it has none of them.
pub(crate) fn vcpus(vmi: &VirtualMachineInstance) -> u64 {
    if vmi.spec.domain.cpu.is_some() {
        return topology_vcpus(vmi);
    }
    let resources = vmi.spec.domain.resources.as_ref();
    let cpus = |amounts: &Amounts| amounts.get(CPU).and_then(|amount| parse(CPU, amount).ok());
    value(resources.and_then(|r| cpus(&r.limits).or_else(|| cpus(&r.requests))).unwrap_or(Quantity::ZERO))
}

/// The product of the specified topology; 0 if it is empty.
fn topology_vcpus(vmi: &VirtualMachineInstance) -> u64 {
    let Some(cpu) = &vmi.spec.domain.cpu else { return 0 };
    let named = [cpu.sockets, cpu.cores, cpu.threads].into_iter().flatten().filter(|&n| n > 0).map(u64::from);
    named.reduce(u64::saturating_mul).unwrap_or(0)
}

/// Whether the guest has a network interface, or gets one.
pub(crate) fn is_networked(vmi: &VirtualMachineInstance) -> bool {
    !interfaces(vmi).is_empty() || vmi.spec.domain.devices.autoattach_pod_interface != Some(false)
}

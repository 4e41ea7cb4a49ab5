//! Applies an instance type to a VMI.
//!
//! All fields are checked before any is changed: on a conflict the VMI is unchanged, and the caller gets every field to
//! clear at once.

use api::instancetype::{
    CPUInstancetype, MemoryInstancetype, VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec,
};
use api::v1::{DomainSpec, VirtualMachineInstanceSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::quantity::Quantity;

use crate::preference::apply_preference;
use crate::topology::topology;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Applies an instance type and then a preference to the spec at `field`. Returns the fields of the spec that conflict
/// with the instance type; if there are any, nothing was applied.
pub fn apply(
    field: &FieldPath,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
) -> Vec<FieldPath> {
    if let Some(instancetype) = instancetype {
        let conflicts = apply_instancetype(field, instancetype, preference, spec, metadata);
        if !conflicts.is_empty() {
            return conflicts;
        }
    }
    if let Some(preference) = preference {
        apply_preference(preference, spec, metadata);
    }
    Vec::new()
}

/// Applies an instance type to the spec at `field`. The preference only affects the topology.
pub fn apply_instancetype(
    field: &FieldPath,
    instancetype: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
) -> Vec<FieldPath> {
    let conflicts = conflicts(field, instancetype, spec, metadata);
    if conflicts.is_empty() {
        write(instancetype, preference, spec, metadata);
    }
    conflicts
}

/// The error for a field that both the instance type and the VM set.
pub fn conflict(field: FieldPath) -> FieldError {
    let message = format!("VM field(s) {field} conflicts with selected instance type");
    FieldError::new(Cause::Invalid, field, message)
}

/// The fields of the spec at `field` that are set, but would be set by the instance type.
pub fn conflicts(
    field: &FieldPath,
    instancetype: &VirtualMachineInstancetypeSpec,
    spec: &VirtualMachineInstanceSpec,
    metadata: &ObjectMeta,
) -> Vec<FieldPath> {
    let domain = field.child("domain");
    let devices = domain.child("devices");
    let mut found = Vec::new();
    let mut both = |instancetype: bool, spec: bool, field: FieldPath| {
        if instancetype && spec {
            found.push(field);
        }
    };
    both(!instancetype.node_selector.is_empty(), !spec.node_selector.is_empty(), field.child("nodeSelector"));
    both(is_set(&instancetype.scheduler_name), is_set(&spec.scheduler_name), field.child("schedulerName"));
    cpu_conflicts(&domain, &instancetype.cpu, &spec.domain).into_iter().for_each(|field| both(true, true, field));
    memory_conflict(&domain, &instancetype.memory, &spec.domain).into_iter().for_each(|field| both(true, true, field));
    let threads = |threads: &Option<api::v1::DiskIOThreads>| {
        threads.as_ref().is_some_and(|threads| threads.supplemental_pool_thread_count.is_some())
    };
    let pool = domain.child("ioThreads").child("supplementalPoolThreadCount");
    both(threads(&instancetype.io_threads), threads(&spec.domain.io_threads), pool);
    let policy = domain.child("ioThreadsPolicy");
    both(instancetype.io_threads_policy.is_some(), spec.domain.io_threads_policy.is_some(), policy);
    let security = domain.child("launchSecurity");
    both(instancetype.launch_security.is_some(), spec.domain.launch_security.is_some(), security);
    both(!instancetype.gpus.is_empty(), !spec.domain.devices.gpus.is_empty(), devices.child("gpus"));
    let host_devices = !spec.domain.devices.host_devices.is_empty();
    both(!instancetype.host_devices.is_empty(), host_devices, devices.child("hostDevices"));
    for (key, value) in &instancetype.annotations {
        // The metadata is not part of the spec, and KubeVirt names no field.
        let differs = metadata.annotations.as_ref().and_then(|set| set.get(key)).is_some_and(|set| set != value);
        both(true, differs, FieldPath::new("annotations").child(key));
    }
    found
}

/// The topology always comes from the instance type; other fields only if it sets them.
fn cpu_conflicts(domain: &FieldPath, instancetype: &CPUInstancetype, spec: &DomainSpec) -> Vec<FieldPath> {
    let field = domain.child("cpu");
    let resources = domain.child("resources");
    let asked = spec.resources.clone().unwrap_or_default();
    let cpu = spec.cpu.clone().unwrap_or_default();
    let part = |part: Option<u32>| part.unwrap_or_default() != 0;
    [
        (asked.requests.contains_key(CPU), resources.child("requests").child(CPU)),
        (asked.limits.contains_key(CPU), resources.child("limits").child(CPU)),
        (part(cpu.sockets), field.child("sockets")),
        (part(cpu.cores), field.child("cores")),
        (part(cpu.threads), field.child("threads")),
        (is_set(&cpu.model) && instancetype.model.is_some(), field.child("model")),
        // Spelled as in KubeVirt, which is not the name of the field.
        (
            cpu.dedicated_cpu_placement == Some(true) && instancetype.dedicated_cpu_placement.is_some(),
            field.child("dedicatedCPUPlacement"),
        ),
        (
            cpu.isolate_emulator_thread == Some(true) && instancetype.isolate_emulator_thread.is_some(),
            field.child("isolateEmulatorThread"),
        ),
        (cpu.numa.is_some() && instancetype.numa.is_some(), field.child("numa")),
        (cpu.realtime.is_some() && instancetype.realtime.is_some(), field.child("realtime")),
    ]
    .into_iter()
    .filter_map(|(conflict, field)| conflict.then_some(field))
    .collect()
}

/// The guest's memory, unless the instance type leaves it to the VM. The schema requires an amount; 0 means none.
fn guest_memory(instancetype: &MemoryInstancetype) -> Option<Quantity> {
    Quantity::try_from(&instancetype.guest).ok().filter(|guest| *guest > Quantity::ZERO)
}

/// The first conflicting field about memory.
fn memory_conflict(domain: &FieldPath, instancetype: &MemoryInstancetype, spec: &DomainSpec) -> Option<FieldPath> {
    let field = domain.child("memory");
    let resources = domain.child("resources");
    let asked = spec.resources.clone().unwrap_or_default();
    let memory = spec.memory.clone().unwrap_or_default();
    let sized = guest_memory(instancetype).is_some();
    [
        (sized && memory.guest.is_some(), field.child("guest")),
        (memory.hugepages.is_some() && instancetype.hugepages.is_some(), field.child("hugepages")),
        (memory.max_guest.is_some() && instancetype.max_guest.is_some(), field.child("maxGuest")),
        (sized && asked.requests.contains_key(MEMORY), resources.child("requests").child(MEMORY)),
        (sized && asked.limits.contains_key(MEMORY), resources.child("limits").child(MEMORY)),
    ]
    .into_iter()
    .find_map(|(conflict, field)| conflict.then_some(field))
}

fn write(
    instancetype: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
) {
    if !instancetype.node_selector.is_empty() {
        spec.node_selector = instancetype.node_selector.clone();
    }
    if is_set(&instancetype.scheduler_name) {
        spec.scheduler_name = instancetype.scheduler_name.clone();
    }
    write_cpu(&instancetype.cpu, preference, &mut spec.domain);
    write_memory(&instancetype.memory, &mut spec.domain);
    if let Some(count) = instancetype.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count) {
        spec.domain.io_threads.get_or_insert_default().supplemental_pool_thread_count = Some(count);
    }
    overwrite(&mut spec.domain.io_threads_policy, &instancetype.io_threads_policy);
    overwrite(&mut spec.domain.launch_security, &instancetype.launch_security);
    if !instancetype.gpus.is_empty() {
        spec.domain.devices.gpus = instancetype.gpus.clone();
    }
    if !instancetype.host_devices.is_empty() {
        spec.domain.devices.host_devices = instancetype.host_devices.clone();
    }
    if !instancetype.annotations.is_empty() {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.extend(instancetype.annotations.clone());
    }
}

fn write_cpu(
    instancetype: &CPUInstancetype,
    preference: Option<&VirtualMachinePreferenceSpec>,
    domain: &mut DomainSpec,
) {
    let cpu = domain.cpu.get_or_insert_default();
    overwrite(&mut cpu.model, &instancetype.model);
    overwrite(&mut cpu.dedicated_cpu_placement, &instancetype.dedicated_cpu_placement);
    overwrite(&mut cpu.isolate_emulator_thread, &instancetype.isolate_emulator_thread);
    overwrite(&mut cpu.numa, &instancetype.numa);
    overwrite(&mut cpu.realtime, &instancetype.realtime);
    // Unlike all other fields, never a conflict, as in KubeVirt.
    overwrite(&mut cpu.max_sockets, &instancetype.max_sockets);
    let topology = topology(instancetype.guest, preference);
    cpu.sockets = Some(topology.sockets);
    cpu.cores = Some(topology.cores);
    cpu.threads = Some(topology.threads);
}

fn write_memory(instancetype: &MemoryInstancetype, domain: &mut DomainSpec) {
    let guest = guest_memory(instancetype);
    let memory = domain.memory.get_or_insert_default();
    if guest.is_some() {
        memory.guest = Some(instancetype.guest.clone());
    }
    overwrite(&mut memory.hugepages, &instancetype.hugepages);
    overwrite(&mut memory.max_guest, &instancetype.max_guest);
    let percent = instancetype.overcommit_percent.unwrap_or_default();
    if let Some(guest) = guest.filter(|_| percent > 0) {
        let request = overcommitted(guest, percent);
        domain.resources.get_or_insert_default().requests.insert(MEMORY.to_owned(), request);
    }
}

/// A request lower than the guest's memory by a percentage. In single precision, like the requests of running guests:
/// in double precision the request of the same guest would differ by some bytes.
fn overcommitted(guest: Quantity, percent: i64) -> Wire {
    let share = 1.0 - percent as f32 / 100.0;
    let request = (guest.value() as f32 * share) as i64;
    Quantity::new(request, guest.format()).into()
}

fn is_set(text: &Option<String>) -> bool {
    text.as_deref().is_some_and(|text| !text.is_empty())
}

fn overwrite<T: Clone>(target: &mut Option<T>, value: &Option<T>) {
    if value.is_some() {
        target.clone_from(value);
    }
}

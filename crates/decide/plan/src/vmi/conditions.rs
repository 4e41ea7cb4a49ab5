//! The conditions that this controller maintains on a VMI.

use api::v1::{CPUTopology, Condition, ConditionStatus, VirtualMachineInstance};
use api::{conditions, labels, reasons};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

use super::volumes;
use super::world::World;
use crate::claims;
use crate::{SyncError, flight, pods};

/// Whether the guest can take traffic.
pub(super) fn ready(w: &World) -> Condition {
    let not = |reason, message: &str| {
        Condition::new(conditions::READY, ConditionStatus::False, reason, message, w.now.clone())
    };
    let Some(pod) = w.launcher_pod() else {
        let landing = flight::landing(&w.vmi, w.pods.iter().map(AsRef::as_ref)).filter(|_| w.vmi.is_running());
        return match landing {
            Some(_) => not(
                reasons::POD_NOT_EXISTS,
                "source Pod is gone; waiting for the target node to report whether the guest arrived",
            ),
            None => not(reasons::POD_NOT_EXISTS, "the instance has no launcher Pod"),
        };
    };
    if pods::is_down_or_going_down(pod) {
        return not(reasons::POD_TERMINATING, "the launcher Pod is ending or has ended");
    }
    if !w.vmi.is_running() {
        return not(reasons::GUEST_NOT_RUNNING, "the guest is not reported as running");
    }
    match pods::condition(pod, "Ready") {
        None => not(reasons::POD_CONDITION_MISSING, "the launcher Pod has no Ready condition"),
        Some(seen) => Condition {
            type_: conditions::READY.to_owned(),
            status: ConditionStatus::from(seen.status.as_str()),
            reason: seen.reason.clone(),
            message: seen.message.clone(),
            last_probe_time: seen.last_probe_time.clone(),
            last_transition_time: seen.last_transition_time.clone(),
        },
    }
}

/// The launcher Pod was asked to leave its node.
pub(super) fn eviction(w: &World, list: &mut Vec<Condition>) {
    let node = w.vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref()).unwrap_or_default();
    if node.is_empty() {
        conditions::remove(list, conditions::EVICTION_REQUESTED);
        return;
    }
    let message = "eviction of the launcher Pod was requested";
    let (type_, reason) = (conditions::EVICTION_REQUESTED, reasons::EVICTION_REQUESTED);
    conditions::set(list, Condition::new(type_, ConditionStatus::True, reason, message, w.now.clone()));
}

/// The readiness of the VMI's DataVolumes, if it has any.
pub(super) fn data_volumes(w: &World, list: &mut Vec<Condition>) {
    let all = volumes::data_volumes(w);
    if all.is_empty() {
        return;
    }
    let (status, waiting) = volumes::readiness(&all);
    let (reason, message) = match status {
        "True" => (reasons::ALL_DVS_READY, "all DataVolumes are ready".to_owned()),
        _ => (reasons::NOT_ALL_DVS_READY, waiting),
    };
    let type_ = conditions::DATA_VOLUMES_READY;
    conditions::set(list, Condition::new(type_, ConditionStatus::from(status), reason, message, w.now.clone()));
}

/// Some volumes are populated only once a Pod uses them, so a temporary Pod that does just that exists or will soon.
pub(super) fn provisioning(w: &World, list: &mut Vec<Condition>) {
    let all = volumes::data_volumes(w);
    if !volumes::waits_for_consumer(&all) {
        if w.current_pod().is_none() {
            conditions::remove(list, conditions::PROVISIONING);
        }
        return;
    }
    let (type_, reason) = (conditions::PROVISIONING, reasons::WAIT_FOR_FIRST_CONSUMER);
    let message = "volumes are populated once a Pod uses them; a temporary Pod triggers that";
    conditions::set(list, Condition::new(type_, ConditionStatus::True, reason, message, w.now.clone()));
    if let Some(pod) = w.current_pod() {
        scheduled(pod, list);
    }
}

/// Keeps the scheduler's latest message visible while no node fits.
pub(super) fn scheduled(pod: &Pod, list: &mut Vec<Condition>) {
    let unscheduled = pods::condition(pod, conditions::POD_SCHEDULED).filter(|c| c.status == "False");
    let Some(seen) = unscheduled else {
        conditions::remove(list, conditions::POD_SCHEDULED);
        return;
    };
    let copy = Condition {
        type_: conditions::POD_SCHEDULED.to_owned(),
        status: ConditionStatus::False,
        reason: seen.reason.clone(),
        message: seen.message.clone(),
        last_probe_time: None,
        last_transition_time: seen.last_transition_time.clone(),
    };
    // Unlike other conditions this one is also replaced if only the message changes: users need to know which nodes do
    // not fit, and why.
    if conditions::find(list, conditions::POD_SCHEDULED).is_some_and(|old| old.message != copy.message) {
        conditions::remove(list, conditions::POD_SCHEDULED);
    }
    conditions::set(list, copy);
}

/// A missing claim makes the Pod unschedulable; clients expect this condition to say so.
pub(super) fn missing_claim(w: &World, error: Option<&SyncError>, list: &mut Vec<Condition>) {
    let missing = error.filter(|error| error.reason == reasons::FAILED_PVC_NOT_FOUND);
    match missing {
        Some(error) => {
            let (type_, reason) = (conditions::POD_SCHEDULED, reasons::UNSCHEDULABLE);
            let condition = Condition::new(type_, ConditionStatus::False, reason, error.message.clone(), w.now.clone());
            conditions::set(list, condition);
        }
        // Without a Pod nothing else sets this condition.
        None if w.current_pod().is_none() => drop(conditions::remove(list, conditions::POD_SCHEDULED)),
        None => {}
    }
}

/// Changes made on the running VMI that reach the guest by migration.
pub(super) fn hotplug(w: &World, new: &mut VirtualMachineInstance) {
    let mut raise = |type_: &str, message: &str| {
        let list = &mut new.status_mut().conditions;
        if conditions::find(list, type_).is_none() {
            list.push(Condition::new(type_, ConditionStatus::True, "", message, w.now.clone()));
        }
    };
    if vcpus_changed(&w.vmi) {
        raise(conditions::HOT_VCPU_CHANGE, "the number of vCPUs was changed; the VMI migrates to apply the change");
    }
    if volumes_changed(&w.vmi) {
        raise(conditions::VOLUMES_CHANGE, "volumes were replaced; the VMI migrates to copy them");
    }
    if memory_changed(&w.vmi) {
        raise(conditions::HOT_MEMORY_CHANGE, "the guest's memory was changed; the VMI migrates to apply the change");
        if let Some(ratio) = &w.config.configuration.additional_guest_memory_overhead_ratio {
            let labels = new.metadata.labels.get_or_insert_default();
            labels.insert(labels::MEMORY_HOTPLUG_OVERHEAD_RATIO.to_owned(), ratio.clone());
        }
    }
}

fn vcpus_changed(vmi: &VirtualMachineInstance) -> bool {
    let count = |parts: [Option<u32>; 3]| -> u64 {
        let parts = parts.into_iter().flatten().filter(|part| *part > 0);
        parts.map(u64::from).reduce(u64::saturating_mul).unwrap_or(0)
    };
    let Some(cpu) = vmi.spec.domain.cpu.as_ref().filter(|cpu| cpu.max_sockets.unwrap_or(0) > 0) else { return false };
    let plugged = vmi.status.as_ref().and_then(|status| status.current_cpu_topology.as_ref());
    plugged.is_some_and(|CPUTopology { cores, sockets, threads }| {
        count([cpu.cores, cpu.sockets, cpu.threads]) != count([*cores, *sockets, *threads])
    })
}

fn memory_changed(vmi: &VirtualMachineInstance) -> bool {
    let bytes = |amount: &Wire| Quantity::try_from(amount).ok();
    let memory = vmi.spec.domain.memory.as_ref().filter(|memory| memory.max_guest.is_some());
    let wanted = memory.and_then(|memory| memory.guest.as_ref()).and_then(bytes);
    let status = vmi.status.as_ref().and_then(|status| status.memory.as_ref());
    let requested = status.and_then(|memory| memory.guest_requested.as_ref()).and_then(bytes);
    matches!((wanted, requested), (Some(wanted), Some(requested)) if wanted != requested)
}

fn volumes_changed(vmi: &VirtualMachineInstance) -> bool {
    let migrated = vmi.status.as_ref().map(|status| status.migrated_volumes.as_slice()).unwrap_or_default();
    let sources: Vec<&str> =
        migrated.iter().filter_map(|volume| volume.source_pvc_info.as_ref()?.claim_name.as_deref()).collect();
    let mut claims = vmi.spec.volumes.iter().filter_map(claims::claim_name);
    !migrated.is_empty() && claims.any(|claim| !sources.contains(&claim))
}

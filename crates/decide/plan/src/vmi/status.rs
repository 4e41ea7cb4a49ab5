//! What is written onto the instance, and how.

use api::v1::{
    Condition, ConditionStatus, VirtualMachineInstance, VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstancePhaseTransitionTimestamp as Transition, VolumeStatus,
};
use api::{annotations, conditions, finalizers, labels, reasons};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::Action;
use super::phase::{Move, next};
use super::world::{Owner, World};
use crate::guard::Guarded;
use crate::{Note, SyncError, meta, pods};

/// The name of a Pod's own interface inside the Pod.
const POD_INTERFACE: &str = "eth0";

/// Repairs an instance that came around admission: finalizer, phase, stamp.
pub(super) fn admit(w: &World) -> Action {
    let mut new = (*w.vmi).clone();
    meta::stamp(&mut new.metadata);
    replace_legacy_finalizer(&mut new);
    meta::add_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    enter(&mut new, Phase::Pending, &w.now);
    Action::UpdateVmi(Box::new(new))
}

/// The write that brings the instance's own record up to date, if it is not.
///
/// `attempts`: actions of the same pass may still fail, so a failure on record is not cleared yet.
pub(super) fn report(w: &World, error: Option<&SyncError>, attempts: bool) -> Vec<Action> {
    let mut new = (*w.vmi).clone();
    observe(w, &mut new);
    let mut error = error.cloned();
    let mut notes = vec![];
    let mut confirm = None;
    match next(w) {
        Move::Stay => {}
        Move::To(phase) => enter(&mut new, phase, &w.now),
        Move::HandOver => hand_over(w, &mut new),
        Move::Fail(note) => {
            enter(&mut new, Phase::Failed, &w.now);
            notes.push(note);
        }
        Move::FailIfPodGone(note) => {
            enter(&mut new, Phase::Failed, &w.now);
            notes.push(note);
            confirm = Some(w.node().map(str::to_owned));
        }
        Move::Release => confirm = release(w, &mut new).then_some(None),
        Move::Blocked(why) => error = Some(why),
        Move::Refused(why) => {
            notes.extend((!w.shows(&why)).then(|| Note::warning(&why.reason, why.message.clone())));
            error = Some(why);
        }
    }
    let mut then = write(w, new, error.as_ref(), attempts);
    if then.is_empty() {
        return then;
    }
    then.extend(notes.into_iter().map(Action::Note));
    match confirm {
        Some(node) => vec![Action::ConfirmNoPods { node, then }],
        None => then,
    }
}

/// What is true of an instance in any phase.
fn observe(w: &World, new: &mut VirtualMachineInstance) {
    replace_legacy_finalizer(new);
    let pod = w.current_pod();
    let ready = ready(w, pod);
    let status = new.status_mut();
    let node = |pod: &Pod| pods::node_name(pod).unwrap_or_default().to_owned();
    status.active_pods = w.pods.iter().map(|pod| (meta::uid(&pod.metadata).to_owned(), node(pod))).collect();
    conditions::set(&mut status.conditions, ready);
    if status.evacuation_node_name.as_deref().unwrap_or_default().is_empty() {
        conditions::remove(&mut status.conditions, conditions::EVICTION_REQUESTED);
    } else {
        let message = "the launcher Pod was asked to leave its node";
        let (type_, reason) = (conditions::EVICTION_REQUESTED, reasons::EVICTION_REQUESTED);
        let asked = Condition::new(type_, ConditionStatus::True, reason, message, w.now.clone());
        conditions::set(&mut status.conditions, asked);
    }
    if let Some(pod) = pod {
        observe_pod(w, pod, new);
    }
}

fn observe_pod(w: &World, pod: &Pod, new: &mut VirtualMachineInstance) {
    let image = pods::launcher_image(pod);
    let outdated = !image.is_empty() && image != w.config.launcher_image;
    let labels = new.metadata.labels.get_or_insert_default();
    if outdated {
        labels.insert(labels::OUTDATED_LAUNCHER_IMAGE.to_owned(), String::new());
    } else {
        labels.remove(labels::OUTDATED_LAUNCHER_IMAGE);
    }
    let status = new.status_mut();
    status.launcher_container_image_version = (!image.is_empty()).then(|| image.to_owned());
    if let Some(bytes) = meta::annotation(&pod.metadata, annotations::MEMORY_OVERHEAD_BYTES) {
        status.memory.get_or_insert_default().memory_overhead = Some(Quantity(bytes.to_owned()));
    }
    if w.vmi.phase() == Some(&Phase::Scheduling) {
        status.qos_class = pods::qos_class(pod).map(str::to_owned);
        copy_scheduled(pod, &mut status.conditions);
    }
}

/// Keeps the scheduler's latest words visible while no node fits.
fn copy_scheduled(pod: &Pod, list: &mut Vec<Condition>) {
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
    // Unlike other conditions this one is replaced for a new message too: which nodes do not fit, and why, is what the
    // user waits for.
    if conditions::find(list, conditions::POD_SCHEDULED).is_some_and(|old| old.message != copy.message) {
        conditions::remove(list, conditions::POD_SCHEDULED);
    }
    conditions::set(list, copy);
}

fn ready(w: &World, pod: Option<&Pod>) -> Condition {
    let not = |reason, message: &str| {
        Condition::new(conditions::READY, ConditionStatus::False, reason, message, w.now.clone())
    };
    let Some(pod) = pod else { return not(reasons::POD_NOT_EXISTS, "the instance has no launcher Pod") };
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

/// Enters a phase; the time of the first entry is kept.
fn enter(vmi: &mut VirtualMachineInstance, phase: Phase, now: &Time) {
    let status = vmi.status_mut();
    let transitions = &mut status.phase_transition_timestamps;
    if !transitions.iter().any(|t| t.phase.as_ref() == Some(&phase)) {
        transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(now.clone()) });
    }
    status.phase = Some(phase);
}

/// Everything the node agent needs to find its instance and start, in one write.
fn hand_over(w: &World, new: &mut VirtualMachineInstance) {
    let Some(pod) = w.current_pod() else { return };
    let Some(node) = pods::node_name(pod) else { return };
    enter(new, Phase::Scheduled, &w.now);
    new.metadata.labels.get_or_insert_default().insert(labels::NODE_NAME.to_owned(), node.to_owned());
    let mut names: Vec<String> = new.spec.volumes.iter().map(|volume| volume.name.clone()).collect();
    names.sort();
    let pod_networks: Vec<String> =
        new.spec.networks.iter().filter(|network| network.pod.is_some()).map(|network| network.name.clone()).collect();
    let status = new.status_mut();
    status.node_name = Some(node.to_owned());
    status.volume_status = names.into_iter().map(|name| VolumeStatus { name, ..VolumeStatus::default() }).collect();
    for name in pod_networks {
        if !status.interfaces.iter().any(|interface| interface.name.as_deref() == Some(&name)) {
            status.interfaces.push(VirtualMachineInstanceNetworkInterface {
                name: Some(name),
                pod_interface_name: Some(POD_INTERFACE.to_owned()),
                ..VirtualMachineInstanceNetworkInterface::default()
            });
        }
    }
    if meta::annotation(&pod.metadata, annotations::MIGRATION_TRANSPORT_UNIX).is_some() {
        status.migration_transport = Some("Unix".to_owned());
    }
}

/// Lets the object go. Says whether that needs a live look at the Pods first.
fn release(w: &World, new: &mut VirtualMachineInstance) -> bool {
    let held = meta::has_finalizer(&new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    meta::remove_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    if w.owner == Owner::Gone {
        meta::remove_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    }
    if let Some(labels) = &mut new.metadata.labels {
        labels.remove(labels::OUTDATED_LAUNCHER_IMAGE);
    }
    new.status_mut().launcher_container_image_version = None;
    held
}

fn replace_legacy_finalizer(vmi: &mut VirtualMachineInstance) {
    if meta::has_finalizer(&vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE_LEGACY) {
        meta::remove_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE_LEGACY);
        meta::add_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    }
}

/// Picks the style of the write by who owned the instance before this pass.
fn write(w: &World, new: VirtualMachineInstance, error: Option<&SyncError>, attempts: bool) -> Vec<Action> {
    match w.vmi.phase() {
        Some(Phase::Scheduled | Phase::Running) => patch(&w.vmi, &new).map(Action::PatchVmi).into_iter().collect(),
        _ => update(w, new, error, attempts).into_iter().collect(),
    }
}

/// The fields that stay ours while the node agent owns the instance.
fn patch(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Option<json_patch::Patch> {
    let (before, after) = (old.status.clone().unwrap_or_default(), new.status.clone().unwrap_or_default());
    let image = "launcherContainerImageVersion";
    Guarded::new(&old.metadata)
        .whole(&["status", "conditions"], &before.conditions, &after.conditions)
        .field(&["status", "activePods"], &before.active_pods, &after.active_pods)
        .field(&["status", "phase"], &before.phase, &after.phase)
        .field(&["status", image], &before.launcher_container_image_version, &after.launcher_container_image_version)
        .labels(&new.metadata)
        .finalizers(&new.metadata)
        .build()
}

fn update(w: &World, mut new: VirtualMachineInstance, error: Option<&SyncError>, attempts: bool) -> Option<Action> {
    meta::stamp(&mut new.metadata);
    let list = &mut new.status_mut().conditions;
    match error {
        // The condition explains the end, in the words of whoever wrote the phase. What fails afterwards is an event.
        _ if w.vmi.is_final() => {}
        Some(error) => {
            let (type_, message) = (conditions::SYNCHRONIZED, error.message.clone());
            let failed = Condition::new(type_, ConditionStatus::False, &error.reason, message, w.now.clone());
            conditions::set(list, failed);
        }
        None if !attempts => drop(conditions::remove(list, conditions::SYNCHRONIZED)),
        None => {}
    }
    let labels = |vmi: &VirtualMachineInstance| vmi.metadata.labels.clone().unwrap_or_default();
    let same = labels(&new) == labels(&w.vmi)
        && new.metadata.annotations == w.vmi.metadata.annotations
        && new.metadata.finalizers == w.vmi.metadata.finalizers
        && new.status == w.vmi.status;
    (!same).then(|| Action::UpdateVmi(Box::new(new)))
}

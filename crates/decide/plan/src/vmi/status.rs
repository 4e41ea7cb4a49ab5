//! What is written to the VMI, and how.

use std::collections::BTreeMap;

use api::v1::VirtualMachineInstanceMigrationState as State;
use api::v1::{
    Condition, ConditionStatus, VirtualMachineInstance, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition, VirtualMachineInstanceStatus, VolumeStatus,
};
use api::{annotations, conditions, finalizers, labels};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::names::NodeName;

use super::action::{Action, Look, Sort};
use super::phase::{Move, next, unseen_arbiter};
use super::world::{Owner, World};
use super::{backend, conditions as kept, follow, network, topology, volume_status};
use crate::effect::Why;
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{Note, SyncError, meta, pods};

/// Repairs a VMI that bypassed admission: finalizer, phase, API version annotations.
pub(super) fn admit(w: &World) -> Action {
    let mut new = (*w.vmi).clone();
    meta::stamp(&mut new.metadata);
    replace_legacy_finalizer(&mut new);
    meta::add_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    enter(&mut new, Phase::Pending, &w.now);
    Action::Replace(new.into())
}

/// The result of one pass.
struct Report {
    new: VirtualMachineInstance,
    error: Option<SyncError>,
    notes: Vec<Note>,
    /// The write happens only if live reads confirm all of these.
    confirm: Vec<Look>,
    /// A requeue, whether or not anything is written.
    again: Option<Action>,
}

/// The writes that update the VMI's status, if it has changed, and its Pod's metadata.
///
/// They come last: an earlier failure is cleared once everything before them has succeeded.
pub(super) fn report(w: &World, error: Option<&SyncError>) -> Vec<Action> {
    let mut report =
        Report { new: (*w.vmi).clone(), error: error.cloned(), notes: vec![], confirm: vec![], again: None };
    observe(w, &mut report.new);
    advance(w, next(w), &mut report);
    let Report { new, error, notes, confirm, again } = report;
    let pod = mark_pod(w, &new);
    let write = write(w, new, error.as_ref());
    let mut then: Vec<Action> = write.into_iter().collect();
    if !then.is_empty() {
        then.extend(notes.into_iter().map(Action::Note));
    }
    if !then.is_empty() {
        then = confirm.into_iter().rev().fold(then, |then, look| vec![Action::confirm(look, then)]);
    }
    pod.into_iter().chain(then).chain(again).collect()
}

/// Updates the launcher Pod's labels and annotations to match the VMI as it is about to be written.
fn mark_pod(w: &World, new: &VirtualMachineInstance) -> Option<Action> {
    if w.failed.is_some() || w.vmi.is_marked_for_deletion() || w.vmi.is_final() {
        return None;
    }
    let pod = w.launcher_pod().filter(|pod| !pods::is_down_or_going_down(pod))?;
    follow::metadata(w, pod, new.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

/// Makes the transition, with everything that belongs to it.
fn advance(w: &World, to: Move, report: &mut Report) {
    match to {
        Move::Stay => dwell(w, report),
        Move::To(phase) => {
            pending(w, &phase, report);
            enter(&mut report.new, phase, &w.now);
        }
        Move::HandOver => hand_over(w, report),
        Move::Fail(note) => {
            enter(&mut report.new, Phase::Failed, &w.now);
            report.notes.push(note);
        }
        Move::FailIfPodGone(note) => {
            enter(&mut report.new, Phase::Failed, &w.now);
            // A Pod that is gone no longer waits for a node.
            conditions::remove(&mut report.new.status_mut().conditions, conditions::POD_SCHEDULED);
            report.notes.push(note);
            report.confirm.push(no_launchers(w));
        }
        Move::WaitAgain => wait_again(w, &mut report.new),
        Move::WaitAgainIfPodGone => {
            wait_again(w, &mut report.new);
            report.confirm.push(no_launchers(w));
        }
        Move::Release => report.confirm = release(w, &mut report.new),
        Move::Blocked(why) => report.error = Some(why),
        Move::Refused(why) => {
            report.notes.extend((!w.shows(&why)).then(|| Note::warning(&why.reason, why.message.clone())));
            report.error = Some(why);
        }
    }
}

/// The status common to all phases.
fn observe(w: &World, new: &mut VirtualMachineInstance) {
    replace_legacy_finalizer(new);
    let status = new.status_mut();
    let node = |pod: &Pod| pods::node_name(pod).unwrap_or_default().to_owned();
    status.active_pods = w.pods.iter().map(|pod| (meta::uid(&pod.metadata).to_owned(), node(pod))).collect();
    conditions::set(&mut status.conditions, kept::ready(w));
    kept::eviction(w, &mut status.conditions);
    kept::data_volumes(w, &mut status.conditions);
    backend::record(w, &mut status.volume_status);
    match w.launcher_pod() {
        Some(pod) => observe_pod(w, pod, new),
        // The Pod of a finished attempt no longer waits for a node.
        None if w.vmi.phase() == Some(&Phase::WaitingForSync) => {
            conditions::remove(&mut new.status_mut().conditions, conditions::POD_SCHEDULED);
        }
        None => {}
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
    // Everything known from the Pod goes into the write that makes the VMI Scheduling, which saves a second one.
    if !matches!(w.vmi.phase(), Some(Phase::Scheduled | Phase::Running | Phase::Succeeded | Phase::Failed)) {
        conditions::remove(&mut status.conditions, conditions::PROVISIONING);
        status.qos_class = pods::qos_class(pod).map(str::to_owned);
        kept::scheduled(pod, &mut status.conditions);
    }
}

/// What a VMI without a launcher Pod waits for.
fn pending(w: &World, to: &Phase, report: &mut Report) {
    if !matches!(to, Phase::Pending | Phase::WaitingForSync) {
        return;
    }
    let list = &mut report.new.status_mut().conditions;
    kept::provisioning(w, list);
    kept::missing_claim(w, report.error.as_ref(), list);
    if let Some((error, note)) = topology::add_hints(w, &mut report.new)
        && report.error.is_none()
    {
        report.notes.extend((!w.shows(&error)).then_some(note));
        report.error = Some(error);
    }
}

/// The status maintained while virt-handler owns the VMI.
fn dwell(w: &World, report: &mut Report) {
    let Some(pod) = w.launcher_pod() else { return };
    let node_owned = matches!(w.vmi.phase(), Some(Phase::Scheduled | Phase::Running));
    if !node_owned {
        return;
    }
    observe_volumes(w, pod, report);
    if w.vmi.is_running() {
        report.new.status_mut().interfaces = network::interfaces(&w.vmi, pod);
        kept::hotplug(w, &mut report.new);
        report.again = network::migration_required(w, pod, &mut report.new.status_mut().conditions);
    }
}

fn observe_volumes(w: &World, pod: &Pod, report: &mut Report) {
    let (volumes, notes) = volume_status::compute(w, pod);
    report.new.status_mut().volume_status = volumes;
    report.notes.extend(notes);
}

/// Enters a phase; the timestamp of the first entry is kept.
fn enter(vmi: &mut VirtualMachineInstance, phase: Phase, now: &Time) {
    let status = vmi.status_mut();
    let transitions = &mut status.phase_transition_timestamps;
    if !transitions.iter().any(|t| t.phase.as_ref() == Some(&phase)) {
        transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(now.clone()) });
    }
    status.phase = Some(phase);
}

/// Everything virt-handler needs to find the VMI and start, in one write.
fn hand_over(w: &World, report: &mut Report) {
    let Some(pod) = w.launcher_pod() else { return };
    let Some(node) = pods::node_name(pod) else { return };
    observe_volumes(w, pod, report);
    let new = &mut report.new;
    enter(new, Phase::Scheduled, &w.now);
    new.metadata.labels.get_or_insert_default().insert(labels::NODE_NAME.to_owned(), node.to_owned());
    let wants_socket = new.spec.domain.devices.autoattach_vsock == Some(true);
    let status = new.status_mut();
    status.node_name = Some(node.to_owned());
    status.interfaces = network::interfaces(&w.vmi, pod);
    if meta::annotation(&pod.metadata, annotations::MIGRATION_TRANSPORT_UNIX).is_some() {
        status.migration_transport = Some("Unix".to_owned());
    }
    if wants_socket && status.vsock_cid.is_none() {
        status.vsock_cid = w.vsock_cid;
    }
}

/// This attempt to receive a guest is over; another may follow.
fn wait_again(w: &World, new: &mut VirtualMachineInstance) {
    let was_scheduled = w.vmi.is_scheduled();
    enter(new, Phase::WaitingForSync, &w.now);
    // Before its hand-off a migration has only shown itself: the Pod that ended may belong to an earlier one.
    let over = |state: &&mut State| was_scheduled && state.migration_uid.is_some();
    if let Some(state) = new.status_mut().migration_state.as_mut().filter(over) {
        state.fail();
        state.end_timestamp.get_or_insert_with(|| w.now.clone());
    }
}

fn no_launchers(w: &World) -> Look {
    Look::NoPods(Sort::Launchers { node: w.node().map(NodeName::new) })
}

/// Releases the object. Returns what live reads must confirm first.
fn release(w: &World, new: &mut VirtualMachineInstance) -> Vec<Look> {
    let mut confirm = vec![];
    if meta::has_finalizer(&new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE) {
        meta::remove_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
        confirm.push(Look::NoPods(Sort::All));
        confirm.extend(unseen_arbiter(w).map(|uid| Look::NoMigration { uid: uid.to_owned() }));
    }
    // An orphan keeps the finalizer of the VM that released it.
    if w.owner != Owner::Alive && meta::has_finalizer(&new.metadata, finalizers::VIRTUAL_MACHINE_CONTROLLER) {
        meta::remove_finalizer(&mut new.metadata, finalizers::VIRTUAL_MACHINE_CONTROLLER);
        // The VM may only be missing from the cache, and must see how the VMI ended.
        confirm.extend((w.owner == Owner::Gone).then_some(Look::NoOwner));
    }
    if let Some(labels) = &mut new.metadata.labels {
        labels.remove(labels::OUTDATED_LAUNCHER_IMAGE);
    }
    new.status_mut().launcher_container_image_version = None;
    confirm
}

fn replace_legacy_finalizer(vmi: &mut VirtualMachineInstance) {
    if meta::has_finalizer(&vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE_LEGACY) {
        meta::remove_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE_LEGACY);
        meta::add_finalizer(&mut vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE);
    }
}

/// Chooses the kind of write by who owned the VMI before this pass.
fn write(w: &World, new: VirtualMachineInstance, error: Option<&SyncError>) -> Option<Action> {
    match w.vmi.phase() {
        Some(Phase::Scheduled | Phase::Running) => {
            let name = meta::name(&w.vmi.metadata);
            patch(&w.vmi, &new).map(|patch| Action::patch(Kind::Vmi, name, patch, Why::default()))
        }
        _ => update(w, new, error),
    }
}

/// The fields that this controller may write while virt-handler owns the VMI.
fn patch(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Option<json_patch::Patch> {
    let none = VirtualMachineInstanceStatus::default();
    let (before, after) = (old.status.as_ref().unwrap_or(&none), new.status.as_ref().unwrap_or(&none));
    let image = "launcherContainerImageVersion";
    let volumes = if same_volumes(before, after) { &before.volume_status } else { &after.volume_status };
    let same_interfaces = network::same(&before.interfaces, &after.interfaces);
    let interfaces = if same_interfaces { &before.interfaces } else { &after.interfaces };
    Guarded::new(&old.metadata)
        .whole(&["status", "conditions"], &before.conditions, &after.conditions)
        .whole(&["status", "volumeStatus"], &before.volume_status, volumes)
        .whole(&["status", "interfaces"], &before.interfaces, interfaces)
        .whole(&["status", "migrationState"], &before.migration_state, &after.migration_state)
        .field(&["status", "activePods"], &before.active_pods, &after.active_pods)
        .field(&["status", "phase"], &before.phase, &after.phase)
        .field(&["status", image], &before.launcher_container_image_version, &after.launcher_container_image_version)
        .labels(&new.metadata)
        .finalizers(&new.metadata)
        .build()
}

/// virt-handler may have written them in another order.
fn same_volumes(before: &VirtualMachineInstanceStatus, after: &VirtualMachineInstanceStatus) -> bool {
    let sorted = |status: &VirtualMachineInstanceStatus| -> Vec<VolumeStatus> {
        let mut list = status.volume_status.clone();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    };
    before.volume_status == after.volume_status || sorted(before) == sorted(after)
}

fn update(w: &World, mut new: VirtualMachineInstance, error: Option<&SyncError>) -> Option<Action> {
    meta::stamp(&mut new.metadata);
    let list = &mut new.status_mut().conditions;
    match error {
        // The condition explains the end as reported by the writer of the phase. Later failures are only events.
        _ if w.vmi.is_final() => {}
        Some(error) => {
            let (type_, message) = (conditions::SYNCHRONIZED, error.message.clone());
            let failed = Condition::new(type_, ConditionStatus::False, &error.reason, message, w.now.clone());
            conditions::set(list, failed);
        }
        None => drop(conditions::remove(list, conditions::SYNCHRONIZED)),
    }
    if is_same(&w.vmi, &new) || only_a_node_was_found(&w.vmi, &new) {
        return None;
    }
    Some(Action::Replace(new.into()))
}

fn is_same(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> bool {
    let labels = |vmi: &VirtualMachineInstance| vmi.metadata.labels.clone().unwrap_or_default();
    labels(new) == labels(old)
        && new.metadata.annotations == old.metadata.annotations
        && new.metadata.finalizers == old.metadata.finalizers
        && new.status == old.status
}

/// Only the nodes of known Pods have changed: they are not used before the hand-over, which reports them as well.
fn only_a_node_was_found(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> bool {
    let (Some(before), Some(after)) = (&old.status, &new.status) else { return false };
    if old.phase() != Some(&Phase::Scheduling) || !before.active_pods.keys().eq(after.active_pods.keys()) {
        return false;
    }
    let mut as_before = new.clone();
    as_before.status_mut().active_pods = before.active_pods.clone();
    is_same(old, &as_before)
}

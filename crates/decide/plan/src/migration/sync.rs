//! Advances a migration: the effects of each phase, and what it waits for.

use std::time::Duration;

use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use api::{events, reasons};
use k8s_openapi::api::core::v1::Pod;
use machinery::names::NodeName;

use super::action::{Action, Look, Own, SHORTLY, delete_pod, note_vmi, patch_pod, patch_vmi, requeue_after};
use super::confirm::has_left;
use super::kinds::{self, Kind, RUNNING_PRIORITY};
use super::world::World;
use super::{backend, decentralized, start, target, timeouts};
use crate::guard::Guarded;
use crate::{Note, SyncError, meta, pods};

/// Why a migration does not advance, for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Waiting {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The effects of this pass, and its result for the status.
#[derive(Debug, Default)]
pub(super) struct Sync {
    pub(super) actions: Vec<Action>,
    /// Executed after the status write, and only if the status is up to date.
    pub(super) start: Option<Action>,
    pub(super) waiting: Option<Waiting>,
    /// The migration shows already what it waits for, or nothing that lasts.
    pub(super) keeps_wait: bool,
    /// A timeout has expired: the migration fails for this reason.
    pub(super) expired: Option<String>,
}

impl Sync {
    pub(super) fn doing(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    pub(super) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { waiting: Some(Waiting::new(reason, message)), ..Self::default() }
    }

    /// The same, with a requeue after this time.
    pub(super) fn again(mut self, delay: Duration, priority: i32) -> Self {
        self.actions.push(requeue_after(delay, priority));
        self
    }
}

pub(super) fn sync(w: &World) -> Sync {
    let Some(vmi) = w.vmi.as_deref() else { return Sync::default() };
    if let Some(error) = &w.failed {
        return Sync::doing(tell(w, error).into_iter().collect());
    }
    if vmi.is_marked_for_deletion() {
        // A VM that waits for the outcome of a guest to be sent waits for this failure, too.
        let told = w.kind() == Kind::Sends && w.migration.phase() == Some(&Phase::Failed);
        return if told { failed(w, vmi) } else { Sync::default() };
    }
    if w.own_state().is_some_and(State::is_over) && !w.migration.is_final() {
        return arrived(w);
    }
    if let Some(left) = w.behind {
        return Sync::default().again(left, RUNNING_PRIORITY);
    }
    if let Some(rival) = w.rival().filter(|_| !w.migration.is_final() && w.migration.phase().is_some()) {
        let message = format!("migration {} of this VMI is still in progress", meta::name(&rival.metadata));
        let wait = Sync::waiting(reasons::OTHER_MIGRATION_ACTIVE, message);
        return wait.again(start::patience(w), kinds::spec_priority(&w.migration));
    }
    if let Some(unread) = w.unread().filter(|_| !w.migration.is_final()) {
        let name = meta::name(&unread.metadata);
        let message = format!("waiting for the other side to record the result of migration {name}");
        let wait = Sync::waiting(reasons::OTHER_MIGRATION_ACTIVE, message);
        return wait.again(start::patience(w), kinds::spec_priority(&w.migration));
    }
    match w.migration.phase() {
        Some(Phase::Pending) => pending(w, vmi),
        Some(Phase::Scheduling) => scheduling(w),
        Some(Phase::Scheduled) => scheduled(w, vmi),
        Some(Phase::PreparingTarget | Phase::TargetReady) => with_nodes(w, vmi),
        Some(Phase::Running) => running(w, vmi),
        Some(Phase::Failed) => failed(w, vmi),
        Some(Phase::WaitingForSync | Phase::Synchronizing) => decentralized::introduce(w, vmi),
        Some(Phase::Succeeded | Phase::Other(_)) | None => Sync::default(),
    }
}

/// The event for a failure, unless the migration already shows it.
fn tell(w: &World, error: &SyncError) -> Option<Action> {
    let list = w.migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let known = list.iter().any(|condition| condition.message() == error.message);
    let note = Note::warning(&error.reason, error.message.clone());
    (!known).then_some(match error.reason.as_str() {
        reasons::FAILED_CREATE => note_vmi(w, note),
        _ => Action::Note(note),
    })
}

fn pending(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    if w.is_deleting() {
        return give_up(w);
    }
    if let Some(wait) = timeouts::backoff(w) {
        return wait;
    }
    if !vmi.spec.utility_volumes.is_empty() {
        return timeouts::utility_volumes(w); // its condition is KubeVirt's own
    }
    if has_unfinished_backup(vmi) {
        return Sync::default().again(start::patience(w), kinds::spec_priority(&w.migration));
    }
    if !w.makes_target() {
        let phase = vmi.phase().map_or("unset", |phase| phase.as_str());
        let message = format!("the instance is in phase {phase}; only a running guest can be sent");
        return if vmi.is_running() { Sync::default() } else { Sync::waiting(reasons::INSTANCE_NOT_RUNNING, message) };
    }
    let Some(pod) = w.target() else { return start::prepare(w, vmi) };
    if pods::is_ready_for_handover(pod) {
        return attach(w, vmi, pod);
    }
    timeouts::pending_pod(w, vmi, pod)
}

/// The attachment Pod with the hot-plugged volumes, next to a target that is up.
fn attach(w: &World, vmi: &VirtualMachineInstance, pod: &Pod) -> Sync {
    if !backend::has_plugged_volumes(vmi) || w.attachment().is_some() {
        return timeouts::pending_attachment(w);
    }
    target::attachment(w, vmi, pod)
}

fn scheduling(w: &World) -> Sync {
    if w.is_deleting() {
        return give_up(w);
    }
    if let Some(vmi) = w.vmi.as_deref().filter(|_| w.kind() == Kind::Sends) {
        return decentralized::publish(w, vmi);
    }
    match (w.vmi.as_deref(), w.target()) {
        (Some(vmi), Some(pod)) if !pods::is_ready_for_handover(pod) => timeouts::pending_pod(w, vmi, pod),
        _ => timeouts::pending_attachment(w),
    }
}

fn scheduled(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    if w.is_deleting() && !w.is_handed_off() {
        return give_up(w);
    }
    if w.own_state().is_some() || !w.makes_target() {
        return Sync::default();
    }
    if w.handed_off {
        // The cache is stale, or the patch was lost without an answer: a live read decides.
        return Sync { start: Some(Action::Own(Own::ConfirmHandOff)), ..Sync::default() };
    }
    if !vmi.spec.utility_volumes.is_empty() || has_unfinished_backup(vmi) {
        let wait =
            Sync::waiting(reasons::BACKUP_IN_PROGRESS, "waiting for a backup to end or utility volumes to be detached");
        return wait.again(start::patience(w), RUNNING_PRIORITY);
    }
    let Some(pod) = w.target().filter(|pod| pods::is_ready_for_handover(pod)) else { return Sync::default() };
    let actions = target::network_annotations(w, vmi, pod).into_iter().collect();
    Sync { start: Some(Action::Own(Own::ConfirmHandOff)), ..Sync::doing(actions) }
}

/// A target that died before the transfer started cannot report it itself.
fn with_nodes(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    let Some(state) = w.own_state() else { return Sync::default() };
    let over = state.failed == Some(true) || state.start_timestamp.is_some();
    // A missing target is first looked up live, and the failure of the migration then sets the mark.
    if w.makes_target() && w.target().is_some_and(pods::is_down) && !over {
        return mark_failed(w, vmi, state, "the target Pod ended before the transfer began");
    }
    let node = |name: &Option<String>| name.clone().unwrap_or_else(|| "unknown".to_owned());
    match w.migration.phase() {
        Some(Phase::PreparingTarget) => Sync::waiting(
            reasons::TARGET_NODE_PREPARING,
            format!("waiting for virt-handler on node {} to prepare the target", node(&state.target_node)),
        ),
        _ => Sync::waiting(
            reasons::SOURCE_NODE_NOT_STARTED,
            format!("waiting for virt-handler on node {} to start the migration", node(&state.source_node)),
        ),
    }
}

fn running(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    let Some(state) = w.own_state() else { return Sync::default() };
    let mut sync = arrived(w);
    if w.is_deleting() {
        sync.actions.extend(abort(vmi, state));
    }
    sync
}

/// The guest runs on the target: hands over the claims and marks the target Pod for its watchers.
fn arrived(w: &World) -> Sync {
    let Some(state) = w.own_state().filter(|state| state.failed != Some(true)) else { return Sync::default() };
    let Some(ready) = &state.target_node_domain_ready_timestamp else { return Sync::default() };
    // The outcome waits for it, and not every step triggers an event.
    let handed_over = w.kind() == Kind::Sends || backend::is_handed_over(w);
    let mut sync =
        if handed_over { Sync::default() } else { Sync::doing(backend::hand_over(w)).again(SHORTLY, RUNNING_PRIORITY) };
    if let Some(pod) = w.target().filter(|_| backend::can_hand_over(w)) {
        let key = api::annotations::MIGRATION_TARGET_READY_TIMESTAMP;
        if meta::annotation(&pod.metadata, key).is_none() {
            let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
            annotations.insert(key.to_owned(), ready.0.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string());
            let patch = Guarded::new(&pod.metadata).annotations(&annotations).build();
            sync.actions.extend(patch.map(|patch| patch_pod(pod, patch, "the guest runs in it")));
        }
    }
    sync
}

/// Asks virt-handler to abort; a guest that has arrived by then stays on the target.
fn abort(vmi: &VirtualMachineInstance, state: &State) -> Vec<Action> {
    if state.abort_requested == Some(true) || state.end_timestamp.is_some() {
        return vec![];
    }
    let path = |field| ["status", "migrationState", field];
    let patch = Guarded::new(&vmi.metadata)
        .expect(&path("migrationUid"), &state.migration_uid)
        .expect(&path("endTimestamp"), &state.end_timestamp)
        .field(&path("abortRequested"), &state.abort_requested, &Some(true))
        .build();
    let note = Note::normal(events::SUCCESSFUL_ABORT_MIGRATION, "Asked the nodes to abort the migration");
    let because = "the migration is being deleted";
    patch.into_iter().flat_map(|patch| [patch_vmi(vmi, patch, because), Action::Note(note.clone())]).collect()
}

fn failed(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    match w.own_state() {
        Some(_) if decentralized::has_received(w) => Sync::default(),
        Some(state) if state.failed != Some(true) && state.completed != Some(true) && w.makes_target() => {
            mark_failed(w, vmi, state, "the migration failed")
        }
        // A transfer that has not started must not start any more; one that has is aborted by the source's
        // virt-handler, unless the VMI ends first.
        Some(state)
            if state.failed != Some(true)
                && state.completed != Some(true)
                && (state.start_timestamp.is_none() || vmi.is_final()) =>
        {
            mark_failed(w, vmi, state, "the migration failed before its transfer was over")
        }
        // It is handed off and unfinished in the cache: virt-handler will report the outcome.
        None if w.handed_off && w.state().is_none() => Sync::default(),
        _ => Sync::doing(drop_target(w, vmi)),
    }
}

/// The guest stayed on the source. Its target would wait for ever.
fn drop_target(w: &World, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let completed = w.own_state().is_some_and(|state| state.completed == Some(true) && state.failed != Some(true));
    let Some(pod) = w.target().filter(|pod| !completed && !pods::is_down(pod) && !pods::is_deleting(pod)) else {
        return vec![];
    };
    if w.kind() == Kind::Receives && w.own_state().is_some() {
        // It is the Pod that the VMI names as its own. No guest arrives in it once the failure is recorded.
        return delete(pod, "the migration failed, and the guest is elsewhere");
    }
    let delete = delete(pod, "the migration failed, and the guest is elsewhere");
    match pods::node_name(pod).map(NodeName::new) {
        Some(node) if has_left(w, Some(vmi), &node) => vec![Action::confirm(Look::GuestNotOn { node }, delete)],
        Some(_) => vec![],
        None => delete,
    }
}

/// Records the failure where virt-handler reads it.
fn mark_failed(w: &World, vmi: &VirtualMachineInstance, state: &State, why: &str) -> Sync {
    let path = |field| ["status", "migrationState", field];
    let now = Some(w.now.clone());
    let known = w.migration.status.as_ref().and_then(|status| status.migration_state.as_ref()?.failure_reason.clone());
    let reason = state.failure_reason.clone().or(known).or_else(|| Some(why.to_owned()));
    let mut ended = state.clone();
    ended.fail();
    let patch = Guarded::new(&vmi.metadata)
        .expect(&path("migrationUid"), &state.migration_uid)
        .field(&path("failed"), &state.failed, &ended.failed)
        .field(&path("completed"), &state.completed, &ended.completed)
        .field(&path("startTimestamp"), &state.start_timestamp, &state.start_timestamp.clone().or(now.clone()))
        .field(&path("endTimestamp"), &state.end_timestamp, &state.end_timestamp.clone().or(now))
        .field(&path("failureReason"), &state.failure_reason, &reason)
        .build();
    let note = Note::warning(events::FAILED_MIGRATION, format!("Migration marked as failed: {why}"));
    let because = "no node can report the outcome";
    let marks = patch.into_iter().flat_map(|patch| [patch_vmi(vmi, patch, because), note_vmi(w, note.clone())]);
    Sync::doing(marks.collect())
}

/// The migration is deleted before the hand-off: deletes what was created for it.
fn give_up(w: &World) -> Sync {
    if w.is_handed_off() {
        return Sync::default();
    }
    let doomed = w.target().filter(|pod| !pods::is_deleting(pod));
    Sync::doing(doomed.map(|pod| delete(pod, "the migration was deleted before the hand-off")).unwrap_or_default())
}

pub(super) fn delete(pod: &Pod, because: &'static str) -> Vec<Action> {
    let message = format!("Deleted target pod {}: {because}", meta::name(&pod.metadata));
    vec![delete_pod(pod, because), Action::Note(Note::normal(reasons::SUCCESSFUL_DELETE, message))]
}

/// A running backup reads the guest's disks on the current node.
pub(super) fn has_unfinished_backup(vmi: &VirtualMachineInstance) -> bool {
    let tracking = vmi.status.as_ref().and_then(|status| status.changed_block_tracking.as_ref());
    let backup = tracking.and_then(|tracking| tracking.backup_status.as_ref());
    backup.is_some_and(|backup| backup.completed != Some(true) && backup.failed != Some(true))
}

//! The outcome of a migration, and its status.

use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{
    Condition, ConditionStatus, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Transition,
    VirtualMachineInstanceMigrationStatus as Status,
};
use api::{conditions, events, finalizers, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{Action, Look, Own, patch_migration};
use super::kinds::{self, Kind};
use super::phase::{self, Move};
use super::sync::{self, Sync, Waiting};
use super::world::{World, is_set};
use super::{backend, decentralized};
use crate::guard::Guarded;
use crate::{Note, meta, pods};

const DECENTRALIZED: &str = conditions::DECENTRALIZED_LIVE_MIGRATION_FAILURE;

/// The status writes of this pass.
pub(super) struct Report {
    pub(super) actions: Vec<Action>,
    /// Something about the migration itself has changed.
    pub(super) changes: bool,
    /// All effects of this pass assume that the migration is not handed off.
    pub(super) doubtful: bool,
    pub(super) after: Vec<Action>,
}

/// The result of the decision list.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// It has ended.
    Final,
    /// It fails.
    Fail(String),
    /// It fails if a live read of the VMI confirms the cache: the migration is not handed off.
    FailIfNotWithNodes(String),
    /// It fails unless the outcome is still undecided: one side has vanished, and the guest's state with it.
    Interrupt(String),
    /// The same, if a live read finds no target.
    InterruptIfTargetGone(String),
    Go,
}

/// The first matching row wins. The numbers are those of the table that the tests refer to.
fn judge(w: &World, vmi: &VirtualMachineInstance, expired: Option<&String>) -> Verdict {
    let migration = &w.migration;
    if migration.is_final() {
        return Verdict::Final; // 1
    }
    if vmi.is_final() && !sends_elsewhere(w) {
        let phase = vmi.phase().map_or("unset", |phase| phase.as_str());
        return Verdict::Interrupt(format!("the instance has ended (phase {phase})")); // 2
    }
    if w.is_deleting() && !w.is_handed_off() {
        let why = "the migration was deleted before it was handed to the nodes";
        return Verdict::FailIfNotWithNodes(why.to_owned()); // 3
    }
    if !kinds::is_with_nodes(migration) && !w.is_handed_off() && kinds::is_needless(migration, vmi) {
        let node = w.evacuated_node().unwrap_or_default();
        return Verdict::FailIfNotWithNodes(format!("not needed: the guest already left node {node}"));
    }
    if !kinds::is_with_nodes(migration) && !w.is_handed_off() && decentralized::has_sent(migration, vmi) {
        return Verdict::FailIfNotWithNodes("the guest has left for another instance".to_owned());
    }
    if let Some(rival) = between_and_first(w) {
        let name = meta::name(&rival.metadata);
        let why =
            format!("migration {name} sends this VMI to another VMI and is still in progress; retry when it finishes");
        return Verdict::FailIfNotWithNodes(why);
    }
    if let Some(why) = expired {
        return Verdict::Fail(why.clone());
    }
    let received = decentralized::has_received(w);
    if let Some(pod) = w.target().filter(|pod| pods::is_down(pod) && !received) {
        return Verdict::Interrupt(format!("the target Pod has ended: {}", pods::obituary(pod))); // 4
    }
    if kinds::has_target(migration) && w.target().is_none() && w.makes_target() && !received {
        return Verdict::InterruptIfTargetGone("the target Pod is gone".to_owned()); // 5
    }
    if kinds::is_with_nodes(migration) && !is_synchronized(w) {
        return Verdict::FailIfNotWithNodes("the VMI no longer has the state of this migration".to_owned()); // 6
    }
    if kinds::is_with_nodes(migration) && w.own_state().is_none() {
        return Verdict::FailIfNotWithNodes("another migration took over the VMI".to_owned()); // 7
    }
    if let Some(state) = w.own_state().filter(|state| state.failed == Some(true)) {
        let why = state.failure_reason.clone().filter(|why| !why.is_empty());
        return Verdict::Fail(why.unwrap_or_else(|| "virt-handler reported no reason".to_owned())); // 8
    }
    let detached = w.attachment().filter(|pod| pods::is_down(pod) && !w.is_handed_off());
    if let Some(pod) = detached {
        let name = meta::name(&pod.metadata);
        return Verdict::Fail(format!("Pod {name} with the plugged volumes has ended on the target node")); // 10
    }
    Verdict::Go
}

/// The decentralized migration that has claimed the VMI when the target of this migration already existed, neither
/// knowing of the other. The target occupies a slot that the other side may need: waiting here could be a deadlock.
fn between_and_first(w: &World) -> Option<&Migration> {
    let early = !kinds::is_with_nodes(&w.migration) && !w.is_handed_off();
    w.rival().filter(|rival| early && w.target().is_some() && kinds::kind(rival) != Kind::Local)
}

/// The guest was sent to a VMI elsewhere, whose outcome is not known here.
fn sends_elsewhere(w: &World) -> bool {
    let target = w.state().and_then(|state| state.target_state.as_ref());
    w.kind() == Kind::Sends && target.is_some_and(|t| is_set(&t.sync_address) && is_set(&t.node_address))
}

fn is_synchronized(w: &World) -> bool {
    let Some(state) = w.state() else { return false };
    match w.kind() {
        Kind::Local => true,
        Kind::Sends | Kind::Receives => {
            state.source_state.as_ref().is_some_and(|source| is_set(&source.migration_uid))
                && state.target_state.as_ref().is_some_and(|target| is_set(&target.migration_uid))
        }
    }
}

pub(super) fn report(w: &World, sync: &Sync) -> Report {
    let Some(vmi) = w.vmi.as_deref() else {
        return Report { actions: vec![], changes: false, doubtful: false, after: vec![] };
    };
    let mut new = (*w.migration).clone();
    let mut around = Around::default();
    match judge(w, vmi, sync.expired.as_ref()) {
        Verdict::Final => {
            settle(w, &mut new);
            if w.migration.phase() == Some(&Phase::Failed) {
                around.before = backend::abandon(w); // one that was made a moment before the end shows only now
            }
            // Once the migration is gone, nobody would delete a target that is not in the cache yet.
            around.confirm = w.migration.phase() == Some(&Phase::Failed) && w.makes_target() && w.target().is_none();
        }
        Verdict::Fail(why) => around = end(w, &mut new, &why),
        Verdict::FailIfNotWithNodes(why) => {
            let begun = kinds::is_with_nodes(&w.migration);
            around = if begun { interrupt(w, &mut new, &why) } else { end(w, &mut new, &why) };
            around.doubtful = true;
        }
        Verdict::Interrupt(why) => around = interrupt(w, &mut new, &why),
        Verdict::InterruptIfTargetGone(why) => {
            around = interrupt(w, &mut new, &why);
            around.confirm = true;
        }
        Verdict::Go => around.after = advance(w, vmi, &mut new),
    }
    if !w.migration.is_final() {
        conditions_of(w, vmi, &mut new);
        show_wait(w, vmi, sync, around.waiting.as_ref(), &mut new);
    }
    meta::stamp(&mut new.metadata);
    around.into_report(w, new)
}

/// The effects that accompany a change of the status.
#[derive(Default)]
struct Around {
    before: Vec<Action>,
    after: Vec<Action>,
    /// Everything only if a live read finds no target.
    confirm: bool,
    /// See [`Report`].
    doubtful: bool,
    /// What is waited for before the outcome is known.
    waiting: Option<Waiting>,
}

impl Around {
    fn into_report(self, w: &World, new: Migration) -> Report {
        let mut actions = self.before;
        let changed = new.status != w.migration.status;
        let annotations = new.metadata.annotations.clone().unwrap_or_default();
        let patch = Guarded::new(&w.migration.metadata).finalizers(&new.metadata).annotations(&annotations).build();
        let changes = changed || patch.is_some();
        actions.extend(changed.then(|| Action::ReplaceStatus(new.into())));
        actions.extend(patch.map(|patch| patch_migration(w, patch)));
        let after = if changed { self.after } else { vec![] };
        if self.confirm && !actions.is_empty() {
            actions.extend(after);
            let actions = vec![Action::confirm(Look::NoTarget, actions)];
            return Report { actions, changes, doubtful: self.doubtful, after: vec![] };
        }
        Report { actions, changes, doubtful: self.doubtful, after }
    }
}

/// The outcome is known; removes the finalizer.
fn settle(w: &World, new: &mut Migration) {
    // virt-handler may still clear its part, and the cache may predate its last write: the state is kept once it is
    // complete, and so is what was recorded here about an end that virt-handler did not see.
    if let Some(state) = w.own_state().filter(|state| state.is_over()) {
        let status = new.status.get_or_insert_default();
        let known = status.migration_state.take().unwrap_or_default();
        let mut state = state.clone();
        state.failed = state.failed.or(known.failed);
        state.failure_reason = state.failure_reason.or(known.failure_reason);
        status.migration_state = Some(state);
    }
    if w.failed.is_none() {
        meta::remove_finalizer(&mut new.metadata, finalizers::MIGRATION);
    }
}

/// It failed, and the target's copy of the guest's state is useless.
fn end(w: &World, new: &mut Migration, why: &str) -> Around {
    enter(new, Phase::Failed, &w.now);
    let status = new.status.get_or_insert_default();
    conditions::remove(&mut status.conditions, conditions::MIGRATION_WAITING);
    let state = status.migration_state.get_or_insert_default();
    state.failed = Some(true);
    state.failure_reason.get_or_insert_with(|| why.to_owned());
    let note = Note::warning(events::FAILED_MIGRATION, format!("Migration failed: {why}"));
    // The status is written first: a pass that works on a stale version of the migration must not get as far as the
    // claim.
    let after = backend::abandon(w).into_iter().chain([Action::Note(note)]).collect();
    Around { after, ..Around::default() }
}

fn interrupt(w: &World, new: &mut Migration, why: &str) -> Around {
    if backend::is_adopted(w) {
        return arrive(w, new);
    }
    if !backend::is_undecided(w) {
        // If a claim could be lost, a cache that predates the hand-off must not decide.
        return Around { doubtful: backend::is_apart(w), ..end(w, new, why) };
    }
    let recover = Action::Own(Own::Recover { because: why.to_owned() });
    let waiting = Waiting::new(reasons::RECOVERING, format!("{why}; a Job checks where the guest ran last"));
    Around { before: vec![recover], waiting: Some(waiting), ..Around::default() }
}

/// The status of a migration whose outcome was not reported by virt-handler.
pub(super) fn ended(w: &World, why: Option<&str>) -> Vec<Action> {
    let mut new = (*w.migration).clone();
    let around = match why {
        Some(why) => end(w, &mut new, why),
        None => arrive(w, &mut new),
    };
    let Report { actions, after, .. } = around.into_report(w, new);
    actions.into_iter().chain(after).collect()
}

/// Ends a migration whose evacuation was canceled before the hand-off. It does not count as a failed attempt.
pub(super) fn called_off(w: &World) -> Vec<Action> {
    let node = w.evacuated_node().unwrap_or_default();
    let why = format!("the evacuation of node {node} was canceled: the instance is no longer marked to leave it");
    let mut new = (*w.migration).clone();
    let around = end(w, &mut new, &why);
    if let Some(vmi) = w.vmi.as_deref() {
        conditions_of(w, vmi, &mut new); // it no longer waits for anything, including a quota
    }
    let (type_, reason) = (conditions::MIGRATION_ABORT_REQUESTED, reasons::EVACUATION_CANCELED);
    let asked = Condition::new(type_, ConditionStatus::True, reason, &*why, w.now.clone());
    conditions::set(&mut new.status.get_or_insert_default().conditions, asked);
    let Report { actions, after, .. } = around.into_report(w, new);
    actions.into_iter().chain(after).collect()
}

/// The guest is known to have arrived, whatever happened to it afterwards.
fn arrive(w: &World, new: &mut Migration) -> Around {
    enter(new, Phase::Succeeded, &w.now);
    conditions::remove(&mut new.status.get_or_insert_default().conditions, conditions::MIGRATION_WAITING);
    let message = "Found the guest running on the target";
    let note = Action::Note(Note::normal(events::SUCCESSFUL_MIGRATION, message));
    Around { before: backend::hand_over(w), after: vec![note], ..Around::default() }
}

fn advance(w: &World, vmi: &VirtualMachineInstance, new: &mut Migration) -> Vec<Action> {
    match phase::next(w, vmi) {
        Move::Stay => vec![],
        Move::Fail(why) => end(w, new, &why).after,
        Move::To(phase) => {
            let note = (phase == Phase::Succeeded).then(|| {
                let node = w.own_state().and_then(|state| state.target_node.clone()).unwrap_or_default();
                Action::Note(Note::normal(events::SUCCESSFUL_MIGRATION, format!("The guest runs on node {node}")))
            });
            enter(new, phase, &w.now);
            note.into_iter().collect()
        }
    }
}

/// Enters a phase; the timestamp of the first entry is kept.
fn enter(migration: &mut Migration, phase: Phase, now: &Time) {
    let status = migration.status.get_or_insert_default();
    let transitions = &mut status.phase_transition_timestamps;
    if !transitions.iter().any(|t| t.phase.as_ref() == Some(&phase)) {
        transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(now.clone()) });
    }
    status.phase = Some(phase);
}

fn conditions_of(w: &World, vmi: &VirtualMachineInstance, new: &mut Migration) {
    let phase = new.phase().cloned();
    let status = new.status.get_or_insert_default();
    if w.is_deleting() {
        let (type_, message) = (conditions::MIGRATION_ABORT_REQUESTED, "the migration was deleted");
        let asked = Condition::new(type_, ConditionStatus::True, "", message, w.now.clone());
        conditions::set(&mut status.conditions, asked);
    }
    if phase == Some(Phase::Pending) {
        blocked(w, vmi, status);
        record(w, status);
    }
    if matches!(phase, Some(Phase::Scheduling | Phase::Scheduled)) {
        record_claims(w, status);
    }
    if phase != Some(Phase::Pending) {
        let list = &mut status.conditions;
        conditions::remove(list, conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA);
        conditions::remove(list, conditions::MIGRATION_BLOCKED_BY_UTILITY_VOLUMES);
        conditions::remove(list, conditions::MIGRATION_BLOCKED_BY_BACKUP);
    }
    let between = if w.kind() == Kind::Local { None } else { vmi.condition(DECENTRALIZED) };
    mirror_decentralized(between, status);
    status.synchronization_addresses.clone_from(&w.synchronization_addresses);
    if w.kind() == Kind::Receives {
        let own = decentralized::address(meta::namespace(&w.migration.metadata));
        status.synchronization_addresses.push(own);
    }
}

/// Maintains the condition that says what the migration waits for.
fn show_wait(w: &World, vmi: &VirtualMachineInstance, sync: &Sync, special: Option<&Waiting>, new: &mut Migration) {
    let phase = new.phase().cloned();
    match special.cloned().or_else(|| waiting(w, vmi, sync, phase.as_ref())) {
        Some(waiting) => set_waiting(new, &waiting, &w.now),
        // An attempt follows. Until it has succeeded the wait is not over, and a write here would requeue us before the
        // back-off of a failure has passed.
        None if (sync.start.is_some() || sync.keeps_wait) && phase.as_ref() == w.migration.phase() => {}
        None => {
            let list = &mut new.status.get_or_insert_default().conditions;
            conditions::remove(list, conditions::MIGRATION_WAITING);
        }
    }
}

/// What the migration waits for, unless one of KubeVirt's own conditions says so.
fn waiting(w: &World, vmi: &VirtualMachineInstance, sync: &Sync, phase: Option<&Phase>) -> Option<Waiting> {
    if phase.is_some_and(Phase::is_final) {
        return None;
    }
    if let Some(error) = w.failed.as_ref().filter(|error| !is_quota(&error.message)) {
        let reason = match error.reason.as_str() {
            reasons::FAILED_DELETE => reasons::FAILED_DELETE,
            reasons::FAILED_HAND_OVER => reasons::FAILED_HAND_OVER,
            _ => reasons::FAILED_CREATE,
        };
        return Some(Waiting::new(reason, error.message.clone()));
    }
    if phase::has_arrived(w) && phase == Some(&Phase::Running) {
        let pending = phase::pending_change(w, vmi)?;
        let message =
            format!("guest has migrated; waiting for virt-handler to apply the change of condition {pending}");
        return Some(Waiting::new(reasons::GUEST_CHANGES_PENDING, message));
    }
    // It advances in this very pass, so the wait is over.
    let moved = phase != w.migration.phase();
    sync.waiting.clone().filter(|_| !moved)
}

/// Unlike other conditions this one is also replaced if only the message changes: users need the scheduler's latest
/// reason.
fn set_waiting(new: &mut Migration, waiting: &Waiting, now: &Time) {
    let list = &mut new.status.get_or_insert_default().conditions;
    let condition = Condition::new(
        conditions::MIGRATION_WAITING,
        ConditionStatus::True,
        waiting.reason,
        &*waiting.message,
        now.clone(),
    );
    match list.iter_mut().find(|old| old.type_ == condition.type_) {
        Some(old) if old.reason() == condition.reason() && old.message() == condition.message() => {}
        Some(old) if old.reason() == condition.reason() => old.message = condition.message,
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

/// Whether the migration waits for a slot in the cluster, and would start if another one ended.
pub fn waits_for_room(migration: &Migration) -> bool {
    shows_waiting_for(migration, reasons::CLUSTER_LIMIT_REACHED)
}

/// Whether the migration waits for a slot on its source node, and would start if another one ended.
pub(super) fn waits_for_its_node(migration: &Migration) -> bool {
    shows_waiting_for(migration, reasons::NODE_LIMIT_REACHED)
}

fn shows_waiting_for(migration: &Migration, reason: &str) -> bool {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let shown = conditions::find(list, conditions::MIGRATION_WAITING);
    shown.is_some_and(|condition| condition.is_true() && condition.reason() == reason)
}

fn is_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

/// KubeVirt's conditions for what blocks the start of a migration.
fn blocked(w: &World, vmi: &VirtualMachineInstance, status: &mut Status) {
    let list = &mut status.conditions;
    let mut keep = |holds: bool, type_: &str, reason: &str, message: &str| {
        if holds {
            conditions::set(list, Condition::new(type_, ConditionStatus::True, reason, message, w.now.clone()));
        } else {
            conditions::remove(list, type_);
        }
    };
    let (type_, reason) = (conditions::MIGRATION_BLOCKED_BY_UTILITY_VOLUMES, reasons::UTILITY_VOLUMES_PRESENT);
    keep(
        !vmi.spec.utility_volumes.is_empty(),
        type_,
        reason,
        "utility volumes are attached; they must be detached first",
    );
    let (type_, reason) = (conditions::MIGRATION_BLOCKED_BY_BACKUP, reasons::BACKUP_IN_PROGRESS);
    keep(sync::has_unfinished_backup(vmi), type_, reason, "a backup reads the guest's disks; it must end first");
    // It stays until a target Pod was created: between two attempts nothing proves that there is quota.
    if let Some(error) = w.failed.as_ref().filter(|error| is_quota(&error.message) && w.target().is_none()) {
        let type_ = conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA;
        keep(true, type_, reasons::RESOURCE_QUOTA_EXCEEDED, &error.message);
    }
}

/// Records source and target as far as they are known before the hand-off.
fn record(w: &World, status: &mut Status) {
    // The VMI of a receiver has only the target Pod.
    let source = w.origin().filter(|_| w.kind() != Kind::Receives).map(|pod| meta::name(&pod.metadata).to_owned());
    if source.is_some() {
        status.migration_state.get_or_insert_default().source_pod = source;
    }
    if let Some(instance) = w.vmi.as_deref().map(|vmi| meta::uid(&vmi.metadata).to_owned()) {
        match w.kind() {
            Kind::Local => {}
            Kind::Sends => {
                let side = status.migration_state.get_or_insert_default().source_state.get_or_insert_default();
                side.virtual_machine_instance_uid = Some(instance);
            }
            Kind::Receives => {
                let side = status.migration_state.get_or_insert_default().target_state.get_or_insert_default();
                side.virtual_machine_instance_uid = Some(instance);
            }
        }
    }
    record_claims(w, status);
}

fn record_claims(w: &World, status: &mut Status) {
    if let Some(claims) = backend::names(w) {
        let state = status.migration_state.get_or_insert_default();
        state.source_persistent_state_pvc_name = Some(claims.source);
        state.target_persistent_state_pvc_name = Some(claims.target);
    }
}

fn mirror_decentralized(seen: Option<&Condition>, status: &mut Status) {
    let list = &mut status.conditions;
    match seen {
        Some(seen) => {
            let copy = Condition { type_: conditions::DECENTRALIZED_MIGRATION_BLOCKED.to_owned(), ..seen.clone() };
            // Users read the message: it is updated even if nothing else has changed.
            conditions::remove(list, conditions::DECENTRALIZED_MIGRATION_BLOCKED);
            list.push(copy);
        }
        None => {
            conditions::remove(list, conditions::DECENTRALIZED_MIGRATION_BLOCKED);
        }
    }
}

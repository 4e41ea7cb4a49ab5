//! The source launcher of a migration.

use api::conditions::{PAUSED, set};
use api::v1::VirtualMachineInstancePhase as Phase;
use api::v1::{
    Condition, ConditionStatus, MigrationAbortStatus, MigrationMode, VirtualMachineInstance,
    VirtualMachineInstanceMigrationState, VirtualMachineInstanceStatus,
};
use jiff::Timestamp;
use transfer::ABORTED;

use super::{Endpoint, Migration, MigrationPhase, SOURCE_GONE, annotation, fail, has_failed, state_of, uid_of};
use crate::action::{normal, requeue};
use crate::launcher::Verdict;
use crate::shutdown::{kill, resend_in};
use crate::status::{set_phase, time};
use crate::{Action, ActionKind, DomainReason, DomainStatus, LauncherState, World};

const PAUSED_BY_MIGRATION: &str = "PausedByMigrationMonitor";
/// Attempts to start a migration before it fails.
const ATTEMPTS: u32 = 6;

/// The migration that this launcher is the source of, finished or not.
fn outbound<'a>(w: &World<'_>, vmi: &'a VirtualMachineInstance) -> Option<&'a VirtualMachineInstanceMigrationState> {
    let state = state_of(vmi)?;
    let here = state.source_node.as_deref() == Some(w.node_name) && state.target_node.as_deref() != Some(w.node_name);
    let this = w.pod_name.is_none() || state.source_pod.is_none() || state.source_pod.as_deref() == w.pod_name;
    (here && this).then_some(state)
}

/// What the launcher reports about this migration.
fn seen<'a>(launcher: &'a LauncherState, state: &VirtualMachineInstanceMigrationState) -> Option<&'a Migration> {
    launcher.migration.as_ref().filter(|migration| migration.uid == uid_of(state))
}

fn endpoint(state: &VirtualMachineInstanceMigrationState) -> Option<Endpoint> {
    let address = state.target_node_address.clone().filter(|address| !address.is_empty())?;
    let ports = state.target_direct_migration_node_ports.clone();
    (!ports.is_empty()).then_some(Endpoint { address, ports })
}

/// The actions for a migration, which replace the usual ones of a running guest; `None` if there is nothing to do.
pub(crate) fn act(w: &World<'_>, vmi: &VirtualMachineInstance, launcher: &LauncherState) -> Option<Vec<Action>> {
    let state = outbound(w, vmi)?;
    let migration = seen(launcher, state);
    if state.is_over() {
        let close = || w.proxy.dialling.is_some().then(|| vec![Action::CloseProxies]);
        return after_the_end(w, state, migration).or_else(close);
    }
    let stopping = vmi.is_marked_for_deletion() || launcher.marked_for_graceful_shutdown;
    match migration {
        None if stopping || state.abort_requested == Some(true) => None,
        None => Some(begin(w, state)),
        Some(migration) => under_way(w, state, migration, stopping),
    }
}

/// Tells the launcher the outcome, and waits for the effect before repeating it.
fn settle(w: &World<'_>, state: &VirtualMachineInstanceMigrationState, target_runs: bool) -> Vec<Action> {
    let waiting = "the launcher was told what became of its guest";
    if let Some(delay) = resend_in(w.sent.settle, w.now) {
        return vec![Action::RequeueAfter { delay, because: waiting }];
    }
    let because = match target_runs {
        true => "the VMI belongs to the target's node",
        false => "the target's node says that the guest does not run there",
    };
    vec![Action::SettleMigration { uid: uid_of(state).to_owned(), target_runs, because }, requeue(5, waiting)]
}

/// The migration was ended by another writer: the launcher follows.
fn after_the_end(
    w: &World<'_>,
    state: &VirtualMachineInstanceMigrationState,
    migration: Option<&Migration>,
) -> Option<Vec<Action>> {
    let migration = migration.filter(|_| has_failed(state))?;
    let uid = uid_of(state).to_owned();
    match migration.phase {
        MigrationPhase::Undecided => Some(settle(w, state, false)),
        MigrationPhase::Transferring if migration.abort.is_none() => {
            Some(vec![Action::AbortMigration { uid, because: "the migration has failed at the target" }])
        }
        MigrationPhase::Transferring | MigrationPhase::SwitchingOver => {
            Some(vec![requeue(1, "the launcher has not noticed yet that the migration is over")])
        }
        _ => None,
    }
}

fn begin(w: &World<'_>, state: &VirtualMachineInstanceMigrationState) -> Vec<Action> {
    let Some(target) = endpoint(state) else {
        return vec![requeue(5, "the target of the migration is not ready yet")];
    };
    let uid = uid_of(state).to_owned();
    let mut actions = Vec::new();
    if w.proxy.dialling != Some(&target) {
        actions.push(Action::OpenSourceProxy(target));
    }
    let to = state.target_node.as_deref().unwrap_or_default();
    actions.push(Action::Migrate { uid });
    actions.push(normal("Migrating", format!("VirtualMachineInstance is migrating to node {to}.")));
    actions
}

fn under_way(
    w: &World<'_>,
    state: &VirtualMachineInstanceMigrationState,
    migration: &Migration,
    stopping: bool,
) -> Option<Vec<Action>> {
    let mut actions = Vec::new();
    // After a restart virt-handler has to reopen the proxy: the launcher may have to query the target.
    if let Some(target) = endpoint(state)
        && !matches!(migration.phase, MigrationPhase::Failed)
        && w.proxy.dialling != Some(&target)
    {
        actions.push(Action::OpenSourceProxy(target));
    }
    match migration.phase {
        MigrationPhase::Transferring => {
            let abort = stopping || state.abort_requested == Some(true);
            if abort && migration.abort.is_none() {
                let because = if stopping { "the VMI is being stopped" } else { "its abort was requested" };
                actions.push(Action::AbortMigration { uid: uid_of(state).to_owned(), because });
                actions.push(normal("Migrating", "VirtualMachineInstance is aborting migration."));
            }
            if stopping {
                // The guest is asked to power off meanwhile.
                return (!actions.is_empty()).then_some(actions);
            }
            actions.push(requeue(30, "the guest is migrating"));
        }
        MigrationPhase::SwitchingOver => actions.push(requeue(5, "the target is starting the guest")),
        MigrationPhase::Undecided => actions.push(requeue(5, "it is not known whether the guest runs on the target")),
        MigrationPhase::Completed => actions.push(requeue(5, "the guest has moved, and its new node has not taken it")),
        MigrationPhase::Failed => return None, // reported in the status
        MigrationPhase::Ready | MigrationPhase::Unknown => {
            actions.push(requeue(5, "cannot parse the launcher's migration state"));
        }
    }
    Some(actions)
}

/// Copies the launcher's report into the status.
pub(crate) fn report(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    launcher: &LauncherState,
    status: &mut VirtualMachineInstanceStatus,
) {
    let Some(state) = outbound(w, vmi).filter(|state| !state.is_over()) else { return };
    let Some(new) = status.migration_state.as_mut() else { return };
    match seen(launcher, state) {
        Some(migration) => {
            from_launcher(migration, new, w.now);
            if migration.mode == Some(MigrationMode::Paused) {
                paused(launcher, &mut status.conditions, w.now);
            }
        }
        None if state.abort_requested == Some(true) => {
            new.abort_status = Some(MigrationAbortStatus::Succeeded);
            fail(new, ABORTED, w.now);
        }
        None => {
            if let Some(why) = cannot_begin(w) {
                fail(new, &why, w.now);
            }
        }
    }
}

fn from_launcher(migration: &Migration, new: &mut VirtualMachineInstanceMigrationState, now: Timestamp) {
    if new.start_timestamp.is_none() {
        new.start_timestamp = Some(time(migration.started_at.unwrap_or(now)));
    }
    new.mode = migration.mode.clone().or_else(|| new.mode.take());
    if migration.abort.is_some() {
        new.abort_status = migration.abort.clone();
    }
    if migration.phase == MigrationPhase::Failed {
        let why = migration.failure.as_deref().unwrap_or("virt-launcher reported no reason");
        fail(new, why, migration.ended_at.unwrap_or(now));
    }
}

fn paused(launcher: &LauncherState, conditions: &mut Vec<Condition>, now: Timestamp) {
    let stands = launcher.domain.as_ref().is_some_and(|domain| domain.status == DomainStatus::Paused);
    if stands && api::conditions::find(conditions, PAUSED).is_none() {
        let message = "VMI was paused by the migration monitor";
        set(conditions, Condition::new(PAUSED, ConditionStatus::True, PAUSED_BY_MIGRATION, message, time(now)));
    }
}

/// Why the launcher could not even be asked to start.
fn cannot_begin(w: &World<'_>) -> Option<String> {
    let failure = w.failure.filter(|failure| {
        matches!(failure.action, ActionKind::Migrate | ActionKind::OpenSourceProxy)
            && (failure.critical || failure.count >= ATTEMPTS)
    })?;
    Some(failure.message.clone())
}

/// The guest may be on the target, so its end cannot be reported here.
pub(crate) fn is_elsewhere(w: &World<'_>, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = outbound(w, vmi).filter(|state| !state.is_over()) else { return false };
    match w.launcher.verdict(w.now) {
        Verdict::Gone => state.start_timestamp.is_some() || w.launcher.told_of(uid_of(state)),
        Verdict::Connected(launcher) => has_moved(launcher) || is_ahead(launcher, state),
        Verdict::NotInitialised | Verdict::Silent => false,
    }
}

fn has_moved(launcher: &LauncherState) -> bool {
    launcher.domain.as_ref().is_some_and(|domain| domain.is_down() && domain.reason == DomainReason::Migrated)
}

/// Post-copy: the guest runs on the target while the rest of its memory is still here. If the connection breaks now,
/// the launcher recovers it, and reports when it gives up.
fn is_ahead(launcher: &LauncherState, state: &VirtualMachineInstanceMigrationState) -> bool {
    seen(launcher, state).is_some_and(|migration| {
        migration.mode == Some(MigrationMode::PostCopy) && migration.phase != MigrationPhase::Failed
    })
}

/// Why the guest is lost: it has left, and the target does not have it, or not all of it.
pub(crate) fn lost(w: &World<'_>, vmi: &VirtualMachineInstance) -> Option<String> {
    let state = outbound(w, vmi)?;
    let told = has_failed(state).then(|| state.failure_reason.as_deref().unwrap_or("target reported no reason"));
    let why = match w.launcher.verdict(w.now) {
        Verdict::Connected(launcher) => {
            let migration = seen(launcher, state)?;
            let given_up = migration.phase == MigrationPhase::Failed && migration.mode == Some(MigrationMode::PostCopy);
            if given_up && !runs(launcher) {
                told.or(migration.failure.as_deref())
            } else {
                told.filter(|_| has_moved(launcher))
            }
        }
        Verdict::Gone => told.filter(|_| state.mode == Some(MigrationMode::PostCopy)),
        Verdict::NotInitialised | Verdict::Silent => None,
    };
    why.map(|why| format!("the guest was lost during migration: {why}"))
}

fn runs(launcher: &LauncherState) -> bool {
    launcher.domain.as_ref().is_some_and(|domain| domain.status == DomainStatus::Running)
}

/// The launcher is gone and the guest may be on the target: records that, and waits for the target's report.
pub(crate) fn ask_target(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let waiting = requeue(5, "source is gone; waiting for the target node to report whether the guest arrived");
    let uid = outbound(w, vmi).map(uid_of).unwrap_or_default();
    if annotation(vmi, SOURCE_GONE) == Some(uid) {
        return vec![waiting];
    }
    let mut new = vmi.clone();
    new.metadata.annotations.get_or_insert_default().insert(SOURCE_GONE.to_owned(), uid.to_owned());
    vec![Action::UpdateVmi(Box::new(new)), waiting]
}

/// The guest belongs to another VMI. What is left of it here is stopped, and then this VMI ends.
pub(crate) fn sent(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    match w.launcher.verdict(w.now) {
        Verdict::NotInitialised | Verdict::Silent => return vec![requeue(1, "the launcher does not answer")],
        Verdict::Connected(launcher) if launcher.domain.as_ref().is_some_and(|domain| !domain.is_down()) => {
            return left_behind(w, vmi, launcher);
        }
        Verdict::Connected(_) | Verdict::Gone => {}
    }
    if state_of(vmi).is_none_or(|state| state.completed != Some(true)) {
        return vec![requeue(5, "the guest's new node has not finished with it")];
    }
    let mut new = vmi.status.clone().unwrap_or_default();
    set_phase(&mut new, &Phase::Succeeded, w.now);
    let message = "The guest runs in another VirtualMachineInstance.";
    vec![Action::UpdateStatus(Box::new(new)), normal("Migrated", message)]
}

/// The VMI belongs to another node or Pod. A launcher whose guest has moved is told so, and exits.
pub(crate) fn left_behind(w: &World<'_>, vmi: &VirtualMachineInstance, launcher: &LauncherState) -> Vec<Action> {
    let state = state_of(vmi).filter(|state| state.source_pod.is_some() && state.source_pod.as_deref() == w.pod_name);
    let moved = state.filter(|state| !has_failed(state) && state.end_timestamp.is_some());
    let alive = launcher.domain.as_ref().is_some_and(|domain| !domain.is_down());
    let taken_part = launcher.migration.is_some();
    if let Some(state) = moved
        && alive
    {
        return match seen(launcher, state).map(|migration| migration.phase) {
            Some(MigrationPhase::Undecided) => settle(w, state, true),
            // The target's answer is about to arrive, which ends the guest here.
            Some(MigrationPhase::Transferring | MigrationPhase::SwitchingOver) => {
                vec![requeue(1, "the guest has moved")]
            }
            _ => kill(w, "the guest has moved to another node"),
        };
    }
    let mut actions = if w.proxy.is_open() { vec![Action::CloseProxies] } else { Vec::new() };
    if taken_part && !alive {
        let waiting = "the launcher is about to end";
        match resend_in(w.sent.delete, w.now) {
            Some(delay) => actions.push(Action::RequeueAfter { delay, because: waiting }),
            None => {
                actions.push(Action::Delete { because: "its guest is elsewhere" });
                actions.push(requeue(5, waiting));
            }
        }
    }
    actions
}

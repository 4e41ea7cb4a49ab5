use std::time::Duration;

use api::annotations::{PCI_TOPOLOGY_VERSION, pci_topology};
use api::conditions::SYNCHRONIZED;
use api::labels;
use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;

use crate::action::{normal, requeue, warning};
use crate::launcher::{Verdict, since};
use crate::phase::phase;
use crate::shutdown::{kill, resend_in, shutdown};
use crate::{
    Action, ActionKind, DomainReason, DomainState, DomainStatus, Failure, LauncherState, Network, Vmi, World, growth,
    io_retry, migration, status, volumes,
};

/// The time from the hand-over on that a defined domain has to start.
const SLOW_START: Duration = Duration::from_secs(5 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Decides what to do next.
///
/// # Guarantees
/// - If nothing is left to do, the only action is [`Action::RequeueAfter`].
/// - [`Action::SyncDomain`] is never returned for a launcher whose guest was asked to power off, nor while another
///   launcher of the same VMI is on the node.
/// - No guest is stopped based on a cache alone.
///
/// # Caveats
/// The order matters: an action relies on those before it. The caller stops at the first failure, reports it in
/// [`World::failure`] and calls this again.
pub fn decide(w: &World<'_>) -> Vec<Action> {
    let actions = match w.vmi {
        Vmi::Unconfirmed => vec![requeue(1, "the API server has not confirmed that the VMI is gone")],
        Vmi::Absent => abandoned(w),
        Vmi::Present(vmi) if migration::is_target(w, vmi) => migration::target::decide(w, vmi),
        // It waits to receive a guest from another VMI: it must never boot one of its own.
        Vmi::Present(vmi) if vmi.receives() => foreign(w, vmi),
        Vmi::Present(vmi) if migration::was_sent(w, vmi) && !vmi.is_final() => migration::source::sent(w, vmi),
        Vmi::Present(vmi) if !owned(vmi, w.node_name) || migration::has_left(w, vmi) => foreign(w, vmi),
        Vmi::Present(vmi) if vmi.is_final() => ended(w),
        Vmi::Present(vmi) if is_ours(vmi) => live(w, vmi),
        // The controller has not handed it over yet.
        Vmi::Present(_) => Vec::new(),
    };
    pace(w, actions)
}

fn owned(vmi: &VirtualMachineInstance, node: &str) -> bool {
    let label = vmi.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODE_NAME));
    let status = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    label.map(String::as_str) == Some(node) || status == Some(node)
}

fn is_ours(vmi: &VirtualMachineInstance) -> bool {
    !matches!(vmi.phase(), None | Some(Phase::Pending | Phase::Scheduling))
}

/// The VMI belongs to another node or Pod; this launcher is a leftover that ends with its Pod, unless a migration has
/// left it behind.
fn foreign(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    match w.launcher.verdict(w.now) {
        Verdict::Gone if w.has_record => vec![Action::CleanUp],
        Verdict::Connected(state) => migration::source::left_behind(w, vmi, state),
        _ => Vec::new(),
    }
}

/// The VMI is gone: its guest must be stopped.
fn abandoned(w: &World<'_>) -> Vec<Action> {
    if !w.has_record {
        return Vec::new();
    }
    match w.launcher.verdict(w.now) {
        Verdict::NotInitialised | Verdict::Silent => vec![requeue(1, "the launcher of a deleted VMI does not answer")],
        Verdict::Gone => vec![Action::CleanUp],
        Verdict::Connected(LauncherState { domain: Some(domain), .. }) if is_unclear(domain) => unclear(),
        Verdict::Connected(state) => match state.domain.as_ref().filter(|domain| !domain.is_down()) {
            Some(domain) => shutdown(w, state, domain),
            None => vec![Action::Delete { because: "the VMI is gone" }, Action::CleanUp],
        },
    }
}

/// The phase is final: the rest of the guest is cleaned up.
fn ended(w: &World<'_>) -> Vec<Action> {
    if !w.has_record {
        return Vec::new();
    }
    match w.launcher.verdict(w.now) {
        Verdict::NotInitialised | Verdict::Gone => vec![Action::CleanUp],
        Verdict::Silent => vec![requeue(1, "the launcher of an ended VMI does not answer")],
        Verdict::Connected(LauncherState { domain: Some(domain), .. }) if is_unclear(domain) => unclear(),
        Verdict::Connected(LauncherState { domain: Some(domain), .. }) if !domain.is_down() => {
            kill(w, "the VMI has ended and its guest has not")
        }
        Verdict::Connected(_) => {
            let deleted = normal("Deleted", "Signaled Deletion");
            vec![Action::Delete { because: "the VMI has ended" }, deleted, Action::CleanUp]
        }
    }
}

fn live(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let verdict = w.launcher.verdict(w.now);
    if let Verdict::Connected(LauncherState { domain: Some(domain), .. }) = verdict
        && is_unclear(domain)
    {
        return unclear();
    }
    let (phase, why) = phase(w, vmi);
    let changes = vmi.phase() != Some(&phase);
    let mut actions = report(w, vmi, &phase, why.as_deref());
    if changes {
        return actions; // the event of the phase write requeues us
    }
    actions.extend(match verdict {
        Verdict::NotInitialised => vec![requeue(1, "the launcher is not ready yet")],
        Verdict::Silent => vec![requeue(1, "the launcher does not answer")],
        Verdict::Gone if migration::source::is_elsewhere(w, vmi) => migration::source::ask_target(w, vmi),
        Verdict::Gone => Vec::new(), // unreachable: the phase would have changed
        Verdict::Connected(state) => migration::source::act(w, vmi, state).unwrap_or_else(|| act(w, vmi, state)),
    });
    actions.extend(migration::close_entrance(w, vmi));
    // After a status write the object is no longer the version that was read; the event of the write requeues us.
    if !actions.iter().any(|action| action.kind() == Some(ActionKind::UpdateStatus)) {
        actions.extend(pci_layout(vmi, verdict));
    }
    actions
}

/// Records the PCI layout of a running guest without one: otherwise the next start of its VM could assign devices
/// differently. Our launchers only use one layout, that of new guests.
fn pci_layout(vmi: &VirtualMachineInstance, verdict: Verdict<'_>) -> Option<Action> {
    let Verdict::Connected(LauncherState { domain: Some(domain), .. }) = verdict else { return None };
    let express = domain.os_machine.contains("q35") || domain.os_machine.starts_with("virt");
    let known = vmi.metadata.annotations.iter().any(|all| all.contains_key(PCI_TOPOLOGY_VERSION));
    if known || !express || !vmi.is_running() || domain.is_down() {
        return None;
    }
    let mut new = vmi.clone();
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.insert(PCI_TOPOLOGY_VERSION.to_owned(), pci_topology::V3.to_owned());
    Some(Action::UpdateVmi(Box::new(new)))
}

/// Writes the observed status, and records an event for a new phase.
fn report(w: &World<'_>, vmi: &VirtualMachineInstance, phase: &Phase, why: Option<&str>) -> Vec<Action> {
    let Some(new) = status::status(w, vmi, phase, why) else { return Vec::new() };
    let had_failure = vmi.condition(SYNCHRONIZED).is_some_and(|condition| condition.is_false());
    let failing = w.failure.filter(|failure| is_about_the_guest(failure)).map(|failure| failure.message.as_str());
    let plugged = volumes::events(vmi.status.as_ref().map_or(&[], |status| &status.volume_status), &new.volume_status);
    let mut actions = vec![Action::UpdateStatus(Box::new(new))];
    if let Some(message) = failing.or_else(|| volumes::trouble(w)).filter(|_| !had_failure) {
        actions.push(warning("SyncFailed", message));
    }
    actions.extend(plugged);
    if let Some(why) = failed_migration(vmi, &actions) {
        actions.push(warning("Migrated", format!("VirtualMachineInstance migration failed: {why}")));
    }
    if vmi.phase() != Some(phase) {
        match phase {
            Phase::Running => {
                actions.push(normal("Started", "VirtualMachineInstance started."));
                let launcher = w.launcher.state.map(|(state, _)| state.small_volumes.as_slice()).unwrap_or_default();
                actions.extend(launcher.iter().map(|sentence| warning("ToleratedSmallPV", sentence)));
            }
            Phase::Succeeded => actions.push(normal("Stopped", "The VirtualMachineInstance was shut down.")),
            Phase::Failed => {
                actions.push(warning("Stopped", failed_because(w, why)));
            }
            _ => {}
        }
    }
    actions
}

/// The reason of a migration that is about to be reported as failed.
fn failed_migration(vmi: &VirtualMachineInstance, actions: &[Action]) -> Option<String> {
    let Some(Action::UpdateStatus(new)) = actions.first() else { return None };
    let state = new.migration_state.as_ref().filter(|state| migration::has_failed(state))?;
    let before = migration::state_of(vmi).is_some_and(migration::has_failed);
    (!before).then(|| state.failure_reason.clone().unwrap_or_default())
}

fn failed_because(w: &World<'_>, why: Option<&str>) -> String {
    match (why, w.launcher.outcome().map(|domain| domain.reason)) {
        (Some(why), _) => format!("The VirtualMachineInstance failed: {why}."),
        (None, Some(DomainReason::Destroyed)) => {
            "The VirtualMachineInstance was killed before its guest powered off.".to_string()
        }
        (None, _) => "The VirtualMachineInstance crashed.".to_string(),
    }
}

/// Failures that concern the guest, as opposed to our own bookkeeping.
pub(crate) fn is_about_the_guest(failure: &Failure) -> bool {
    use crate::ActionKind::*;
    match failure.action {
        ConfigureNetwork | SyncDomain | DumpMemory | Shutdown | Kill | Delete => true,
        // Their failures are told by the volumes.
        MountVolumes | UnmountVolumes | SyncVolumes => false,
        CleanUp | UpdateStatus | UpdateVmi | PrepareTarget | OpenTargetProxy | OpenSourceProxy | CloseProxies
        | Migrate | AbortMigration | SettleMigration | FinalizeTarget => false,
    }
}

/// The launcher responds, and the stored phase matches its domain.
fn act(w: &World<'_>, vmi: &VirtualMachineInstance, state: &LauncherState) -> Vec<Action> {
    let alive = state.domain.as_ref().filter(|domain| !domain.is_down());
    let stopping = vmi.is_marked_for_deletion() || (state.marked_for_graceful_shutdown && vmi.is_running());
    match (alive, &state.domain) {
        (Some(domain), _) if stopping => shutdown(w, state, domain),
        (Some(domain), _) => {
            let mut actions = volumes::follow(w, vmi, state, domain);
            actions.extend(keep(w, vmi, state, domain));
            actions
        }
        (None, Some(domain)) if !stopping && is_slow_start(w, vmi, domain) => {
            let mut actions = start(w, vmi, state);
            actions.push(requeue(5, "the domain is defined and not up yet"));
            actions
        }
        (None, Some(_)) => delete(w, "the domain is down"),
        (None, None) if stopping => delete(w, "the VMI is being deleted"),
        (None, None) if vmi.is_running() => vec![requeue(1, "the launcher has no domain for a running guest")],
        (None, None) => start(w, vmi, state),
    }
}

/// The launcher exits some time after it accepted the command; until then there is nothing else to do.
fn delete(w: &World<'_>, because: &'static str) -> Vec<Action> {
    let waiting = "the launcher is about to end";
    match resend_in(w.sent.delete, w.now) {
        Some(delay) => vec![Action::RequeueAfter { delay, because: waiting }],
        None => vec![Action::Delete { because }, normal("Deleted", "Signaled Deletion"), requeue(5, waiting)],
    }
}

/// libvirt reports a domain as shut off, without a reason, from its definition until QEMU runs.
fn is_slow_start(w: &World<'_>, vmi: &VirtualMachineInstance, domain: &DomainState) -> bool {
    let handed_over = || {
        let transitions = &vmi.status.as_ref()?.phase_transition_timestamps;
        let scheduled = transitions.iter().find(|t| t.phase == Some(Phase::Scheduled))?;
        Some(scheduled.phase_transition_timestamp.as_ref()?.0)
    };
    let created = || vmi.metadata.creation_timestamp.as_ref().map(|time| time.0);
    domain.status == DomainStatus::Shutoff
        && domain.reason == DomainReason::Unknown
        && vmi.is_scheduled()
        && handed_over().or_else(created).is_some_and(|at| since(at, w.now) <= SLOW_START)
}

fn start(w: &World<'_>, vmi: &VirtualMachineInstance, state: &LauncherState) -> Vec<Action> {
    if shutdown_began(w, state) {
        return vec![requeue(1, "the launcher Pod is being stopped before its guest started")];
    }
    if w.rival {
        return vec![requeue(1, "another launcher of this VMI is still on the node")];
    }
    if let Some(delay) = resend_in(w.sent.sync, w.now) {
        return vec![Action::RequeueAfter { delay, because: "the launcher was told to start the guest" }];
    }
    match w.network {
        Network::Pending => vec![Action::ConfigureNetwork],
        Network::Interrupted => Vec::new(), // unreachable: the phase would have changed
        Network::Finished(_) if let Some(waiting) = volumes::before_start(w, vmi) => waiting,
        Network::Finished(_) if state.domain.is_some() => vec![Action::SyncDomain { because: "the guest is not up" }],
        Network::Finished(_) => vec![
            Action::SyncDomain { because: "the guest is to run" },
            normal("Created", "VirtualMachineInstance defined."),
        ],
    }
}

/// A running guest needs nothing, unless a claim of it has grown or it is paused by an I/O error.
fn keep(w: &World<'_>, vmi: &VirtualMachineInstance, state: &LauncherState, domain: &DomainState) -> Vec<Action> {
    if shutdown_began(w, state) {
        return Vec::new();
    }
    if domain.status != DomainStatus::Paused || domain.reason != DomainReason::PausedIOError {
        return grow(w, vmi, domain);
    }
    let because = "the guest is paused by an IO error";
    let (retry, action) = match io_retry::step(w.io_retry, w.now) {
        io_retry::Step::Resume(retry) => (retry, Action::SyncDomain { because }),
        io_retry::Step::Wait { delay, retry } => (retry, Action::RequeueAfter { delay, because }),
    };
    if w.io_retry == Some(retry) { vec![action] } else { vec![Action::RememberIoRetry(retry), action] }
}

fn grow(w: &World<'_>, vmi: &VirtualMachineInstance, domain: &DomainState) -> Vec<Action> {
    if !w.expand_disks || domain.status != DomainStatus::Running {
        return Vec::new();
    }
    let Some(bytes) = growth::due(vmi, domain) else { return Vec::new() };
    let tried = w.sent.growth.filter(|(_, tried)| *tried == bytes).map(|(at, _)| at);
    match tried.and_then(|at| growth::AGAIN.checked_sub(since(at, w.now))).filter(|left| !left.is_zero()) {
        Some(delay) => vec![Action::RequeueAfter { delay, because: "the claim of a disk is larger than the disk" }],
        None => vec![Action::GrowDisks { bytes }],
    }
}

pub(crate) fn shutdown_began(w: &World<'_>, state: &LauncherState) -> bool {
    state.shutdown_requested_at.is_some() || state.marked_for_graceful_shutdown || w.sent.shutdown.is_some()
}

fn is_unclear(domain: &DomainState) -> bool {
    domain.status == DomainStatus::Unknown
}

fn unclear() -> Vec<Action> {
    vec![requeue(5, "the state of the domain is unknown")]
}

/// Delays an action that has just failed, and all actions after it.
fn pace(w: &World<'_>, mut actions: Vec<Action>) -> Vec<Action> {
    let Some(failure) = w.failure else { return actions };
    let Some(index) = actions.iter().position(|action| action.kind() == Some(failure.action)) else { return actions };
    let Some(delay) = retry_in(failure, w.now) else { return actions };
    actions.truncate(index);
    actions.push(Action::RequeueAfter { delay, because: "the last attempt failed" });
    actions
}

fn retry_in(failure: &Failure, now: Timestamp) -> Option<Duration> {
    backoff(failure.count).checked_sub(since(failure.at, now)).filter(|left| !left.is_zero())
}

/// The time between two attempts after so many failures in a row.
pub(crate) fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    FIRST_RETRY.saturating_mul(1 << doublings).min(LAST_RETRY)
}

//! What each run strategy requires for an existing or missing VMI.

use std::time::Duration;

use api::v1::{
    Between, RunStrategy, VirtualMachineInstance, VirtualMachineInstanceMigrationState as MigrationState,
    VirtualMachineInstancePhase as Phase, VirtualMachineSpec,
};
use api::{annotations, conditions, reasons};
use json_patch::Patch;

use super::backoff;
use super::world::World;
use crate::guard::Guarded;
use crate::{SyncError, meta};

/// How often the two sides of a decentralized migration are checked.
const BETWEEN_INSTANCES: Duration = Duration::from_secs(2);

pub(super) enum Verdict {
    /// Nothing to do; the reason why there is no VMI, if there is none.
    Leave(&'static str),
    Start(Start),
    /// `rerun`: it failed, and the run strategy requires a new one.
    Delete {
        because: &'static str,
        rerun: bool,
    },
    /// Not yet, with a message and the time to requeue after.
    Wait(String, Duration),
    /// The run strategy itself has to change first.
    Switch(Patch),
    Refuse(SyncError),
}

/// How a VMI is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) paused: bool,
    /// It receives a guest instead of booting one.
    pub(super) as_receiver: bool,
}

pub(super) fn judge(w: &World) -> Verdict {
    let strategy = match w.vm.run_strategy() {
        Ok(strategy) => strategy,
        Err(error) => return Verdict::Refuse(SyncError::new(reasons::FAILED_CREATE, error.to_string())),
    };
    if let RunStrategy::Other(_) = strategy {
        let message = format!(
            "run strategy {strategy} is not known; use Always, RerunOnFailure, Manual, Halted or Once in spec.runStrategy"
        );
        return Verdict::Refuse(SyncError::new(reasons::FAILED_CREATE, message));
    }
    match w.instance() {
        Some(vmi) => existing(w, &strategy, vmi),
        None => absent(w, &strategy),
    }
}

fn existing(w: &World, strategy: &RunStrategy, vmi: &VirtualMachineInstance) -> Verdict {
    let delete = |because| Verdict::Delete { because, rerun: false };
    let stop = w.stop_requested(vmi);
    match strategy {
        RunStrategy::Halted => delete("the virtual machine is halted"),
        // A guest that may run elsewhere is not started here, whatever happened to its VMI.
        RunStrategy::Always | RunStrategy::RerunOnFailure if vmi.is_final() && is_being_sent(vmi) => {
            Verdict::Wait("its guest is migrating to another VMI".to_owned(), BETWEEN_INSTANCES)
        }
        RunStrategy::Always if stop || vmi.is_final() => always(w, vmi, stop),
        RunStrategy::RerunOnFailure if !vmi.is_marked_for_deletion() && (stop || vmi.is_final()) => {
            let failed = vmi.phase() == Some(&Phase::Failed) && !has_been_sent(vmi);
            let because = match (vmi.is_final(), failed) {
                (false, _) => "a stop was requested",
                (true, true) => "the instance has failed and is replaced",
                (true, false) => "the instance has succeeded",
            };
            Verdict::Delete { because, rerun: failed }
        }
        RunStrategy::Manual if stop => delete("a stop was requested"),
        RunStrategy::WaitAsReceiver if !vmi.receives() => received(w, vmi),
        _ => Verdict::Leave(""),
    }
}

/// A guest that has moved to another VMI is not started here again.
fn always(w: &World, vmi: &VirtualMachineInstance, stop: bool) -> Verdict {
    let because = if stop { "a stop was requested" } else { "the instance has ended and is replaced" };
    if has_been_sent(vmi) {
        return switch(w, RunStrategy::Halted);
    }
    if is_being_sent(vmi) {
        return Verdict::Wait("its guest is migrating to another VMI".to_owned(), BETWEEN_INSTANCES);
    }
    Verdict::Delete { because, rerun: false }
}

/// A guest that has arrived is from now on subject to its owner's run strategy.
fn received(w: &World, vmi: &VirtualMachineInstance) -> Verdict {
    if !has_moved(vmi) {
        let message = "the VMI is not a receiver, but spec.runStrategy is WaitAsReceiver; \
                       delete the instance or choose another strategy";
        return Verdict::Refuse(SyncError::new(reasons::FAILED_CREATE, message));
    }
    match meta::annotation(&w.vm.metadata, annotations::RESTORE_RUN_STRATEGY) {
        Some(strategy) => switch(w, strategy.into()),
        None => Verdict::Leave(""),
    }
}

fn migration_state(vmi: &VirtualMachineInstance) -> Option<&MigrationState> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

fn has_moved(vmi: &VirtualMachineInstance) -> bool {
    migration_state(vmi).is_some_and(|state| state.completed == Some(true) && state.failed != Some(true))
}

fn sends(vmi: &VirtualMachineInstance) -> bool {
    migration_state(vmi).and_then(|state| state.between()) == Some(Between::Sends)
}

fn has_been_sent(vmi: &VirtualMachineInstance) -> bool {
    sends(vmi) && has_moved(vmi)
}

/// virt-handler has what it needs to send the guest, and no outcome has been reported.
fn is_being_sent(vmi: &VirtualMachineInstance) -> bool {
    let under_way =
        |state: &MigrationState| state.migration_uid.is_some() && state.target_node.is_some() && !state.is_over();
    sends(vmi) && migration_state(vmi).is_some_and(under_way)
}

/// Whether the VMI must stay until the location of its guest is known, and until the VM is sure not to start another
/// VMI for a guest that has left. Only the VMI records this.
pub(super) fn holds_instance(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let starts = w.vm.run_strategy() == Ok(RunStrategy::Always);
    !w.vm.is_marked_for_deletion() && vmi.is_final() && (is_being_sent(vmi) || (starts && has_been_sent(vmi)))
}

fn absent(w: &World, strategy: &RunStrategy) -> Verdict {
    if w.hold_starts {
        return Verdict::Leave("cluster is shutting down; VMs are not started");
    }
    let paused = w.start_requested()
        && w.request().and_then(|request| request.data.get("paused")).is_some_and(|paused| paused == "true");
    let start = Verdict::Start(Start { paused, as_receiver: false });
    let verdict = match strategy {
        RunStrategy::Once => start,
        RunStrategy::WaitAsReceiver => Verdict::Start(Start { paused, as_receiver: true }),
        RunStrategy::Manual if w.start_requested() => start,
        RunStrategy::Manual => Verdict::Leave("the run strategy is Manual, and no start was requested"),
        RunStrategy::Halted if w.start_requested() => switch(w, RunStrategy::Always),
        RunStrategy::Halted => Verdict::Leave("the run strategy is Halted"),
        RunStrategy::Always => unless_backing_off(w, start),
        RunStrategy::RerunOnFailure if is_rerun(w, strategy) => unless_backing_off(w, start),
        _ => Verdict::Leave("the run strategy is RerunOnFailure, and the last instance did not fail"),
    };
    let blocked = w.vm.condition(conditions::MANUAL_RECOVERY_REQUIRED).is_some_and(|condition| condition.is_true());
    match verdict {
        Verdict::Start(_) if blocked => {
            Verdict::Leave("a change of its volumes was interrupted; see the condition ManualRecoveryRequired")
        }
        verdict => verdict,
    }
}

/// A start was requested, or the run strategy is new.
fn is_rerun(w: &World, strategy: &RunStrategy) -> bool {
    let last = w.vm.status.as_ref().and_then(|status| status.run_strategy.as_ref());
    w.start_requested() || last != Some(strategy)
}

fn unless_backing_off(w: &World, start: Verdict) -> Verdict {
    let failure = w.vm.status.as_ref().and_then(|status| status.start_failure.as_ref());
    let Some((failure, left)) = failure.and_then(|failure| Some((failure, backoff::left(failure, &w.now)?))) else {
        return start;
    };
    let count = failure.consecutive_fail_count.unwrap_or(0);
    let retry = failure.retry_after_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    Verdict::Wait(format!("{count} starts in a row have failed; the next one is tried at {retry}"), left)
}

/// Whether the VM is running or starting.
pub(super) fn is_set_to_start(w: &World, strategy: &RunStrategy) -> bool {
    let vmi = w.instance();
    match strategy {
        RunStrategy::Always => true,
        RunStrategy::Manual => vmi.map_or_else(|| w.start_requested(), |vmi| !w.stop_requested(vmi)),
        RunStrategy::RerunOnFailure => {
            vmi.map_or_else(|| is_rerun(w, strategy), |vmi| vmi.phase() != Some(&Phase::Succeeded))
        }
        RunStrategy::Once => vmi.is_none(),
        _ => false,
    }
}

/// Writes another run strategy into the field its owner uses. A request stays until there is a VMI.
fn switch(w: &World, strategy: RunStrategy) -> Verdict {
    let (old, mut new) = (&w.vm.spec, w.vm.spec.clone());
    let plain = matches!(strategy, RunStrategy::Always | RunStrategy::Halted);
    if old.running.is_some() && plain {
        new.running = Some(strategy == RunStrategy::Always);
    } else {
        new.running = None;
        new.run_strategy = Some(strategy);
    }
    let field = |spec: &VirtualMachineSpec| (spec.running, spec.run_strategy.clone());
    let ((old_running, old_strategy), (running, strategy)) = (field(old), field(&new));
    let patch = Guarded::new(&w.vm.metadata).whole(&["spec", "running"], &old_running, &running).whole(
        &["spec", "runStrategy"],
        &old_strategy,
        &strategy,
    );
    patch.build().map_or(Verdict::Leave(""), Verdict::Switch)
}

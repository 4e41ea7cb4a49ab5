//! What each run strategy says about the instance that exists, or does not.

use std::time::Duration;

use api::reasons;
use api::v1::{RunStrategy, VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use json_patch::Patch;

use super::backoff;
use super::world::World;
use crate::SyncError;
use crate::guard::Guarded;

pub(super) enum Verdict {
    Leave,
    Start {
        paused: bool,
    },
    /// `rerun`: it failed, and its strategy wants another one.
    Delete {
        because: &'static str,
        rerun: bool,
    },
    /// Starting would be right, but not yet.
    Wait(Duration),
    /// The strategy itself has to change first.
    Switch(Patch),
    Refuse(SyncError),
}

pub(super) fn judge(w: &World) -> Verdict {
    let strategy = match w.vm.run_strategy() {
        Ok(strategy) => strategy,
        Err(error) => return Verdict::Refuse(SyncError::new(reasons::FAILED_CREATE, error.to_string())),
    };
    if let RunStrategy::WaitAsReceiver | RunStrategy::Other(_) = strategy {
        let message = format!(
            "run strategy {strategy} is not supported; use Always, RerunOnFailure, Manual, Halted or Once in spec.runStrategy"
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
        RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Manual if stop => {
            delete("a stop was requested")
        }
        RunStrategy::Always if vmi.is_final() => delete("the instance has ended and is replaced"),
        RunStrategy::RerunOnFailure if vmi.is_final() && !vmi.is_marked_for_deletion() => {
            let failed = vmi.phase() == Some(&Phase::Failed);
            let because = if failed { "the instance has failed and is replaced" } else { "the instance has succeeded" };
            Verdict::Delete { because, rerun: failed }
        }
        _ => Verdict::Leave,
    }
}

fn absent(w: &World, strategy: &RunStrategy) -> Verdict {
    if w.hold_starts {
        return Verdict::Leave;
    }
    let paused = w.start_requested()
        && w.request().and_then(|request| request.data.get("paused")).is_some_and(|paused| paused == "true");
    let start = Verdict::Start { paused };
    let started_before = w.vm.status.as_ref().and_then(|status| status.run_strategy.as_ref()) == Some(strategy);
    match strategy {
        RunStrategy::Once => start,
        RunStrategy::Manual if w.start_requested() => start,
        RunStrategy::Halted if w.start_requested() => switch_on(w),
        RunStrategy::Always => unless_backing_off(w, start),
        RunStrategy::RerunOnFailure if w.start_requested() || !started_before => unless_backing_off(w, start),
        _ => Verdict::Leave,
    }
}

fn unless_backing_off(w: &World, start: Verdict) -> Verdict {
    let failure = w.vm.status.as_ref().and_then(|status| status.start_failure.as_ref());
    match failure.and_then(|failure| backoff::left(failure, &w.now)) {
        Some(left) => Verdict::Wait(left),
        None => start,
    }
}

/// A start request to a halted virtual machine means: run from now on. The request stays until there is an instance.
fn switch_on(w: &World) -> Verdict {
    let (old, mut new) = (&w.vm.spec, w.vm.spec.clone());
    if old.running.is_some() {
        new.running = Some(true);
    } else {
        new.run_strategy = Some(RunStrategy::Always);
    }
    let patch = Guarded::new(&w.vm.metadata).whole(&["spec", "running"], &old.running, &new.running).whole(
        &["spec", "runStrategy"],
        &old.run_strategy,
        &new.run_strategy,
    );
    patch.build().map_or(Verdict::Leave, Verdict::Switch)
}

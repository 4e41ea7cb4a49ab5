//! Start, stop and restart of a VM.
//!
//! The effect depends on the run strategy: if the strategy itself determines whether a VMI should exist, the strategy
//! is changed; if requests determine it, a request is added to the status for the controller.

use std::collections::BTreeMap;

use api::conditions;
use api::v1::{
    RunStrategy, StateChangeRequestAction, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase,
    VirtualMachineStateChangeRequest, VirtualMachineStatus,
};
use json_patch::Patch;
use machinery::patch::JsonPatch;
use serde::Serialize;
use serde_json::{Value, json};

use super::refusal::{Kind, Refusal};
use crate::options::{RestartOptions, StartOptions, StopOptions};

const VM: Kind = Kind::VirtualMachine;

/// The grace period of a forced restart. Zero would skip the guest's cleanup altogether.
const FORCED_GRACE_PERIOD: i64 = 1;

/// The key in a start request for starting the guest paused.
const START_PAUSED: &str = "paused";

/// One write, as a JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// To the virtual machine.
    Vm(Patch),
    /// To the virtual machine's status.
    VmStatus(Patch),
    /// To the VMI of the same name.
    Vmi(Patch),
}

/// The writes that implement a request, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Each is made only if the previous one succeeded.
    pub steps: Vec<Step>,
    /// Made if a step after the first fails, to restore the previous state.
    pub undo: Option<Step>,
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Plan { steps: vec![step], undo: None }
    }
}

/// Start.
pub fn start(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &StartOptions,
) -> Result<Plan, Refusal> {
    let refuse = |why: String| Err(Refusal::conflict(VM, name(vm), why));
    if vmi.is_some_and(is_up) {
        return refuse("VM is already running".to_owned());
    }
    if condition_is_true(vm, conditions::MANUAL_RECOVERY_REQUIRED) {
        return refuse(VOLUME_RECOVERY.to_owned());
    }
    let strategy = run_strategy(vm)?;
    let phase = vmi.and_then(phase);
    let restart_ended = match (&strategy, &phase) {
        (RunStrategy::Halted, _) if !options.paused => return Ok(set_running(vm, true).into()),
        (RunStrategy::Manual, Some(VirtualMachineInstancePhase::Succeeded | VirtualMachineInstancePhase::Failed)) => {
            true
        }
        (RunStrategy::RerunOnFailure, Some(VirtualMachineInstancePhase::Succeeded)) => true,
        (RunStrategy::RerunOnFailure, Some(VirtualMachineInstancePhase::Failed)) => {
            return refuse(format!("{strategy} does not support starting VM from failed state"));
        }
        (RunStrategy::Halted | RunStrategy::Manual | RunStrategy::RerunOnFailure, _) => false,
        _ => return refuse(format!("{strategy} does not support manual start requests")),
    };
    let mut requests = Vec::new();
    if let (true, Some(vmi)) = (restart_ended, vmi) {
        requests.push(stop_request(vmi));
    }
    requests.push(start_request(options.paused));
    Ok(request(vm, &requests)?.into())
}

/// Stop.
pub fn stop(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, options: &StopOptions) -> Result<Plan, Refusal> {
    let refuse = |why: String| Err(Refusal::conflict(VM, name(vm), why));
    if options.grace_period.is_some_and(|seconds| seconds < 0) {
        return Err(Refusal::bad_request("gracePeriod has to be greater or equal to 0"));
    }
    let strategy = run_strategy(vm)?;
    let running = vmi.filter(|vmi| !vmi.is_final());
    let last = match (&strategy, running) {
        (RunStrategy::Always | RunStrategy::Once, _) => set_running(vm, false),
        (RunStrategy::Halted | RunStrategy::Manual | RunStrategy::RerunOnFailure, None) => {
            return refuse("VM is not running".to_owned());
        }
        (RunStrategy::Halted, Some(vmi)) if !shortens_grace_period(vmi, options) => {
            let why = "VM is already being stopped; only a request with a shorter grace period is accepted";
            return refuse(why.to_owned());
        }
        (RunStrategy::Halted | RunStrategy::Manual | RunStrategy::RerunOnFailure, Some(vmi)) => {
            request(vm, &[stop_request(vmi)])?
        }
        _ => return refuse(format!("{strategy} does not support manual stop requests")),
    };
    // Decided before anything is written: a refused request must not shorten the guest's grace period.
    let grace = running.zip(options.grace_period).and_then(|(vmi, seconds)| set_grace_period(vmi, seconds));
    Ok(Plan { steps: grace.into_iter().chain([last]).collect(), undo: None })
}

/// Restart.
pub fn restart(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &RestartOptions,
) -> Result<Plan, Refusal> {
    let refuse = |why: String| Err(Refusal::conflict(VM, name(vm), why));
    match options.grace_period_seconds {
        Some(seconds) if seconds < 0 => {
            return Err(Refusal::bad_request("gracePeriodSeconds has to be greater or equal to 0"));
        }
        Some(seconds) if seconds > 0 => {
            return Err(Refusal::bad_request("For force restart, only gracePeriod=0 is supported for now"));
        }
        _ => {}
    }
    if condition_is_true(vm, conditions::VOLUMES_CHANGE) {
        return refuse(VOLUME_RECOVERY.to_owned());
    }
    let strategy = run_strategy(vm)?;
    if matches!(strategy, RunStrategy::Halted | RunStrategy::Once) {
        return refuse(format!("{strategy} does not support manual restart requests"));
    }
    let Some(vmi) = vmi else { return refuse("VM is not running".to_owned()) };
    let again = request(vm, &[stop_request(vmi), start_request(false)])?;
    if options.grace_period_seconds.is_none() {
        return Ok(again.into());
    }
    let force = set_grace_period(vmi, FORCED_GRACE_PERIOD);
    let undo = restore_grace_period(vmi, FORCED_GRACE_PERIOD);
    Ok(Plan { steps: force.into_iter().chain([again]).collect(), undo })
}

const VOLUME_RECOVERY: &str = "VM recovery required: its volumes are only partly migrated; \
     set the original volumes in the template again, or finish the migration, before starting it";

fn name(vm: &VirtualMachine) -> &str {
    vm.metadata.name.as_deref().unwrap_or_default()
}

fn phase(vmi: &VirtualMachineInstance) -> Option<VirtualMachineInstancePhase> {
    vmi.status.as_ref()?.phase.clone()
}

/// Whether the VMI is running or starting, as far as known.
fn is_up(vmi: &VirtualMachineInstance) -> bool {
    use VirtualMachineInstancePhase::{Other, Unknown};
    match phase(vmi) {
        None | Some(Unknown) => false,
        Some(Other(phase)) if phase.is_empty() => false,
        Some(_) => !vmi.is_final(),
    }
}

fn condition_is_true(vm: &VirtualMachine, type_: &str) -> bool {
    vm.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, type_))
}

/// The effective run strategy.
fn run_strategy(vm: &VirtualMachine) -> Result<RunStrategy, Refusal> {
    match (vm.spec.running, &vm.spec.run_strategy) {
        (Some(_), Some(_)) => Err(Refusal::internal("spec.running and spec.runStrategy are mutually exclusive")),
        (Some(true), None) => Ok(RunStrategy::Always),
        (Some(false), None) | (None, None) => Ok(RunStrategy::Halted),
        (None, Some(strategy)) => Ok(strategy.clone()),
    }
}

/// Changes the run strategy in the field that its owner uses.
fn set_running(vm: &VirtualMachine, running: bool) -> Step {
    let strategy = if running { RunStrategy::Always } else { RunStrategy::Halted };
    Step::Vm(match vm.spec.running {
        Some(before) => change(&["spec", "running"], json!(before), json!(running)),
        None => change(&["spec", "runStrategy"], value(&vm.spec.run_strategy), value(&strategy)),
    })
}

fn stop_request(vmi: &VirtualMachineInstance) -> VirtualMachineStateChangeRequest {
    VirtualMachineStateChangeRequest {
        action: StateChangeRequestAction::Stop,
        uid: vmi.metadata.uid.clone(),
        ..Default::default()
    }
}

fn start_request(paused: bool) -> VirtualMachineStateChangeRequest {
    let data = if paused { BTreeMap::from([(START_PAUSED.to_owned(), "true".to_owned())]) } else { BTreeMap::new() };
    VirtualMachineStateChangeRequest { action: StateChangeRequestAction::Start, data, uid: None }
}

/// Adds requests for the controller. Pending requests are not replaced, except by a stop: a stop must always be
/// possible. This also ends a crash-loop back-off, since a user has intervened.
fn request(vm: &VirtualMachine, requests: &[VirtualMachineStateChangeRequest]) -> Result<Step, Refusal> {
    let mut patch = JsonPatch::new();
    let Some(status) = vm.status.as_ref().filter(|status| **status != VirtualMachineStatus::default()) else {
        let status = VirtualMachineStatus { state_change_requests: requests.to_vec(), ..Default::default() };
        patch.set(&["status"], value(&status));
        return Ok(Step::VmStatus(built(patch)));
    };
    let pending = &status.state_change_requests;
    let only_stop = matches!(requests, [one] if one.action == StateChangeRequestAction::Stop);
    if !pending.is_empty() && !only_stop {
        return Err(Refusal::internal("unable to complete request: stop/start already underway"));
    }
    let before = if pending.is_empty() { Value::Null } else { value(pending) };
    let path = &["status", "stateChangeRequests"];
    match value(&requests) {
        // The same stop again: nothing to write, but it must still be the pending one.
        same if same == before => patch.test(path, before),
        requests => patch.change(path, before, requests),
    };
    patch.change(&["status", "startFailure"], value(&status.start_failure), Value::Null);
    Ok(Step::VmStatus(built(patch)))
}

const GRACE_PERIOD: &[&str] = &["spec", "terminationGracePeriodSeconds"];

fn set_grace_period(vmi: &VirtualMachineInstance, seconds: i64) -> Option<Step> {
    let before = vmi.spec.termination_grace_period_seconds;
    (before != Some(seconds)).then(|| Step::Vmi(change(GRACE_PERIOD, value(&before), json!(seconds))))
}

/// The opposite of [`set_grace_period`].
fn restore_grace_period(vmi: &VirtualMachineInstance, seconds: i64) -> Option<Step> {
    let before = vmi.spec.termination_grace_period_seconds;
    (before != Some(seconds)).then(|| Step::Vmi(change(GRACE_PERIOD, json!(seconds), value(&before))))
}

/// A patch of one field, which applies only while the field is unchanged.
fn change(path: &[&str], before: Value, after: Value) -> Patch {
    let mut patch = JsonPatch::new();
    patch.change(path, before, after);
    built(patch)
}

fn built(patch: JsonPatch) -> Patch {
    patch.build().expect("callers only patch what is to change")
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("API types have string keys and serialize")
}

/// A second stop is only allowed if it shortens the grace period of the first.
fn shortens_grace_period(vmi: &VirtualMachineInstance, options: &StopOptions) -> bool {
    match (options.grace_period, vmi.spec.termination_grace_period_seconds) {
        (None, _) => false,
        (Some(new), Some(old)) => new < old,
        (Some(_), None) => true,
    }
}

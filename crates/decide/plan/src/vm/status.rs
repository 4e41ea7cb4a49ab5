//! Computes the VM's status from the observed state.

use api::v1::{
    Condition, ConditionStatus, StateChangeRequestAction, VirtualMachineInstance, VirtualMachineStateChangeRequest,
};
use api::{conditions, reasons};

use super::action::Action;
use super::decide::Plan;
use super::restart_required::Restart;
use super::update::is_done;
use super::world::World;
use super::{backoff, changed_blocks, memory_dump, printable, revision, volume_migration};

/// Conditions of our own; all others are mirrored from the VMI.
const OWN: [&str; 4] =
    [conditions::READY, conditions::FAILURE, conditions::RESTART_REQUIRED, conditions::MANUAL_RECOVERY_REQUIRED];

/// The write that updates the status, if it has changed.
pub(super) fn update(w: &World, plan: &Plan) -> Option<Action> {
    let mut vm = (*w.vm).clone();
    let vmi = w.instance();
    // An invalid run strategy starts nothing; the record of earlier starts is kept.
    let strategy = w.vm.run_strategy().unwrap_or_default();
    let status = vm.status_mut();
    status.created = vmi.map(|_| true);
    let ready = vmi.is_some_and(|vmi| vmi.has_condition(conditions::READY));
    status.ready = ready.then_some(true);
    status.desired_generation = vmi.map(|_| revision::generation(&w.vm));
    status.observed_generation = vmi.and_then(revision::observed_generation);
    if vmi.is_some() || status.run_strategy.is_some() {
        status.run_strategy = Some(strategy.clone()).filter(|strategy| !strategy.as_str().is_empty());
    }
    if let Some(refs) = &plan.refs {
        refs.record(status);
    }
    status.volume_requests.retain(|request| !is_done(request, &w.vm.spec.template.spec));
    status.memory_dump_request = status.memory_dump_request.as_ref().and_then(|old| memory_dump::progress(w, old));
    requests(&mut status.state_change_requests, vmi, plan.rerun);
    if w.vm.run_strategy().is_ok() {
        status.start_failure = backoff::record(status.start_failure.as_ref(), &strategy, vmi, &w.now);
    }
    volume_migration::keep_record(w, status);
    condition_list(w, plan, &mut status.conditions);
    let word = printable::status(w, &vm, &strategy);
    let status = vm.status_mut();
    status.printable_status = Some(word);
    status.changed_block_tracking = changed_blocks::status(w);
    let same = vm.status == w.vm.status;
    (!same).then(|| Action::ReplaceStatus(vm.into()))
}

/// Drops requests that are done or name a VMI that is gone; adds the start request that a failed VMI needs.
fn requests(list: &mut Vec<VirtualMachineStateChangeRequest>, vmi: Option<&VirtualMachineInstance>, rerun: bool) {
    let done = |request: &VirtualMachineStateChangeRequest| match request.action {
        StateChangeRequestAction::Stop => match (&request.uid, vmi) {
            (Some(uid), Some(vmi)) => Some(uid) != vmi.metadata.uid.as_ref(),
            _ => true,
        },
        StateChangeRequestAction::Start => vmi.is_some_and(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final()),
        StateChangeRequestAction::Other(_) => false,
    };
    while list.first().is_some_and(done) {
        list.remove(0);
    }
    let start = StateChangeRequestAction::Start;
    if rerun && !list.iter().any(|request| request.action == start) {
        list.push(VirtualMachineStateChangeRequest { action: start, ..Default::default() });
    }
}

fn condition_list(w: &World, plan: &Plan, list: &mut Vec<Condition>) {
    let vmi = w.instance();
    if let Some(vmi) = vmi {
        mirror(vmi, list);
    }
    put(list, ready(w, plan));
    match &plan.error {
        Some(error) => {
            let (type_, message) = (conditions::FAILURE, error.message.clone());
            put(list, Condition::new(type_, ConditionStatus::True, &error.reason, message, w.now.clone()));
        }
        None if !plan.attempts() => drop(conditions::remove(list, conditions::FAILURE)),
        None => {}
    }
    restart(w, plan, list);
}

/// Without a VMI there is nothing to restart.
fn restart(w: &World, plan: &Plan, list: &mut Vec<Condition>) {
    match &plan.restart {
        Restart::Unknown if w.living_instance().is_some() => {}
        Restart::Required(message) if w.living_instance().is_some() => {
            let type_ = conditions::RESTART_REQUIRED;
            put(list, Condition::new(type_, ConditionStatus::True, "", message, w.now.clone()));
        }
        _ => drop(conditions::remove(list, conditions::RESTART_REQUIRED)),
    }
}

/// Mirrors the VMI's conditions to the VM, removing those that the VMI no longer has.
fn mirror(vmi: &VirtualMachineInstance, list: &mut Vec<Condition>) {
    let theirs = vmi.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    list.retain(|condition| {
        OWN.contains(&condition.type_.as_str()) || conditions::find(theirs, &condition.type_).is_some()
    });
    theirs.iter().filter(|condition| condition.type_ != conditions::READY).for_each(|theirs| put(list, theirs.clone()));
}

/// The VMI's readiness; without a VMI, the reason for that.
fn ready(w: &World, plan: &Plan) -> Condition {
    let not = |reason, message: &str| {
        Condition::new(conditions::READY, ConditionStatus::False, reason, message, w.now.clone())
    };
    let Some(vmi) = w.instance() else {
        let why = plan.waits.as_deref().filter(|why| !why.is_empty());
        let why = why.or_else(|| plan.error.as_ref().map(|_| "see the condition Failure"));
        let message = "the virtual machine has no instance".to_owned();
        let message = why.map_or(message.clone(), |why| format!("{message}: {why}"));
        return not(reasons::VMI_NOT_EXISTS, &message);
    };
    let missing = || not(reasons::VMI_CONDITION_MISSING, "the instance has no Ready condition");
    vmi.condition(conditions::READY).cloned().unwrap_or_else(missing)
}

/// Stores a condition if anything changes, including its message: one writer copies from one source, so messages cannot
/// flap.
fn put(list: &mut Vec<Condition>, new: Condition) {
    match list.iter_mut().find(|old| old.type_ == new.type_) {
        None => list.push(new),
        Some(old) => {
            let says = |c: &Condition| (c.status.clone(), c.reason.clone(), c.message.clone());
            if says(old) != says(&new) {
                *old = new;
            }
        }
    }
}

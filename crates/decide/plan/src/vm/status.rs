//! The virtual machine's status, computed from what is seen.

use api::v1::{
    Condition, ConditionStatus, StateChangeRequestAction, VirtualMachineInstance, VirtualMachineStateChangeRequest,
};
use api::{conditions, reasons};

use super::action::Action;
use super::decide::Plan;
use super::world::World;
use super::{backoff, printable, revision};

/// Conditions that are ours; all others are the instance's, mirrored.
const OWN: [&str; 3] = [conditions::READY, conditions::FAILURE, conditions::RESTART_REQUIRED];

/// The write that brings the status up to date, if it is not.
pub(super) fn update(w: &World, plan: &Plan) -> Option<Action> {
    let mut vm = (*w.vm).clone();
    let vmi = w.instance();
    // A strategy that cannot be read starts nothing; what was known about earlier starts stays.
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
    requests(&mut status.state_change_requests, vmi, plan.rerun);
    if w.vm.run_strategy().is_ok() {
        status.start_failure = backoff::record(status.start_failure.as_ref(), &strategy, vmi, &w.now);
    }
    condition_list(w, plan, &mut status.conditions);
    let word = printable::status(w, &vm, &strategy);
    vm.status_mut().printable_status = Some(word);
    let same = vm.status == w.vm.status;
    (!same).then(|| Action::UpdateStatus(Box::new(vm)))
}

/// Drops requests that are done or mean an instance that is gone; asks for the start that a failed instance is owed.
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
    put(list, ready(w, vmi));
    match &plan.error {
        Some(error) => {
            let (type_, message) = (conditions::FAILURE, error.message.clone());
            put(list, Condition::new(type_, ConditionStatus::True, &error.reason, message, w.now.clone()));
        }
        None if !plan.attempts() => drop(conditions::remove(list, conditions::FAILURE)),
        None => {}
    }
    if revision::restart_required(w) {
        let message = "a field of the template was changed that the running instance cannot take over";
        let type_ = conditions::RESTART_REQUIRED;
        conditions::set(list, Condition::new(type_, ConditionStatus::True, "", message, w.now.clone()));
    } else {
        conditions::remove(list, conditions::RESTART_REQUIRED);
    }
}

/// The instance's conditions become the virtual machine's; what the instance dropped goes here, too.
fn mirror(vmi: &VirtualMachineInstance, list: &mut Vec<Condition>) {
    let theirs = vmi.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    list.retain(|condition| {
        OWN.contains(&condition.type_.as_str()) || conditions::find(theirs, &condition.type_).is_some()
    });
    theirs.iter().filter(|condition| condition.type_ != conditions::READY).for_each(|theirs| put(list, theirs.clone()));
}

fn ready(w: &World, vmi: Option<&VirtualMachineInstance>) -> Condition {
    let not = |reason, message: &str| {
        Condition::new(conditions::READY, ConditionStatus::False, reason, message, w.now.clone())
    };
    match vmi {
        None => not(reasons::VMI_NOT_EXISTS, "the virtual machine has no instance"),
        Some(vmi) => vmi
            .condition(conditions::READY)
            .cloned()
            .unwrap_or_else(|| not(reasons::VMI_CONDITION_MISSING, "the instance has no Ready condition")),
    }
}

/// Stores a condition if it says anything new, its message included: here one writer copies from one source, so words
/// cannot go back and forth.
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

//! # Expected flow
//!
//! ```text
//!  new VM ──► finalizer, firmware UUID, stamp ──► run strategy says start ──► revision, instance
//!                                                        ▲                        │
//!                        instance gone ◄── outcome recorded, finalizer off ◄── ended or deleted
//! ```
//!
//! # Guarantees
//!
//! - At most one instance, named like the virtual machine; never a creation and a deletion in one pass, and neither
//!   while an earlier one is not visible yet.
//! - Only the first state change request counts, and a stop only for the instance it names.
//! - The instance's finalizer goes after its outcome is on record: first the status, then the patch.
//! - An instance that ended without ever running is replaced only after a pause that grows with each failure in a row.
//!   The pause is derived from the failed instance's UID: the same world gives the same time.
//! - `printableStatus` is a function of what is seen, first matching row wins.
//! - A pass that changes nothing writes nothing.
//!
//! # Assumptions
//!
//! Admission fills the instance's defaults. Only this controller and the subresource API write the virtual machine's
//! status; both guard their writes.
//!
//! # Caveats
//!
//! This build applies no template change to a running instance; every change of the template's spec asks for a restart.

use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::{conditions, finalizers, reasons};

use super::action::Action;
use super::strategy::{self, Verdict};
use super::world::World;
use super::{revision, start, status};
use crate::guard::Guarded;
use crate::{Note, SyncError, meta};

/// A virtual machine that orphans what it owns leaves its instance running.
const ORPHAN: &str = "orphan";

/// What to do about one virtual machine.
pub fn decide(w: &World) -> Vec<Action> {
    if let Some(left) = w.behind {
        return vec![Action::RequeueAfter(left)];
    }
    if !w.vm.is_marked_for_deletion()
        && let Some(patch) = start::prepare(w)
    {
        return vec![Action::PatchVm(patch)]; // the patch brings us back here
    }
    if let Some(release) = release(w) {
        return vec![release];
    }
    let plan = sync(w);
    let comes_back =
        |action: &Action| matches!(action, Action::CreateVmi { .. } | Action::AdoptVmi { .. } | Action::PatchVm(_));
    if plan.actions.iter().any(comes_back) {
        return plan.actions; // what they change brings us back; the status reports what was seen, not hoped for
    }
    // The status goes first: the outcome is on record before anything is torn down.
    let mut actions: Vec<Action> = status::update(w, &plan).into_iter().collect();
    actions.extend(plan.actions);
    actions.extend(release_instance(w));
    actions
}

/// What the pass tries, and what it already knows to be wrong.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) error: Option<SyncError>,
    /// The failed instance is to be replaced although its strategy only starts on request.
    pub(super) rerun: bool,
}

impl Plan {
    fn act(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    /// Something among the actions can fail: an earlier failure is not over before it has succeeded.
    pub(super) fn attempts(&self) -> bool {
        self.actions.iter().any(|action| action.failure_reason().is_some())
    }
}

fn sync(w: &World) -> Plan {
    if let Some(error) = &w.failed {
        let note = Action::Note(Note::warning(&error.reason, error.message.clone()));
        return Plan { actions: vec![note], error: Some(error.clone()), rerun: false };
    }
    if w.vm.is_marked_for_deletion() {
        let keeps = meta::has_finalizer(&w.vm.metadata, ORPHAN);
        let vmi = w.instance().filter(|_| !keeps);
        return Plan::act(vmi.map(|vmi| delete(vmi, "the virtual machine is being deleted")).unwrap_or_default());
    }
    if let Some(vmi) = w.orphaned_instance() {
        return Plan::act(adopt(w, vmi).into_iter().collect());
    }
    let mut plan = carry_out(w, strategy::judge(w));
    plan.actions.extend(revision::bump(w));
    plan
}

fn carry_out(w: &World, verdict: Verdict) -> Plan {
    match verdict {
        Verdict::Leave => Plan::default(),
        Verdict::Delete { because, rerun } => {
            let actions = w.instance().map(|vmi| delete(vmi, because)).unwrap_or_default();
            Plan { actions, rerun, error: None }
        }
        Verdict::Start { paused } => match w.foreign_instance() {
            None => Plan::act(start::start(w, paused)),
            Some(vmi) => {
                let owner =
                    meta::controller_of(&vmi.metadata).map(|o| format!("{} {}", o.kind, o.name)).unwrap_or_default();
                let name = meta::name(&vmi.metadata);
                let message = format!("the VirtualMachineInstance {name} exists and belongs to {owner}");
                refuse(w, SyncError::new(reasons::FAILED_CREATE, message))
            }
        },
        Verdict::Wait(left) => Plan::act(vec![Action::RequeueAfter(left.max(Duration::from_secs(1)))]),
        Verdict::Switch(patch) => Plan::act(vec![Action::PatchVm(patch)]),
        Verdict::Refuse(error) => refuse(w, error),
    }
}

/// Nothing can be done before the user does something; said once by an event, and by a condition as long as it lasts.
fn refuse(w: &World, error: SyncError) -> Plan {
    let shown = w.vm.condition(conditions::FAILURE);
    let told = shown.is_some_and(|c| c.reason() == error.reason && c.message() == error.message);
    let note = (!told).then(|| Action::Note(Note::warning(&error.reason, error.message.clone())));
    Plan { actions: note.into_iter().collect(), error: Some(error), rerun: false }
}

fn delete(vmi: &VirtualMachineInstance, because: &'static str) -> Vec<Action> {
    if vmi.is_marked_for_deletion() {
        return vec![];
    }
    let (name, uid) = (meta::name(&vmi.metadata).to_owned(), meta::uid(&vmi.metadata).to_owned());
    let message = format!("Stopped the virtual machine by deleting the virtual machine instance {name} with uid {uid}");
    let note = Note::normal(reasons::SUCCESSFUL_DELETE, message);
    vec![Action::DeleteVmi { name, uid, because }, Action::Note(note)]
}

/// An ownerless instance of our name becomes ours, unless it is going.
fn adopt(w: &World, vmi: &VirtualMachineInstance) -> Option<Action> {
    if vmi.is_marked_for_deletion() {
        return None;
    }
    let owner = meta::controller_ref(w.vm.as_ref())?;
    let (name, uid) = (meta::name(&vmi.metadata).to_owned(), meta::uid(&vmi.metadata).to_owned());
    Some(Action::AdoptVmi { name, uid, owner })
}

/// An ended instance may go: the status before this action recorded its outcome.
fn release_instance(w: &World) -> Option<Action> {
    let vmi = w.instance().filter(|vmi| vmi.is_final())?;
    let mut meta = vmi.metadata.clone();
    meta::remove_finalizer(&mut meta, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    let patch = Guarded::new(&vmi.metadata).finalizers(&meta).build()?;
    Some(Action::PatchVmi { name: meta::name(&vmi.metadata).to_owned(), patch })
}

/// A deleted virtual machine goes when its instance is gone, or at once if it leaves the instance behind.
fn release(w: &World) -> Option<Action> {
    let leaves = meta::has_finalizer(&w.vm.metadata, ORPHAN);
    if !w.vm.is_marked_for_deletion() || (w.instance().is_some() && !leaves) {
        return None;
    }
    let mut meta = w.vm.metadata.clone();
    meta::remove_finalizer(&mut meta, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    Guarded::new(&w.vm.metadata).finalizers(&meta).build().map(Action::PatchVm)
}

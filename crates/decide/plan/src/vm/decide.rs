//! # Expected flow
//!
//! ```text
//!  new VM ─► finalizer, firmware UUID, stamp ─► instance type and preference on record ─► DataVolumes made and ready
//!                                                                                                │
//!       instance gone ◄─ outcome recorded, finalizer off ◄─ ended or deleted ◄─ revision, instance ◄─ run strategy
//!                                                                                    │
//!                     changes of the template that a running guest can take ─────────┘
//! ```
//!
//! # Guarantees
//!
//! - At most one VMI, named like the VM; never a creation and a deletion in one pass, and neither while an earlier one
//!   is not in the cache yet.
//! - Only the first state change request counts, and a stop request only for the VMI it names.
//! - The VMI's finalizer is removed after its outcome is recorded: first the status, then the patch.
//! - A VMI that ended without ever running is replaced only after a back-off that grows with each failure in a row. Its
//!   jitter is derived from the failed VMI's UID: the decision is deterministic.
//! - A DataVolume is cloned only from a source that the guest's own service account may read; a live access review
//!   checks this just before.
//! - An instance type or preference is captured before it is used.
//! - All changes of a pass to the VMI are one patch, guarded by the state they are based on.
//! - `printableStatus` is a function of the observed state; the first matching row wins.
//! - Whatever blocks a start is reported: by the condition `Failure` if a user has to act, else by `Ready`.
//! - A pass that changes nothing writes nothing.
//!
//! # Assumptions
//!
//! Admission sets the VMI's defaults. Only this controller and the subresource API write the VM's status; both guard
//! their writes.
//!
//! # Caveats
//!
//! A stop is unconditional: it happens even if a DataVolume is not ready or an instance type is missing, which in
//! KubeVirt prevent a running guest from being stopped. Live updates do not wait for DataVolumes either: the VMI
//! reports what a hot-plugged volume waits for. Volumes are not migrated between claims while a guest runs
//! (`updateVolumesStrategy: Migration`); only existing records of such a migration are kept.

use std::time::Duration;

use api::v1::{RunStrategy, VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use api::{annotations, conditions, events, finalizers, reasons};

use super::action::{self, Action, BOOKKEEPING, Look, Own, patch_vm};
use super::data_volumes::{self, Provision};
use super::instancetype::{self, Refs};
use super::restart_required::Restart;
use super::strategy::{self, Verdict};
use super::world::World;
use super::{start, status, update};
use crate::effect::Why;
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{Note, SyncError, meta};

/// A VM deleted with orphan propagation leaves its VMI running.
const ORPHAN: &str = "orphan";

/// How often to check for a missing object that the VM refers to. Not all such kinds are watched.
const UNTIL_IT_EXISTS: Duration = Duration::from_secs(15);

/// Decides what to do about one VM.
pub fn decide(w: &World) -> Vec<Action> {
    if let Some(left) = w.behind {
        return vec![Action::RequeueAfter(left)];
    }
    if !w.vm.is_marked_for_deletion()
        && let Some(patch) = start::prepare(w)
    {
        return vec![patch_vm(&w.vm, patch, reasons::FIRMWARE_UUID_ERROR)]; // its event requeues us
    }
    if let Some(release) = release(w) {
        return vec![release];
    }
    let mut plan = sync(w);
    let mut actions = std::mem::take(&mut plan.first);
    if plan.actions.iter().any(comes_back) {
        actions.extend(plan.actions);
        return actions; // their events requeue us; the status reports observed state only
    }
    // The status is written before the rest: the outcome is recorded before anything is torn down.
    let status = status::update(w, &plan);
    let release = release_instance(w, status.is_some());
    actions.extend(status);
    actions.extend(plan.actions);
    actions.extend(release);
    actions
}

/// Whether the effect of the action will trigger another pass soon.
fn comes_back(action: &Action) -> bool {
    match action {
        Action::Create { object, .. } => object.kind() == Kind::Vmi,
        Action::Patch { kind, .. } => *kind == Kind::Vm,
        Action::Confirm { look, .. } => *look == Look::OwnerAlive,
        Action::Own(Own::Authorize { .. } | Own::CreateDataVolume { .. }) => true,
        _ => false,
    }
}

/// The actions of a pass, and the problems already known.
#[derive(Default)]
pub(super) struct Plan {
    /// Must have succeeded before the status is written.
    pub(super) first: Vec<Action>,
    pub(super) actions: Vec<Action>,
    pub(super) error: Option<SyncError>,
    /// The failed VMI is to be replaced although its run strategy only starts on request.
    pub(super) rerun: bool,
    /// Why there is no VMI, as a message.
    pub(super) waits: Option<String>,
    /// The instance type and preference for the status, if they change.
    pub(super) refs: Option<Refs>,
    pub(super) restart: Restart,
}

impl Plan {
    pub(super) fn act(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    fn wait(words: impl Into<String>) -> Self {
        Self { waits: Some(words.into()), ..Self::default() }
    }

    /// Whether some action can fail: an earlier failure is not cleared before it has succeeded.
    pub(super) fn attempts(&self) -> bool {
        self.actions.iter().any(|action| action.on_failure().is_some())
    }
}

fn sync(w: &World) -> Plan {
    if let Some(error) = &w.failed {
        return report(error);
    }
    if let Some(left) = w.expects_instance.into_iter().chain(w.expects_data_volumes).max() {
        let waits =
            if w.expects_creation() { "its instance is being created" } else { "its last change is not visible" };
        return Plan { actions: vec![Action::RequeueAfter(left)], ..Plan::wait(waits) };
    }
    if w.vm.is_marked_for_deletion() {
        let keeps = meta::has_finalizer(&w.vm.metadata, ORPHAN);
        let vmi = w.instance().filter(|_| !keeps);
        return Plan::act(vmi.map(|vmi| delete(vmi, "the virtual machine is being deleted")).unwrap_or_default());
    }
    if let Some(vmi) = w.orphaned_instance() {
        return Plan::act(adopt(w, vmi).into_iter().collect());
    }
    match strategy::judge(w) {
        Verdict::Refuse(error) => refuse(w, error, None),
        Verdict::Delete { because, rerun } => {
            let actions = w.instance().map(|vmi| delete(vmi, because)).unwrap_or_default();
            Plan { actions, rerun, ..Plan::default() }
        }
        verdict => bring_forward(w, verdict).unwrap_or_else(|error| {
            let mut plan = refuse(w, error, None);
            plan.actions.push(Action::RequeueAfter(UNTIL_IT_EXISTS));
            plan
        }),
    }
}

/// Reports the failure of the last attempt. Some failures have a more specific event than the condition.
fn report(error: &SyncError) -> Plan {
    let note = Action::Note(Note::warning(&error.reason, error.message.clone()));
    let of_data_volume = [events::UNAUTHORIZED_DATA_VOLUME_CREATE, events::FAILED_DATA_VOLUME_CREATE];
    let mut shown = error.clone();
    if of_data_volume.contains(&error.reason.as_str()) {
        shown.reason = reasons::FAILED_CREATE.to_owned();
    }
    Plan { actions: vec![note], error: Some(shown), ..Plan::default() }
}

/// Everything except the deletion of a VMI.
fn bring_forward(w: &World, verdict: Verdict) -> Result<Plan, SyncError> {
    if let Some(adopt) = data_volumes::adopt(w) {
        return Ok(Plan::act(vec![adopt]));
    }
    if let Some(plan) = instancetype::sync(w)? {
        return Ok(plan);
    }
    let deferred = meta::annotation(&w.vm.metadata, annotations::IMMEDIATE_DATA_VOLUME_CREATION) == Some("false");
    let starts = matches!(verdict, Verdict::Start(_));
    let Provision { actions, waits, warning, refusal } =
        if deferred && !starts { Provision::default() } else { data_volumes::provide(w)? };
    if let Some((error, event)) = refusal {
        let mut plan = refuse(w, error, Some(event));
        plan.actions.extend(actions);
        return Ok(plan);
    }
    let halted = w.vm.run_strategy().is_ok_and(|strategy| strategy == RunStrategy::Halted);
    if let Some(words) = waits.filter(|_| !halted && w.instance().is_none()) {
        let actions = actions.into_iter().chain(warning).collect();
        return Ok(Plan { actions, ..Plan::wait(format!("it waits for its volumes: {words}")) });
    }
    let mut plan = carry_out(w, verdict)?;
    plan.actions.splice(0..0, actions);
    if plan.actions.iter().any(comes_back) || plan.error.is_some() {
        return Ok(plan);
    }
    update::update(w, &mut plan);
    Ok(plan)
}

fn carry_out(w: &World, verdict: Verdict) -> Result<Plan, SyncError> {
    Ok(match verdict {
        Verdict::Leave(words) => Plan::wait(words),
        Verdict::Start(how) => match w.foreign_instance() {
            None => Plan::act(start::start(w, how)?),
            Some(vmi) => {
                let owner =
                    meta::controller_of(&vmi.metadata).map(|o| format!("{} {}", o.kind, o.name)).unwrap_or_default();
                let name = meta::name(&vmi.metadata);
                let message = format!("the VirtualMachineInstance {name} exists and belongs to {owner}");
                refuse(w, SyncError::new(reasons::FAILED_CREATE, message), None)
            }
        },
        Verdict::Wait(words, left) => {
            Plan { actions: vec![Action::RequeueAfter(left.max(Duration::from_secs(1)))], ..Plan::wait(words) }
        }
        Verdict::Switch(patch) => Plan::act(vec![patch_vm(&w.vm, patch, reasons::FAILED_UPDATE_ERROR)]),
        Verdict::Refuse(error) => refuse(w, error, None),
        Verdict::Delete { .. } => Plan::default(),
    })
}

/// Nothing can be done before a user acts; reported once by an event, and by a condition for as long as it lasts.
fn refuse(w: &World, error: SyncError, event: Option<&str>) -> Plan {
    let reason = event.unwrap_or(&error.reason);
    let note = (!is_told(w, &error)).then(|| Action::Note(Note::warning(reason, error.message.clone())));
    Plan { actions: note.into_iter().collect(), error: Some(error), ..Plan::default() }
}

/// Whether the VM already shows this failure.
pub(super) fn is_told(w: &World, error: &SyncError) -> bool {
    let shown = w.vm.condition(conditions::FAILURE);
    shown.is_some_and(|c| c.reason() == error.reason && c.message() == error.message)
}

fn delete(vmi: &VirtualMachineInstance, because: &'static str) -> Vec<Action> {
    if vmi.is_marked_for_deletion() {
        return vec![];
    }
    let (name, uid) = (meta::name(&vmi.metadata), meta::uid(&vmi.metadata));
    let message = format!("Stopped the virtual machine by deleting the virtual machine instance {name} with uid {uid}");
    let note = Note::normal(reasons::SUCCESSFUL_DELETE, message);
    let delete = Action::delete(Kind::Vmi, &vmi.metadata, Why::shown(reasons::FAILED_DELETE, because));
    vec![delete, Action::Note(note)]
}

/// Adopts an ownerless VMI of the same name, unless it is being deleted.
fn adopt(w: &World, vmi: &VirtualMachineInstance) -> Option<Action> {
    if vmi.is_marked_for_deletion() {
        return None;
    }
    action::adopt(Kind::Vmi, &vmi.metadata, &w.vm)
}

/// Releases a finished VMI: the status write before this action recorded its outcome. Without one the outcome is recorded
/// already, unless the cache is stale. A VMI that waited for a guest and is deleted has no outcome.
fn release_instance(w: &World, writes_status: bool) -> Option<Action> {
    let never_came =
        |vmi: &VirtualMachineInstance| vmi.phase() == Some(&Phase::WaitingForSync) && vmi.is_marked_for_deletion();
    let vmi = w.instance().filter(|vmi| vmi.is_final() || never_came(vmi))?;
    if strategy::holds_instance(w, vmi) {
        return None;
    }
    let mut meta = vmi.metadata.clone();
    meta::remove_finalizer(&mut meta, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    let patch = Guarded::new(&vmi.metadata).finalizers(&meta).build()?;
    let release = Action::patch(Kind::Vmi, meta::name(&vmi.metadata), patch, Why::default());
    Some(if writes_status { release } else { Action::confirm(Look::SameMachine, vec![release]) })
}

/// Releases a deleted VM when its VMI is gone, or at once if it orphans the VMI.
fn release(w: &World) -> Option<Action> {
    let leaves = meta::has_finalizer(&w.vm.metadata, ORPHAN);
    if !w.vm.is_marked_for_deletion() || (w.instance().is_some() && !leaves) || w.expects_creation() {
        return None;
    }
    let mut meta = w.vm.metadata.clone();
    meta::remove_finalizer(&mut meta, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    let patch = Guarded::new(&w.vm.metadata).finalizers(&meta).build()?;
    let release = patch_vm(&w.vm, patch, BOOKKEEPING);
    if leaves {
        return Some(release);
    }
    // With a stale cache, a VMI could be left behind with nobody to record its outcome.
    Some(Action::confirm(Look::NoInstance, vec![release]))
}

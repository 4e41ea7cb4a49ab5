//! # Expected flow
//!
//! ```text
//!            Pod created          Pod's containers run         guest started
//!  Pending ───────────────► Scheduling ─────────────► Scheduled ─────────────► Running ──► Succeeded / Failed
//!     │                         │                         │   node agent from here  │
//!     └── deleted ──► Failed ◄──┴── Pod ended or gone ◄───┴── Pod gone (confirmed) ◄┘
//! ```
//!
//! A fresh instance gets its launcher Pod; the Pod's appearance makes it Scheduling, its running containers make it
//! Scheduled. That write is the hand-over: label, node name and phase in one. From then on the node agent owns the
//! instance and only a few fields are patched here. After the end the finalizers go with the last Pod.
//!
//! # Guarantees
//!
//! - Over the life of one UID at most one launcher Pod is created: only an instance that is unset or Pending, not being
//!   deleted and holds its finalizer gets one, and the Pod's name is derived from the UID.
//! - An instance in phase Scheduled or Running is written only by patches that test what they change.
//! - Nothing is failed and no finalizer removed for want of a Pod in the cache: its absence is read live first.
//! - A pass that changes nothing writes nothing. A wait shows in a condition: PodScheduled carries the scheduler's words,
//!   Synchronized what went wrong last.
//! - Succeeded and Failed stay.
//!
//! # Assumptions
//!
//! Admission has set the finalizer and phase Pending on new instances (what slipped past is repaired here first), and
//! restores the status when anybody but our own components writes it: there is no status subresource.
//!
//! # Caveats
//!
//! `status.volumeStatus` and `status.interfaces` are written at the hand-over and belong to the node agent afterwards.

use api::finalizers;

use super::action::Action;
use super::world::World;
use super::{pod, status};
use crate::meta;

/// What to do about one instance.
pub fn decide(w: &World) -> Vec<Action> {
    if let Some(left) = w.behind {
        return vec![Action::RequeueAfter(left)];
    }
    if w.vmi.is_unprocessed()
        && !w.vmi.is_marked_for_deletion()
        && !meta::has_finalizer(&w.vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE)
    {
        // Without the finalizer a deletion would not wait for the guest. The update brings us back here.
        return vec![status::admit(w)];
    }
    let sync = pod::sync(w);
    if sync.creates {
        return sync.actions; // the Pod's appearance brings us back; the status reports what was seen, not hoped for
    }
    let mut actions = sync.actions;
    actions.extend(status::report(w, sync.error.as_ref(), sync.attempts));
    actions
}

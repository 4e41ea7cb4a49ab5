//! # Expected flow
//!
//! ```text
//!            Pod created          Pod's containers run         guest started
//!  Pending ───────────────► Scheduling ─────────────► Scheduled ─────────────► Running ──► Succeeded / Failed
//!     │                      ▲  │                         │   node agent from here  │
//!     └── deleted ──► Failed │◄─┴── Pod ended or gone ◄───┴── failed, gone (confirmed)┘
//!     │                      │
//!     └── receives ──► WaitingForSync ◄── receivers end here instead of in Failed, and may try again
//! ```
//!
//! A fresh instance gets its launcher Pod once its volumes, its claim for the guest's own state and its topology hints are
//! there. Volumes that wait for their first consumer get a temporary Pod first, which never runs a guest. The launcher
//! Pod's appearance makes the instance Scheduling, its running containers make it Scheduled. That write is the hand-over:
//! label, node name, volumes, interfaces and phase in one. From then on the node agent owns the instance and only a few
//! fields are patched here. Volumes that are plugged come through attachment Pods. After the end the finalizers go with
//! the last Pod.
//!
//! # Guarantees
//!
//! - Over the life of one UID at most one launcher Pod is created: only an instance that is unset or Pending, not being
//!   deleted and holds its finalizer gets one, and the Pod's name is derived from the UID.
//! - An instance in phase Scheduled or Running is written only by patches that test what they change.
//! - Nothing is failed, no finalizer removed and no claim for state made for want of an object in the cache: its absence
//!   is read live first.
//! - A pass that changes nothing writes nothing. A wait shows in a condition: PodScheduled carries the scheduler's words,
//!   DataVolumesReady and Provisioning what volumes wait for, Synchronized what went wrong last, `volumeStatus` what
//!   keeps a plugged volume away.
//! - While something of a plugged volume is in use, the attachment Pod that brought it stays.
//! - Succeeded and Failed stay. A receiver is not failed before its guest runs.
//!
//! # Assumptions
//!
//! Admission has set the finalizer and phase Pending on new instances (what slipped past is repaired here first), and
//! restores the status when anybody but our own components writes it: there is no status subresource.
//!
//! # Caveats
//!
//! Phases of plugged volumes beyond AttachedToNode, and what is known of interfaces beyond their place in the Pod, are the
//! node agent's; both lists are replaced as wholes and guarded by the resource version, so each side may have to try again.

use api::finalizers;

use super::action::Action;
use super::world::World;
use super::{pod, status, strays};
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
        return sync.actions; // what was made brings us back; the status reports what was seen, not hoped for
    }
    let mut actions = sync.actions;
    actions.extend(status::report(w, sync.error.as_ref()));
    actions.extend(strays::remove(w)); // last: a look that finds the cache behind ends the pass
    actions
}

//! # Expected flow
//!
//! ```text
//!            Pod created          Pod's containers run         guest started
//!  Pending ───────────────► Scheduling ─────────────► Scheduled ─────────────► Running ──► Succeeded / Failed
//!     │                      ▲  │                         │   virt-handler onwards  │
//!     └── deleted ──► Failed │◄─┴── Pod ended or gone ◄───┴── failed, gone (confirmed)┘
//!     │                      │
//!     └── receives ──► WaitingForSync ◄── receivers end here instead of in Failed, and may try again
//! ```
//!
//! A new VMI gets its launcher Pod once its volumes, its state claim and its topology hints are ready. Volumes that
//! wait for their first consumer get a temporary Pod first, which never runs a guest. The VMI becomes Scheduling when
//! the launcher Pod appears, and Scheduled when its containers run. That write is the hand-over: label, node name,
//! volumes, interfaces and phase in one. From then on virt-handler owns the VMI, and only a few fields are patched
//! here. Hot-plugged volumes are attached through attachment Pods. After the end, the finalizers are removed with the
//! last Pod.
//!
//! # Guarantees
//!
//! - At most one launcher Pod is created per VMI UID: only for a VMI whose phase is unset or Pending, that is not being
//!   deleted and has its finalizer; and the Pod's name is derived from the UID.
//! - A VMI in phase Scheduled or Running is written only by patches that test what they change.
//! - No VMI is failed, no finalizer removed and no state claim created because an object is missing from the cache: a
//!   live read must confirm its absence first.
//! - A pass that changes nothing writes nothing. Waits are reported: by PodScheduled with the scheduler's message, by
//!   DataVolumesReady and Provisioning for volumes, by Synchronized for the last error, and by `volumeStatus` for
//!   hot-plugged volumes.
//! - While anything of a hot-plugged volume is in use, its attachment Pod stays.
//! - Succeeded and Failed are final. A receiver is not failed before its guest runs, and is not handed over with the Pod
//!   of a migration that is over.
//! - A VMI is not released before its migration has determined which of two claims holds the guest's state.
//!
//! # Assumptions
//!
//! Admission has set the finalizer and phase Pending on new VMIs (VMIs that bypassed it are repaired here first), and
//! reverts status writes by anyone but our own components: there is no status subresource.
//!
//! # Caveats
//!
//! virt-handler owns the phases of hot-plugged volumes beyond AttachedToNode, and what is known of interfaces beyond
//! their place in the Pod; both lists are replaced as a whole and guarded by the resourceVersion, so either side may
//! have to retry.

use api::finalizers;

use super::action::Action;
use super::world::World;
use super::{pod, status, strays};
use crate::meta;

/// Decides what to do about one VMI.
pub fn decide(w: &World) -> Vec<Action> {
    if let Some(left) = w.behind {
        return vec![Action::RequeueAfter(left)];
    }
    if w.vmi.is_unprocessed()
        && !w.vmi.is_marked_for_deletion()
        && !meta::has_finalizer(&w.vmi.metadata, finalizers::VIRTUAL_MACHINE_INSTANCE)
    {
        // Without the finalizer a deletion would not wait for the guest. The event of the update requeues us.
        return vec![status::admit(w)];
    }
    let sync = pod::sync(w);
    if sync.creates {
        return sync.actions; // their events requeue us; the status reports observed state only
    }
    let mut actions = sync.actions;
    actions.extend(status::report(w, sync.error.as_ref()));
    actions.extend(strays::remove(w)); // last: a live read that finds the cache stale ends the pass
    actions
}

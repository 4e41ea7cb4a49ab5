//! # Expected flow
//!
//! ```text
//!            room, Pod made          Pod runs             hand-off shows     target listens   source sends
//!  Pending ────────────────► Scheduling ─────► Scheduled ─────────► PreparingTarget ─────► TargetReady ─────► Running
//!     │                          │                 │                      │                     │               │
//!     └── deleted, timed out ────┴─── deleted, ────┘                      └── target gone, ─────┘      nodes ◄──┤
//!                  ▼               target gone                                 nodes failed ▼         failed    ▼
//!                Failed ◄───────────────────────────────────────────────────────────────── Failed          Succeeded
//! ```
//!
//! A migration waits as Pending until the cluster and the source node have room for it, then gets a target Pod. When
//! that Pod runs, one patch of the VMI names both sides: the hand-off. virt-handler on both nodes does the rest and
//! records it on the VMI; the phases from PreparingTarget on mirror that record.
//!
//! # Guarantees
//!
//! - Limits hold: target Pods are created under one lock, and count at once, whether or not they are in the cache.
//! - A migration has at most one target Pod: its name is derived from the UIDs of VMI and migration.
//! - A hand-off never takes the VMI from an unfinished migration, and happens only after live reads of the VMI, its
//!   migrations and the target Pod.
//! - A migration that evacuates a node starts and is handed off only while the stored VMI is marked for evacuation from
//!   that node, or the node has the drain taint. Otherwise it ends instead: the evacuation was canceled.
//! - After the hand-off a target Pod is deleted only if the nodes have reported that the guest stayed, and a live read
//!   confirms it.
//! - Decisions based on a missing Pod or VMI need a live read first; so do decisions based on the migration not being
//!   handed off, since the cache of a process that has just started may predate the hand-off.
//! - No phase follows Succeeded or Failed, and the finalizer stays until then.
//! - Every wait is reported by a condition with a reason: `migrationWaiting`, or one of KubeVirt's for quotas, utility
//!   volumes and backups.
//!
//! # Assumptions
//!
//! Admission has set the finalizer and refused a second migration of the same VMI. virt-handler reports failure only
//! when the guest is certain to have stayed, and completion only when it has arrived.
//!
//! # Caveats
//!
//! A migration that is deleted between the hand-off and the start of the transfer continues until the source has
//! started; only then can it be aborted. A decentralized migration (`sendTo`, `receive`) consists of two objects, each
//! with a VMI of its own; [`synchronization`](crate::synchronization) copies their states to each other:
//!
//! ```text
//!  sender    Synchronizing ──► Pending ──► Scheduling: publishes ─────────► Scheduled ──► PreparingTarget ──► as above
//!                  │ both know each other       │ node, Pod                     ▲ target Pod, node
//!  receiver  WaitingForSync ────────────────────┴──► Pending ──► Scheduling ──► Scheduled: hand-off ──► as above
//! ```

use super::action::{Action, Look, Own, patch_migration};
use super::status::{self, Report};
use super::world::World;
use super::{garbage, sync};
use crate::guard::Guarded;
use crate::meta;
use crate::object::Kind;

/// Decides what to do about one migration.
pub fn decide(w: &World) -> Vec<Action> {
    if w.unseen.is_some() {
        return vec![]; // the event of our own write requeues us
    }
    if w.vmi.is_none() {
        return vec![Action::confirm(Look::NoVmi, without_instance(w))];
    }
    let sync = sync::sync(w);
    let Report { mut actions, changes, doubtful, after } = status::report(w, &sync);
    let mut all = sync.actions;
    all.append(&mut actions);
    all.extend(after);
    if doubtful {
        return vec![Action::confirm(Look::SameState, all)];
    }
    if let Some(start) = sync.start.filter(|_| !changes) {
        all.push(start); // the event of the status write requeues us, and then it starts
    }
    if w.migration.is_final() && w.failed.is_none() {
        if w.behind.is_none() {
            all.extend(garbage::collect(w)); // objects that are already deleted may still be in the cache
        }
        all.push(Action::Own(Own::WakePending));
    }
    all
}

/// The VMI is gone: there is nothing left to migrate.
fn without_instance(w: &World) -> Vec<Action> {
    if !w.is_deleting() {
        return vec![Action::delete(Kind::Migration, &w.migration.metadata, "its instance is gone".into())];
    }
    let mut new = w.migration.metadata.clone();
    meta::remove_finalizer(&mut new, api::finalizers::MIGRATION);
    let patch = Guarded::new(&w.migration.metadata).finalizers(&new).build();
    patch.map(|patch| patch_migration(w, patch)).into_iter().collect()
}

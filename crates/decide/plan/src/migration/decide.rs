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
//! A migration waits as Pending until the cluster and the guest's node have room for it, then gets a target Pod. When
//! that runs, one patch of the instance names both sides: the hand-off. The nodes do the rest and write it down on the
//! instance; the phases from PreparingTarget on repeat what is written there.
//!
//! # Guarantees
//!
//! - Limits hold: target Pods are made under one lock, and what was made under it counts at once, seen or not.
//! - A migration has at most one target Pod: its name is derived from the UIDs of instance and migration.
//! - A hand-off never takes the instance from a migration that has not ended, and is made only after a live look at the
//!   instance, its migrations and the target Pod.
//! - A migration that empties a node starts and is handed off only while the stored instance is marked to leave that node, or
//!   the node has the drain taint. Otherwise it ends instead: the evacuation was canceled.
//! - After the hand-off a target Pod is deleted only if the nodes have said that the guest stayed, and a live look agrees.
//! - What a missing Pod or instance would decide is decided after a live look; so is what rests on the nodes not having the
//!   migration, since a process that has just begun may have a cache from before the hand-off.
//! - No phase follows Succeeded or Failed, and the finalizer stays until then.
//! - Every wait shows in a condition with a reason: `migrationWaiting`, or one of KubeVirt's for quotas, utility volumes
//!   and backups.
//!
//! # Assumptions
//!
//! Admission has set the finalizer and refused a second migration of an instance. The nodes keep to their part: failure
//! is written only when the guest is certain to have stayed, completion only when it has arrived.
//!
//! # Caveats
//!
//! A migration that is deleted between hand-off and the start of the transfer goes on until the source has begun; only
//! then can it be given up. A migration between instances (`sendTo`, `receive`) is two objects, each with an instance of its
//! own; what their states tell each other is carried by [`synchronization`](crate::synchronization):
//!
//! ```text
//!  sender    Synchronizing ──► Pending ──► Scheduling: publishes ─────────► Scheduled ──► PreparingTarget ──► as above
//!                  │ both know each other       │ node, Pod                     ▲ target Pod, node
//!  receiver  WaitingForSync ────────────────────┴──► Pending ──► Scheduling ──► Scheduled: hand-off ──► as above
//! ```

use super::action::{Action, Look, Own, patch_migration};
use super::status::{self, Report};
use super::world::World;
use super::{garbage, kinds, sync};
use crate::guard::Guarded;
use crate::meta;
use crate::object::Kind;

/// What to do about one migration.
pub fn decide(w: &World) -> Vec<Action> {
    if w.unseen.is_some() {
        return vec![]; // the write comes back as an event
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
        all.push(start); // what was written comes back as an event, and then it is time
    }
    if kinds::is_final(&w.migration) && w.failed.is_none() {
        if w.behind.is_none() {
            all.extend(garbage::collect(w)); // what has gone already may still be in the cache
        }
        all.push(Action::Own(Own::WakePending));
    }
    all
}

/// Nothing is left to move.
fn without_instance(w: &World) -> Vec<Action> {
    if !w.is_deleting() {
        return vec![Action::delete(Kind::Migration, &w.migration.metadata, "its instance is gone".into())];
    }
    let mut new = w.migration.metadata.clone();
    meta::remove_finalizer(&mut new, api::finalizers::MIGRATION);
    let patch = Guarded::new(&w.migration.metadata).finalizers(&new).build();
    patch.map(|patch| patch_migration(w, patch)).into_iter().collect()
}

//! The phase machine for unfinished migrations. See the diagram in `decide.rs`.

use api::conditions;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{Condition, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};

use super::kinds::{self, Kind};
use super::world::{World, is_set};
use super::{backend, decentralized, sync};
use crate::{meta, pods};

/// The next transition of the migration.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    Stay,
    To(Phase),
    /// To Failed, with the reason.
    Fail(String),
}

pub(super) fn next(w: &World, vmi: &VirtualMachineInstance) -> Move {
    match w.migration.phase() {
        None => from_nothing(w),
        Some(Phase::Pending) => from_pending(w, vmi),
        Some(Phase::Scheduling) => from_scheduling(w, vmi),
        Some(Phase::Scheduled) => to_if(Phase::PreparingTarget, w.own_state().is_some_and(|s| is_set(&s.target_node))),
        Some(Phase::PreparingTarget) => {
            let listens = |state: &api::v1::VirtualMachineInstanceMigrationState| {
                is_set(&state.target_node) && is_set(&state.target_node_address)
            };
            to_if(Phase::TargetReady, w.own_state().is_some_and(listens))
        }
        Some(Phase::TargetReady) => to_if(Phase::Running, w.own_state().is_some_and(|s| s.start_timestamp.is_some())),
        // A pending change no longer matters once the guest has left for another VMI.
        Some(Phase::Running) => {
            let done = pending_change(w, vmi).is_none() && backend::is_handed_over(w);
            to_if(Phase::Succeeded, has_arrived(w) && (w.kind() == Kind::Sends || done))
        }
        Some(Phase::WaitingForSync) => second(w).unwrap_or_else(|| to_if(Phase::Pending, knows_source(w))),
        Some(Phase::Synchronizing) => second(w).unwrap_or_else(|| to_if(Phase::Pending, knows_both(w))),
        Some(Phase::Succeeded | Phase::Failed | Phase::Other(_)) => Move::Stay,
    }
}

fn to_if(phase: Phase, condition: bool) -> Move {
    if condition { Move::To(phase) } else { Move::Stay }
}

/// Two decentralized migrations of one guest, requested at the same time: the first may wait for its other side for
/// ever, and the second would wait with it.
fn second(w: &World) -> Option<Move> {
    w.rival().filter(|rival| kinds::kind(rival) != Kind::Local).map(beside)
}

fn beside(rival: &Migration) -> Move {
    let name = meta::name(&rival.metadata);
    Move::Fail(format!("migration {name} of this VMI is still in progress; retry when it finishes"))
}

fn from_nothing(w: &World) -> Move {
    if let Some(rival) = w.rival() {
        return beside(rival);
    }
    Move::To(match w.kind() {
        Kind::Local => Phase::Pending,
        Kind::Receives => Phase::WaitingForSync,
        Kind::Sends => Phase::Synchronizing,
    })
}

fn from_pending(w: &World, vmi: &VirtualMachineInstance) -> Move {
    if sync::has_unfinished_backup(vmi) || !vmi.spec.utility_volumes.is_empty() {
        return Move::Stay;
    }
    match w.kind() {
        Kind::Sends => to_if(Phase::Scheduling, vmi.is_running()),
        Kind::Local | Kind::Receives => to_if(Phase::Scheduling, w.target().is_some() && volumes_are_there(w, vmi)),
    }
}

fn from_scheduling(w: &World, vmi: &VirtualMachineInstance) -> Move {
    if w.kind() == Kind::Sends {
        let target = w.own_state().and_then(|state| state.target_state.as_ref());
        return to_if(Phase::Scheduled, target.is_some_and(|target| is_set(&target.pod)));
    }
    let ready = w.target().is_some_and(pods::is_ready_for_handover);
    to_if(Phase::Scheduled, ready && volumes_are_there(w, vmi))
}

/// Whether all hot-plugged volumes, if any, are attached on the target node.
fn volumes_are_there(w: &World, vmi: &VirtualMachineInstance) -> bool {
    !backend::has_plugged_volumes(vmi) || w.attachment().is_some_and(pods::is_single_container_ready)
}

pub(super) fn has_arrived(w: &World) -> bool {
    w.own_state().is_some_and(|state| state.completed == Some(true) && state.failed != Some(true))
}

/// A change that takes effect by migration and has not reached the guest yet. A change requested when the guest was
/// already migrating needs another migration: this one would wait for it for ever.
pub(super) fn pending_change(w: &World, vmi: &VirtualMachineInstance) -> Option<&'static str> {
    let start = w.own_state().and_then(|state| state.start_timestamp.as_ref());
    let in_time = |condition: &&Condition| match (&condition.last_transition_time, start) {
        (Some(asked), Some(start)) => asked.0 <= start.0,
        _ => true,
    };
    let shown = |type_: &str| vmi.condition(type_).filter(in_time);
    if shown(conditions::HOT_VCPU_CHANGE).is_some() {
        return Some(conditions::HOT_VCPU_CHANGE);
    }
    let others = [conditions::HOT_MEMORY_CHANGE, conditions::MIGRATION_REQUIRED];
    others.into_iter().find(|type_| shown(type_).is_some_and(Condition::is_true))
}

/// A receiver can prepare once it knows the source of the guest.
fn knows_source(w: &World) -> bool {
    let Some(state) = w.state().filter(|_| decentralized::is_introduced(w)) else { return false };
    // A node without CPU labels publishes none; they come in the same write as the rest.
    let source = state.source_state.as_ref();
    source.is_some_and(|source| is_set(&source.migration_uid) && is_set(&source.pod) && is_set(&source.node))
}

fn knows_both(w: &World) -> bool {
    let Some(state) = w.state().filter(|_| decentralized::is_introduced(w)) else { return false };
    state.source_state.as_ref().is_some_and(|source| is_set(&source.migration_uid))
        && state.target_state.as_ref().is_some_and(|target| is_set(&target.migration_uid))
}

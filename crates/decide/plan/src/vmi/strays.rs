//! Orphaned target Pods.
//!
//! A process that has lost leader election may have requested a target Pod just before, and the request may be executed
//! after its successor has finished and released that migration. The Pod belongs to the VMI and would stay as long as
//! the VMI exists, holding resources, and every later migration would wait for it to end. A VMI that is to receive a
//! guest would take it for the Pod that the guest comes to.

use api::labels;
use api::v1::VirtualMachineInstanceMigrationState as State;
use api::v1::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Pod;

use super::action::{Action, Look};
use super::world::World;
use crate::effect::Why;
use crate::object::Kind;
use crate::{Note, meta, pods};

/// Deletes them, if live reads find no such migration, and the guest elsewhere.
pub(super) fn remove(w: &World) -> Vec<Action> {
    let moving = |state: &State| state.completed != Some(true) && state.failed != Some(true);
    let settled = w.vmi.is_running() && w.node().is_some() && !w.vmi.receives();
    if !awaits_guest(w) && (!settled || w.migration_state().is_some_and(moving)) {
        return vec![];
    }
    w.pods.iter().filter_map(|pod| remove_one(w, pod)).collect()
}

/// Whether the VMI receives a guest, and no migration has been handed off that brings it.
fn awaits_guest(w: &World) -> bool {
    w.vmi.receives() && matches!(w.vmi.phase(), Some(Phase::WaitingForSync | Phase::Scheduling))
}

fn remove_one(w: &World, pod: &Pod) -> Option<Action> {
    let job = machinery::meta::label(&pod.metadata, labels::MIGRATION_JOB_UID).filter(|job| !job.is_empty())?;
    let elsewhere = awaits_guest(w) || pods::node_name(pod) != w.node();
    let known = w.migrations.iter().any(|migration| meta::uid(&migration.metadata) == job);
    // The Pod that the guest has left ends by itself.
    let left = w.migration_state().is_some_and(|state| state.source_pod == pod.metadata.name);
    if !elsewhere || known || left || pods::is_down_or_going_down(pod) {
        return None;
    }
    let because = "its migration is gone and the guest is not in it";
    let message = format!("Deleted target pod {}: {because}", meta::name(&pod.metadata));
    let note = Action::Note(Note::normal(api::reasons::SUCCESSFUL_DELETE, message));
    let delete = Action::delete(Kind::Pod, &pod.metadata, Why::shown(api::reasons::FAILED_DELETE, because));
    // In this order: once the migration is gone, nothing hands the guest to this Pod any more.
    let then = vec![Action::confirm(Look::Current, vec![delete, note])];
    Some(Action::confirm(Look::NoMigration { uid: job.to_owned() }, then))
}

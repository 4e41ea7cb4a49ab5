//! Deletes old migrations and what they left behind.

use std::cmp::Reverse;

use api::v1::VirtualMachineInstanceMigration as Migration;
use k8s_openapi::api::core::v1::Pod;

use super::action::{Action, delete_pod};
use super::world::World;
use crate::effect::Why;
use crate::object::Kind;
use crate::{meta, pods};

/// How many finished migrations of a VMI are kept for users to inspect.
const KEPT: usize = 5;

/// Deletes the oldest finished migrations, each after the Pod that the guest left or never reached.
pub(super) fn collect(w: &World) -> Vec<Action> {
    let ended = |m: &&Migration| m.is_final() && !meta::is_deleting(&m.metadata);
    let mut all: Vec<&Migration> = w.siblings.iter().map(AsRef::as_ref).filter(ended).collect();
    all.sort_by_key(|m| Reverse((m.metadata.creation_timestamp.clone(), m.metadata.name.clone())));
    let old = all.into_iter().skip(KEPT);
    old.flat_map(|migration| {
        let pod = obsolete_pod(w, migration);
        let pod = pod.map(|pod| delete_pod(pod, "a finished migration left it without a guest"));
        let why = Why { because: format!("more than {KEPT} finished migrations").into(), on_failure: None };
        pod.into_iter().chain([Action::delete(Kind::Migration, &migration.metadata, why)])
    })
    .collect()
}

/// The Pod of the side that the guest is not on, unless a newer migration uses it or the guest has returned to it.
fn obsolete_pod<'a>(w: &'a World, migration: &Migration) -> Option<&'a Pod> {
    let state = migration.status.as_ref()?.migration_state.as_ref()?;
    let name = match (state.failed, state.completed) {
        (Some(true), _) => state.target_pod.as_deref()?,
        (_, Some(true)) => state.source_pod.as_deref()?,
        _ => return None,
    };
    let pod = w.pods.iter().map(AsRef::as_ref).find(|pod| meta::name(&pod.metadata) == name)?;
    let current = w.source().map(|pod| meta::uid(&pod.metadata)) == Some(meta::uid(&pod.metadata));
    let wanted =
        w.siblings.iter().any(|sibling| !sibling.is_final() && super::is_target(pod, meta::uid(&sibling.metadata)));
    (!current && !wanted && !pods::is_deleting(pod)).then_some(pod)
}

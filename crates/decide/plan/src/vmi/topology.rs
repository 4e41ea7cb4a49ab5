//! Guests that depend on the TSC frequency.

use api::reasons;
use api::v1::{TopologyHints, VirtualMachineInstance};

use super::world::World;
use crate::{Note, SyncError};

/// What a guest needs the TSC frequency for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    Nothing,
    /// It can start without it, but not migrate.
    Migration,
    Boot,
}

fn requirement(vmi: &VirtualMachineInstance, default_architecture: &str) -> Requirement {
    let architecture = vmi.spec.architecture.as_deref().filter(|architecture| !architecture.is_empty());
    if architecture.unwrap_or(default_architecture) != "amd64" {
        return Requirement::Nothing;
    }
    let features = vmi.spec.domain.cpu.iter().flat_map(|cpu| &cpu.features);
    let wanted = |policy: Option<&str>| matches!(policy, Some("require" | "force"));
    if features.into_iter().any(|feature| feature.name == "invtsc" && wanted(feature.policy.as_deref())) {
        return Requirement::Boot;
    }
    let hyperv = vmi.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    let reenlightenment = hyperv.and_then(|hyperv| hyperv.reenlightenment.as_ref());
    // A feature that is listed is enabled unless it says otherwise.
    let on = reenlightenment.is_some_and(|feature| feature.enabled != Some(false));
    if on { Requirement::Migration } else { Requirement::Nothing }
}

/// Whether the launcher Pod must wait for topology hints.
pub fn awaits_hints(w: &World) -> bool {
    let hints = w.vmi.status.as_ref().and_then(|status| status.topology_hints.as_ref());
    hints.is_none() && requirement(&w.vmi, w.config.default_architecture()) != Requirement::Nothing
}

/// Adds the hints if they are needed and missing. Returns the error if the guest cannot start without them; a guest
/// that only could not migrate gets a placeholder frequency.
pub(super) fn add_hints(w: &World, new: &mut VirtualMachineInstance) -> Option<(SyncError, Note)> {
    if !awaits_hints(w) {
        return None;
    }
    let frequency = match &w.lowest_tsc {
        Ok(frequency) => *frequency,
        Err(why) if requirement(&w.vmi, w.config.default_architecture()) == Requirement::Boot => {
            let message = format!("the frequency of the nodes' time stamp counters is not known: {why}");
            let error = SyncError::new(reasons::FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS, message.clone());
            return Some((error, Note::warning(reasons::FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS, message)));
        }
        Err(_) => 0,
    };
    new.status_mut().topology_hints = Some(TopologyHints { tsc_frequency: Some(frequency) });
    None
}

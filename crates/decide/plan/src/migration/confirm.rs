//! Compares live reads with the cache.

use api::labels;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use machinery::names::NodeName;

use super::kinds::{self, Kind};
use super::world::{World, is_target};
use crate::meta;

/// Whether one of these Pods is a target of the migration, created for the VMI in the cache.
pub(super) fn has_target_among<'a>(w: &World, mut pods: impl Iterator<Item = &'a Pod>) -> bool {
    let instance = w.vmi.as_ref().map(|vmi| meta::uid(&vmi.metadata)).unwrap_or_default();
    let made_for = |pod: &Pod| machinery::meta::label(&pod.metadata, labels::CREATED_BY) == Some(instance);
    pods.any(|pod| is_target(pod, w.uid()) && made_for(pod))
}

/// Whether the VMI's migration state is the same as in the cache.
pub(super) fn says_the_same(w: &World, stored: Option<&VirtualMachineInstance>) -> bool {
    let state = |vmi: &VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.migration_state.clone());
    stored.and_then(state) == w.vmi.as_deref().and_then(state)
}

/// Whether the guest is not, or no longer, on this node.
pub(super) fn has_left(w: &World, stored: Option<&VirtualMachineInstance>, node: &NodeName) -> bool {
    stored.is_none_or(|vmi| {
        let named = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        named != Some(node.as_str()) || has_received_nothing(w, vmi)
    })
}

/// Whether no guest has come with this migration: the VMI still waits for one, and names the node of a Pod that was to
/// receive it, in this attempt or in an earlier one.
fn has_received_nothing(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let waits = vmi.receives() && !vmi.is_running();
    w.kind() == Kind::Receives && waits && !kinds::owns(&w.migration, state)
}

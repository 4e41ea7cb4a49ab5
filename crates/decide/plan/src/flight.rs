//! Guests that are migrating between two nodes.

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{meta, pods};

/// The Pod that may hold the guest although the VMI does not say so: the target of a migration whose transfer has
/// started and was not declared failed. If the source is lost, the guest must not be given up before this Pod is
/// resolved: either its node takes over the VMI, or the Pod ends.
pub(crate) fn landing<'a>(vmi: &VirtualMachineInstance, pods: impl IntoIterator<Item = &'a Pod>) -> Option<&'a Pod> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let begun = state.start_timestamp.is_some()
        || state.target_node_domain_detected == Some(true)
        || state.target_node_domain_ready_timestamp.is_some();
    if !begun || state.failed == Some(true) {
        return None;
    }
    let (name, node) = (state.target_pod.as_deref()?, state.target_node.as_deref()?);
    let ours = |pod: &&Pod| {
        meta::name(&pod.metadata) == name
            && pods::node_name(pod) == Some(node)
            && meta::is_controlled_by(&pod.metadata, meta::uid(&vmi.metadata))
    };
    pods.into_iter().find(ours).filter(|pod| !pods::is_down(pod))
}

/// Whether the guest is migrating to another node right now.
pub(crate) fn is_migrating(vmi: &VirtualMachineInstance, now: &Time) -> bool {
    let past = |time: &Option<Time>| time.as_ref().is_some_and(|time| time.0 <= now.0);
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| past(&state.start_timestamp) && !past(&state.end_timestamp))
}

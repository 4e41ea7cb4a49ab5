//! Which Pods use a claim.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery::pod::has_ended;

/// The claims that a Pod names, in its namespace.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let named = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    });
    named.collect()
}

fn names(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    pod.metadata.namespace == claim.metadata.namespace && claims_of(pod).iter().any(|named| named == name)
}

fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

/// The Pods on nodes that use a claim: as long as there is one, the claim stays. A Pod that waits for a node does not
/// count: no node takes a Pod whose claim is being deleted.
pub fn users<'a, P: Borrow<Pod>>(claim: &PersistentVolumeClaim, pods: &'a [P]) -> Vec<&'a Pod> {
    let pods = pods.iter().map(Borrow::borrow);
    pods.filter(|pod| is_scheduled(pod) && !has_ended(pod) && names(pod, claim)).collect()
}

/// The names of the Pods that wait for a node and for this claim.
pub(crate) fn waiting<P: Borrow<Pod>>(claim: &PersistentVolumeClaim, pods: &[P]) -> Vec<String> {
    let pods = pods.iter().map(Borrow::borrow);
    let waits = |pod: &&Pod| !is_scheduled(pod) && !has_ended(pod) && names(pod, claim);
    pods.filter(waits).filter_map(|pod| pod.metadata.name.clone()).collect()
}

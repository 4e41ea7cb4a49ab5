//! The scheduling state of a Pod: bound, pending with a reason, or finished.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The condition `PodScheduled` that says why a Pod is pending; `None` if it is already set.
pub fn unscheduled(current: Option<&PodCondition>, message: &str, now: Timestamp) -> Option<PodCondition> {
    let waits = current.is_some_and(|condition| condition.status == "False");
    let said = current.is_some_and(|condition| condition.message.as_deref() == Some(message));
    if waits && said {
        return None;
    }
    let since = current.filter(|_| waits).and_then(|condition| condition.last_transition_time.clone());
    Some(PodCondition {
        type_: "PodScheduled".into(),
        status: "False".into(),
        reason: Some("Unschedulable".into()),
        message: Some(message.to_owned()),
        last_transition_time: since.or(Some(Time(now))),
        ..PodCondition::default()
    })
}

/// The node that a Pod is bound to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

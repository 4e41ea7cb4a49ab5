//! What a launcher Pod's state means for its VMI.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

pub(crate) use machinery::pod::has_ended as is_down;

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

fn compute(pod: &Pod) -> Option<&ContainerStatus> {
    containers(pod).find(|container| container.name == render::COMPUTE)
}

/// Not all of its containers have started.
pub(crate) fn is_pending(pod: &Pod) -> bool {
    phase(pod) == "Pending"
}

pub(crate) fn is_running(pod: &Pod) -> bool {
    phase(pod) == "Running"
}

pub(crate) fn is_succeeded(pod: &Pod) -> bool {
    phase(pod) == "Succeeded"
}

/// It only triggers the binding of volumes and never runs a guest.
pub(crate) fn is_temporary(pod: &Pod) -> bool {
    crate::meta::annotation(&pod.metadata, api::annotations::EPHEMERAL_PROVISIONING).is_some()
}

pub(crate) fn is_deleting(pod: &Pod) -> bool {
    crate::meta::is_deleting(&pod.metadata)
}

/// The guest is gone, or goes, with this Pod.
pub(crate) fn is_down_or_going_down(pod: &Pod) -> bool {
    let ended = compute(pod).and_then(|c| c.state.as_ref()).is_some_and(|state| state.terminated.is_some());
    is_down(pod) || ended || is_deleting(pod)
}

/// It ended unsuccessfully.
pub(crate) fn has_failed(pod: &Pod) -> bool {
    let ended = compute(pod).and_then(|c| c.state.as_ref()).and_then(|state| state.terminated.as_ref());
    phase(pod) == "Failed" || ended.is_some_and(|ended| ended.exit_code != 0)
}

/// It failed, or is being deleted before it can succeed.
pub(crate) fn is_failed_or_going_down(pod: &Pod) -> bool {
    has_failed(pod) || is_deleting(pod)
}

/// It has one container, and that is ready.
pub(crate) fn is_single_container_ready(pod: &Pod) -> bool {
    let mut all = containers(pod);
    matches!((all.next(), all.next()), (Some(only), None) if only.ready)
}

/// virt-handler can take over: every container is up. Readiness of `compute` itself depends on the guest, and a service
/// mesh proxy becomes ready only with the guest.
pub(crate) fn is_ready_for_handover(pod: &Pod) -> bool {
    let up = |container: &ContainerStatus| match container.name.as_str() {
        render::COMPUTE | "istio-proxy" => container.state.as_ref().is_some_and(|state| state.running.is_some()),
        _ => container.ready,
    };
    !is_down_or_going_down(pod) && is_running(pod) && compute(pod).is_some() && containers(pod).all(up)
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The Pod of a VMI that runs or will run the guest: on the VMI's node if it has one, the newest if there are several.
/// It may be a temporary one.
pub(crate) fn current<'a>(all: &'a [Arc<Pod>], node: Option<&str>) -> Option<&'a Pod> {
    let on_node = |pod: &&Arc<Pod>| node.is_none() || node_name(pod) == node;
    let age =
        |pod: &&Arc<Pod>| (pod.metadata.creation_timestamp.clone(), !is_temporary(pod), pod.metadata.name.clone());
    all.iter().filter(on_node).max_by_key(age).map(AsRef::as_ref)
}

pub(crate) fn qos_class(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.qos_class.as_deref().filter(|class| !class.is_empty())
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// The image in the spec of the container that runs the guest.
pub(crate) fn launcher_image(pod: &Pod) -> &str {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let image = containers.into_iter().find(|c| c.name == render::COMPUTE).and_then(|c| c.image.as_deref());
    image.unwrap_or_default()
}

/// Why a container does not start, beyond the usual wait: the reason and the kubelet's message.
pub(crate) fn blocked_container(pod: &Pod) -> Option<(String, String)> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    all.filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason =
            waiting.reason.as_deref().filter(|r| !matches!(*r, "" | "ContainerCreating" | "PodInitializing"))?;
        let message = waiting.message.as_deref().unwrap_or("the kubelet gave no message");
        Some((reason.to_owned(), format!("container {}: {message}", container.name)))
    })
    .next()
}

/// Why a Pod ended, in one line for an event.
pub(crate) fn obituary(pod: &Pod) -> String {
    let name = crate::meta::name(&pod.metadata);
    if let Some(ended) = compute(pod).and_then(|c| c.state.as_ref()).and_then(|state| state.terminated.as_ref()) {
        let reason = ended.reason.as_deref().unwrap_or("no reason given");
        return format!("launcher Pod {name} ended with exit code {} ({reason})", ended.exit_code);
    }
    let status = pod.status.clone().unwrap_or_default();
    match (status.reason, status.message) {
        (Some(reason), Some(message)) => format!("launcher Pod {name} ended: {reason}: {message}"),
        (Some(reason), None) => format!("launcher Pod {name} ended: {reason}"),
        _ if is_deleting(pod) => format!("launcher Pod {name} is being deleted"),
        _ => format!("launcher Pod {name} ended"),
    }
}

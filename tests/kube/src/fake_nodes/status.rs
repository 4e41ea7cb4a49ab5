//! What a fake kubelet says of its node and of Pods, as objects and patches.

use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::NodeShape;

const ADDRESS: &str = "192.0.2.1";

fn now() -> Time {
    Time(Timestamp::now())
}

/// The annotation by which the agent of virtual machines shows that it lives.
pub(super) fn heartbeat() -> Value {
    json!({"kubevirt.io/heartbeat": now()})
}

/// A node that is ready for Pods.
pub(super) fn node(name: &str, shape: &NodeShape) -> Value {
    let mut labels =
        json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
    shape.labels.iter().for_each(|(name, value)| labels[name] = json!(value));
    let mut resources = json!({"cpu": "10k", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "10k"});
    shape.resources.iter().for_each(|(name, amount)| resources[name] = json!(amount));
    let annotations = if shape.heartbeat { heartbeat() } else { json!({}) };
    json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": name}],
            "conditions": [condition("Ready", true)],
        },
    })
}

/// All containers run; the Pod is ready if nobody else has a say in it.
pub(super) fn running(pod: &Pod) -> Value {
    let state = json!({"running": {"startedAt": now()}});
    let mut patch = patch("Running", pod, &state, true);
    let status = &mut patch["status"];
    status["startTime"] = json!(now());
    (status["hostIP"], status["hostIPs"]) = (json!(ADDRESS), json!([{"ip": ADDRESS}]));
    let address = pod_address(pod);
    (status["podIP"], status["podIPs"]) = (json!(address), json!([{"ip": address}]));
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "ContainersReady"].map(|type_| condition(type_, true));
    status["conditions"] = conditions.into_iter().chain([condition("Ready", gates_open(pod))]).collect();
    patch
}

/// All containers have ended.
pub(super) fn ended(pod: &Pod, code: i32) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    let (finished, phase) = (now(), if code == 0 { "Succeeded" } else { "Failed" });
    let state =
        json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": finished, "finishedAt": finished}});
    let mut status = patch(phase, pod, &state, false);
    status["status"]["conditions"] = json!(["ContainersReady", "Ready"].map(|type_| condition(type_, false)));
    status
}

/// No container can start.
pub(super) fn no_image(pod: &Pod) -> Value {
    let state = json!({"waiting": {"reason": NO_IMAGE, "message": "there is no such image on a fake node"}});
    let mut status = patch("Pending", pod, &state, false);
    // No init container has run either: the first one is what waits.
    status["status"].as_object_mut().map(|status| status.remove("initContainerStatuses"));
    status
}

const NO_IMAGE: &str = "ErrImagePull";

pub(super) fn says_no_image(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = containers.filter_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.any(|reason| reason == NO_IMAGE)
}

/// The readiness of a running Pod as it is now.
pub(super) fn readiness(pod: &Pod) -> Value {
    json!({"status": {"conditions": [condition("Ready", ready(pod))]}})
}

/// Whether a running Pod is ready: its containers are, and each gate is open.
pub(super) fn ready(pod: &Pod) -> bool {
    says(pod, "ContainersReady") && gates_open(pod)
}

pub(super) fn says_ready(pod: &Pod) -> bool {
    says(pod, "Ready")
}

fn gates_open(pod: &Pod) -> bool {
    let mut gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.all(|gate| says(pod, &gate.condition_type))
}

fn says(pod: &Pod, type_: &str) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition: &PodCondition| condition.type_ == type_ && condition.status == "True")
}

/// A phase, and a status for each container: init containers have ended well unless they are meant to stay.
fn patch(phase: &str, pod: &Pod, state: &Value, ready: bool) -> Value {
    let finished =
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}});
    let (mut containers, mut init) = (Vec::new(), Vec::new());
    if let Some(spec) = &pod.spec {
        containers.extend(spec.containers.iter().map(|container| container_status(container, state, ready)));
        init.extend(spec.init_containers.iter().flatten().map(|container| {
            let stays = container.restart_policy.as_deref() == Some("Always");
            if stays { container_status(container, state, ready) } else { container_status(container, &finished, true) }
        }));
    }
    json!({"status": {"phase": phase, "containerStatuses": containers, "initContainerStatuses": init}})
}

fn container_status(container: &Container, state: &Value, ready: bool) -> Value {
    let image = container.image.clone().unwrap_or_default();
    // One that was asked for by its digest has that, as on any node.
    let id = if image.contains('@') { image.clone() } else { format!("{image}@sha256:{:064x}", image.len()) };
    json!({"name": container.name, "image": image, "imageID": id, "containerID": format!("fake://{}", container.name),
        "ready": ready, "started": ready, "restartCount": 0, "state": state})
}

fn condition(type_: &str, holds: bool) -> Value {
    let (status, time) = (if holds { "True" } else { "False" }, now());
    json!({"type": type_, "status": status, "lastTransitionTime": time, "lastProbeTime": null})
}

/// An address of the Pod's own, drawn from its UID.
fn pod_address(pod: &Pod) -> String {
    let digits = |from: usize| {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        u8::from_str_radix(uid.get(from..from + 2).unwrap_or("1"), 16).unwrap_or(1)
    };
    format!("10.{}.{}.{}", digits(0), digits(2), digits(4).clamp(1, 254))
}

//! The kubelet of every node: starts and stops the containers of Pods, and removes terminating Pods.

use std::time::Duration;

use api::conditions;
use informer::Key;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
    PodCondition,
};
use machinery::meta::is_deleting;

use super::{has_ended, is_attachment, is_ephemeral, node_of, phase_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::Object;
use crate::script::PodFate;
use crate::server::{Propagation, Verb, Writer};

impl Sim {
    /// Advances the Pod by one step: containers start, readiness follows the gates, helpers complete.
    pub(super) fn run_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.live::<Pod>(key, uid) else { return };
        let Some(node) = node_of(&pod) else { return };
        if !self.answers(node) || is_deleting(&pod.metadata) || has_ended(&pod) {
            return;
        }
        if phase_of(&pod) != "Running" {
            return self.start_containers(&pod, uid);
        }
        let mut new = (*pod).clone();
        if is_ephemeral(&pod) {
            end_containers(&mut new, 0);
        } else {
            follow_gates(&mut new);
        }
        if new != *pod {
            lock(&self.hub).server.write_whole(Writer::Kubelet, Verb::PatchStatus, new);
        }
    }

    fn start_containers(&mut self, pod: &Pod, uid: &str) {
        if self.script.storage && !self.mount(pod) {
            return;
        }
        let mut new = pod.clone();
        let object = Object::Pod(pod.clone().into());
        match self.world.pod_fates.get(uid).copied() {
            Some(PodFate::ImagePull(wait)) => {
                self.world.pod_fates.remove(uid);
                set_containers(&mut new, waiting("ErrImagePull", "the registry does not answer"), false);
                self.act_after(wait, Actor::Kubelet, &object);
            }
            Some(PodFate::FailsEarly) => {
                self.world.pod_fates.remove(uid);
                end_containers(&mut new, 1);
            }
            fate => {
                set_containers(&mut new, running(), true);
                new.status.get_or_insert_default().phase = Some("Running".to_owned());
                follow_gates(&mut new);
                match fate {
                    Some(PodFate::Evicted(after)) => self.act_after(after, Actor::KubeletEvict, &object),
                    Some(PodFate::Killed(after)) => self.act_after(after, Actor::KubeletKill, &object),
                    _ => {}
                }
                if is_ephemeral(pod) {
                    let after = self.some_ms(500, 4_000);
                    self.act_after(after, Actor::Kubelet, &object);
                }
            }
        }
        lock(&self.hub).server.write_whole(Writer::Kubelet, Verb::PatchStatus, new);
    }

    /// The containers die by themselves.
    pub(super) fn kill_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.live::<Pod>(key, uid) else { return };
        if has_ended(&pod) || !node_of(&pod).is_some_and(|node| self.answers(node)) {
            return;
        }
        let mut pod = (*pod).clone();
        end_containers(&mut pod, 137);
        lock(&self.hub).server.write_whole(Writer::Kubelet, Verb::PatchStatus, pod);
    }

    pub(super) fn evict_pod(&mut self, key: &Key, uid: &str) {
        // It may be gone already; then there is nothing to evict.
        let _ = lock(&self.hub).server.delete::<Pod>(Writer::Kubelet, key, Some(uid), None, Propagation::Background);
    }

    /// A terminating Pod ends and is removed; a launcher without a guest exits.
    pub(super) fn reap_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.live::<Pod>(key, uid) else { return };
        if !node_of(&pod).is_none_or(|node| self.answers(node)) {
            return; // retried when the node is back, or gone for good
        }
        let deleting = is_deleting(&pod.metadata);
        if !has_ended(&pod) && (!deleting || !is_attachment(&pod)) {
            let mut ended = (*pod).clone();
            end_containers(&mut ended, 0);
            let ended = lock(&self.hub).server.write_whole(Writer::Kubelet, Verb::PatchStatus, ended);
            if deleting {
                let after = self.some_ms(10, 1_500);
                self.act_after(after, Actor::KubeletReap, &Object::Pod(ended));
            }
        } else if deleting {
            let server = &mut lock(&self.hub).server;
            // It may already have been removed.
            let _ = server.delete::<Pod>(Writer::Kubelet, key, Some(uid), Some(0), Propagation::Background);
        }
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: Some(message.to_owned()) };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn running() -> ContainerState {
    ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() }
}

fn set_containers(pod: &mut Pod, state: ContainerState, ready: bool) {
    let names: Vec<(String, String)> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| (container.name.clone(), container.image.clone().unwrap_or_default()))
        .collect();
    let statuses = names.into_iter().map(|(name, image)| ContainerStatus {
        name,
        image,
        ready,
        state: Some(state.clone()),
        ..ContainerStatus::default()
    });
    let pulled = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).map(|container| {
        let image = container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: container.name.clone(),
            image_id: format!("{image}@sha256:{DIGEST}"),
            image,
            ready: true,
            ..ContainerStatus::default()
        }
    });
    let pulled: Vec<ContainerStatus> = pulled.collect();
    let statuses: Vec<ContainerStatus> = statuses.collect();
    let status = pod.status.get_or_insert_default();
    status.init_container_statuses = (!pulled.is_empty()).then_some(pulled);
    status.container_statuses = Some(statuses);
}

fn end_containers(pod: &mut Pod, exit_code: i32) {
    let terminated = ContainerStateTerminated { exit_code, ..ContainerStateTerminated::default() };
    let state = ContainerState { terminated: Some(terminated), ..ContainerState::default() };
    set_containers(pod, state, false);
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    set_ready(pod, false);
}

/// A Pod is ready when its containers are and its gates are open.
fn follow_gates(pod: &mut Pod) {
    let gates: Vec<String> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten())
        .map(|gate| gate.condition_type.clone())
        .collect();
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let open: Vec<&str> =
        conditions.filter(|condition| condition.status == "True").map(|condition| condition.type_.as_str()).collect();
    let ready = gates.iter().all(|gate| open.contains(&gate.as_str()));
    set_ready(pod, ready);
}

fn set_ready(pod: &mut Pod, ready: bool) {
    let list = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let status = if ready { "True" } else { "False" };
    match list.iter_mut().find(|condition| condition.type_ == conditions::READY) {
        Some(condition) => condition.status = status.to_owned(),
        None => list.push(PodCondition {
            type_: conditions::READY.to_owned(),
            status: status.to_owned(),
            ..PodCondition::default()
        }),
    }
}

/// The digest of every image in the simulated cluster.
const DIGEST: &str = "0123456789abcdef";

/// How long a node may be silent before its Pods are evicted.
pub(super) const EVICTED_AFTER: Duration = Duration::from_secs(300);

//! Drops fields that no decision reads from cached objects that are never written back whole.

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Node, PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume,
};

/// Keeps a Pod's identity, node, mounts and status. Container arguments are not needed once the Pod exists.
pub(crate) fn pod(pod: &mut Pod) {
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(PodSpec {
            containers: spec.containers.into_iter().map(container).collect(),
            node_name: spec.node_name,
            readiness_gates: spec.readiness_gates,
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            tolerations: spec.tolerations,
            volumes: spec.volumes.map(|volumes| volumes.into_iter().map(volume).collect()),
            ..PodSpec::default()
        });
    }
    if let Some(status) = &mut pod.status {
        let started = status.container_statuses.iter_mut().chain(&mut status.init_container_statuses);
        started.flatten().for_each(container_status);
        status.ephemeral_container_statuses = None;
        status.host_ips = None;
        status.resource_claim_statuses = None;
    }
}

fn container(container: Container) -> Container {
    Container { name: container.name, image: container.image, ..Container::default() }
}

/// Keeps the names of all volumes, but only the sources of claims.
fn volume(volume: Volume) -> Volume {
    let claim = volume
        .persistent_volume_claim
        .map(|claim| PersistentVolumeClaimVolumeSource { claim_name: claim.claim_name, read_only: claim.read_only });
    Volume { name: volume.name, persistent_volume_claim: claim, ..Volume::default() }
}

fn container_status(status: &mut ContainerStatus) {
    status.allocated_resources = None;
    status.allocated_resources_status = None;
    status.container_id = None;
    status.image = String::new();
    status.image_id = String::new();
    status.last_state = None;
    status.resources = None;
    status.user = None;
    status.volume_mounts = None;
}

/// The image list in a node's status is long and unused.
pub(crate) fn node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_in_use = None;
        status.volumes_attached = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_decisions_read_and_loses_the_rest() {
        let full = json!({
            "metadata": {"name": "p", "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"a": "b"}},
            "spec": {
                "nodeName": "n1",
                "affinity": {"nodeAffinity": {}},
                "tolerations": [{"key": "vms", "operator": "Exists"}],
                "containers": [{"name": "compute", "image": "launcher:1", "args": ["--name"], "env": [{"name": "A"}],
                                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {}}],
            },
            "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1",
                       "containerStatuses": [{"name": "compute", "ready": true, "restartCount": 0, "image": "i", "imageID": "x",
                                              "state": {"running": {}}}]},
        });
        let mut pruned: Pod = serde_json::from_value(full).unwrap();
        pod(&mut pruned);
        let kept = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"a": "b"}},
            "spec": {
                "nodeName": "n1",
                "tolerations": [{"key": "vms", "operator": "Exists"}],
                "containers": [{"name": "compute", "image": "launcher:1"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e"}],
            },
            "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1",
                       "containerStatuses": [{"name": "compute", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                                              "state": {"running": {}}}]},
        });
        assert_eq!(serde_json::to_value(&pruned).unwrap(), kept);
    }
}

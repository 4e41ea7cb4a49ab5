mod backend;
mod changes;
mod hotplug;
mod model;
mod network;
mod phases;
mod pods;
mod receivers;
mod steps;
mod strays;
mod volumes;
mod writes;

use std::sync::Arc;

use api::cdi::DataVolume;
use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Action, Look, Owner, World};
use crate::effect::{Doubt as _, Part, Patch, Query};
use crate::object::{Kind, Object};

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

/// An instance as admission leaves it, in some phase.
fn vmi(phase: &str) -> VirtualMachineInstance {
    let mut value = json!({
        "metadata": {
            "name": "vm", "namespace": "ns", "uid": "vmi-uid", "resourceVersion": "1",
            "finalizers": [api::finalizers::VIRTUAL_MACHINE_INSTANCE],
            "annotations": {
                api::annotations::LATEST_OBSERVED_API_VERSION: "v1",
                api::annotations::STORAGE_OBSERVED_API_VERSION: "v1",
            },
        },
        "spec": {
            "domain": {
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                            "interfaces": [{"name": "default", "masquerade": {}}]},
                "resources": {"requests": {"memory": "64Mi"}},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
        },
    });
    if !phase.is_empty() {
        value["status"] = json!({"phase": phase, "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": time(0)}]});
        if matches!(phase, "Scheduled" | "Running" | "Succeeded" | "Failed") {
            value["status"]["nodeName"] = json!("n1");
            value["metadata"]["labels"] = json!({api::labels::NODE_NAME: "n1"});
        }
    }
    serde_json::from_value(value).unwrap()
}

/// A launcher Pod in one of the states that matter.
fn pod(state: &str) -> Pod {
    let running = json!({"name": "compute", "ready": true, "state": {"running": {}}, "image": "", "imageID": "", "restartCount": 0});
    let waiting = |reason: &str| {
        json!({"name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": "the registry says no"}}})
    };
    let ended = json!({"name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
    let status = match state {
        "new" => json!({"phase": "Pending"}),
        "unschedulable" => json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient memory."}]}),
        "creating" => json!({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}),
        "image missing" => json!({"phase": "Pending", "containerStatuses": [waiting("ErrImagePull")]}),
        "running" => json!({"phase": "Running", "qosClass": "Burstable", "containerStatuses": [running]}),
        "ready" => json!({"phase": "Running", "qosClass": "Burstable", "containerStatuses": [running], "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": api::conditions::VIRTUAL_MACHINE_UNPAUSED, "status": "True"}]}),
        "compute ended" => json!({"phase": "Running", "containerStatuses": [ended]}),
        "succeeded" => json!({"phase": "Succeeded"}),
        "failed" => json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
        "terminating" => json!({"phase": "Running", "containerStatuses": [running]}),
        other => panic!("no such state of a Pod: {other}"),
    };
    let scheduled = !matches!(state, "new" | "unschedulable");
    let mut value = json!({
        "metadata": {
            "name": "virt-launcher-vm-x", "namespace": "ns", "uid": "pod-uid", "resourceVersion": "1",
            "creationTimestamp": time(0),
            "labels": {api::labels::APP: "virt-launcher", api::labels::CREATED_BY: "vmi-uid"},
            "annotations": {
                api::annotations::DESCHEDULER_REQUEST_EVICT_ONLY: "",
                api::annotations::MIGRATION_TRANSPORT_UNIX: "true",
                api::annotations::MEMORY_OVERHEAD_BYTES: "1000",
            },
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm",
                                 "uid": "vmi-uid", "controller": true}],
        },
        "spec": {"containers": [{"name": "compute", "image": "launcher:1"}]},
        "status": status,
    });
    if scheduled {
        value["spec"]["nodeName"] = json!("n1");
    }
    for (key, text) in render::velero_annotations(&vmi("")) {
        value["metadata"]["annotations"][key] = json!(text);
    }
    if state == "terminating" {
        value["metadata"]["deletionTimestamp"] = json!(time(1));
        value["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    serde_json::from_value(value).unwrap()
}

fn world(vmi: VirtualMachineInstance, pods: Vec<Pod>) -> World {
    let config = ClusterConfig { launcher_image: "launcher:1".into(), ..ClusterConfig::default() };
    World { pods: pods.into_iter().map(Arc::new).collect(), ..World::new(Arc::new(vmi), Arc::new(config), time(100)) }
}

/// A Pod that only provokes the binding of volumes.
fn temporary(state: &str) -> Pod {
    let mut pod = pod(state);
    pod.metadata.name = Some("virt-launcher-vm-temp".into());
    pod.metadata.uid = Some("temp-uid".into());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(api::annotations::EPHEMERAL_PROVISIONING.into(), "true".into());
    pod
}

/// A Pod of the launcher's that mounts claims under the names of volumes.
fn attachment(name: &str, volumes: &[&str], state: &str) -> Pod {
    let ready = state == "Running";
    let claims = volumes.iter().map(|volume| json!({"name": volume, "persistentVolumeClaim": {"claimName": volume}}));
    let mut all: Vec<Value> = vec![json!({"name": "hotplug-disks", "emptyDir": {}})];
    all.extend(claims);
    let value = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "1",
            "creationTimestamp": time(10), "labels": {api::labels::APP: "hotplug-disk"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-vm-x", "uid": "pod-uid",
                                 "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "hotplug-disk"}], "volumes": all},
        "status": {"phase": state, "containerStatuses": [
            {"name": "hotplug-disk", "ready": ready, "image": "", "imageID": "", "restartCount": 0}]},
    });
    serde_json::from_value(value).unwrap()
}

/// A bound claim that a DataVolume of its name controls.
fn claim(name: &str) -> PersistentVolumeClaim {
    let value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": name,
                                 "uid": format!("{name}-dv-uid"), "controller": true}]},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "fast",
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
    });
    serde_json::from_value(value).unwrap()
}

fn data_volume(name: &str, phase: &str) -> DataVolume {
    let ready = if phase == "Succeeded" { "True" } else { "False" };
    let value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-dv-uid"), "resourceVersion": "1"},
        "spec": {},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_value(value).unwrap()
}

/// Puts a claim and its DataVolume into the world.
fn with_claim(mut w: World, name: &str, phase: &str) -> World {
    w.claims.claims.insert(name.to_owned(), Arc::new(claim(name)));
    w.claims.data_volumes.insert(name.to_owned(), Arc::new(data_volume(name, phase)));
    w
}

/// The instance with one more volume.
fn with_volume(mut vmi: VirtualMachineInstance, volume: Value) -> VirtualMachineInstance {
    vmi.spec.volumes.push(serde_json::from_value(volume).unwrap());
    vmi
}

/// The names of Pods that are created.
fn created(actions: &[Action]) -> Vec<&Pod> {
    actions
        .iter()
        .filter_map(
            |action| if let Action::Create { object: Object::Pod(pod), .. } = action { Some(&**pod) } else { None },
        )
        .collect()
}

/// The names of Pods that are deleted without grace, at once or if the VMI is found unchanged.
fn deleted(actions: &[Action]) -> Vec<&str> {
    actions
        .iter()
        .flat_map(|action| match action {
            Action::Delete { kind: Kind::Pod, name, grace_seconds: Some(0), .. } => vec![name.as_str()],
            Action::Confirm { look: Look::Current, then } => deleted(then),
            _ => vec![],
        })
        .collect()
}

/// The one condition that a patch of a Pod's status sets.
fn set_condition(patch: &Value) -> PodCondition {
    let [condition] = patch["status"]["conditions"].as_array().unwrap().as_slice() else { panic!("{patch}") };
    serde_json::from_value(condition.clone()).unwrap()
}

fn condition<'a>(vmi: &'a VirtualMachineInstance, type_: &str) -> &'a api::v1::Condition {
    vmi.condition(type_).unwrap_or_else(|| panic!("no condition {type_} in {:#?}", vmi.status))
}

fn deleting(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
    vmi.metadata.deletion_timestamp = Some(time(50));
    vmi
}

/// The instance as the actions leave it, whether by update or by patch. Follows confirmations.
fn written(w: &World, actions: &[Action]) -> Option<VirtualMachineInstance> {
    actions.iter().find_map(|action| match action {
        Action::Replace(Object::Vmi(new)) => Some((**new).clone()),
        Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } => {
            let mut value: Value = serde_json::to_value(&*w.vmi).unwrap();
            machinery::patch::apply(&mut value, patch).expect("the patch fits what it was made from");
            Some(serde_json::from_value(value).unwrap())
        }
        Action::Confirm { then, .. } => written(w, then),
        _ => None,
    })
}

fn phase_after(w: &World, actions: &[Action]) -> Option<Phase> {
    written(w, actions).as_ref().unwrap_or(&w.vmi).phase().cloned()
}

fn confirms(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Confirm { look: Look::NoPods(_), .. }))
}

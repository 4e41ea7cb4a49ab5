mod model;
mod starts;
mod states;
mod strategies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Action, World, decide};
use crate::claims::Claims;
use admission::firmware_uuid;

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

/// A virtual machine that has been prepared: finalizer, stamp, firmware UUID.
fn vm(strategy: &str) -> VirtualMachine {
    serde_json::from_value(json!({
        "metadata": {
            "name": "vm", "namespace": "ns", "uid": "vm-uid", "resourceVersion": "1", "generation": 3,
            "finalizers": [api::finalizers::VIRTUAL_MACHINE_CONTROLLER],
            "annotations": {
                api::annotations::LATEST_OBSERVED_API_VERSION: "v1",
                api::annotations::STORAGE_OBSERVED_API_VERSION: "v1",
            },
        },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"note": "kept"}},
                "spec": {
                    "domain": {"devices": {}, "firmware": {"uuid": firmware_uuid("vm")}, "cpu": {"cores": 1}},
                    "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
                },
            },
        },
    }))
    .unwrap()
}

/// Its instance in some phase; final phases count as never having run.
fn vmi(phase: &str) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {
            "name": "vm", "namespace": "ns", "uid": "vmi-uid", "resourceVersion": "1",
            "finalizers": [api::finalizers::VIRTUAL_MACHINE_CONTROLLER],
            "annotations": {api::annotations::VM_GENERATION: "3"},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid",
                                 "controller": true}],
        },
        "spec": {"domain": {"devices": {}, "firmware": {"uuid": firmware_uuid("vm")}}},
        "status": {"phase": phase, "virtualMachineRevisionName": "revision-start-vm-vm-uid-3"},
    }))
    .unwrap()
}

fn having_run(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
    let ran = json!({"phase": "Running", "phaseTransitionTimestamp": time(0)});
    vmi.status_mut().phase_transition_timestamps.push(serde_json::from_value(ran).unwrap());
    vmi
}

fn deleting(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
    vmi.metadata.deletion_timestamp = Some(time(50));
    vmi
}

/// The revision that the current spec was started from.
fn revision(vm: &VirtualMachine) -> ControllerRevision {
    serde_json::from_value(json!({
        "metadata": {"name": "revision-start-vm-vm-uid-3", "namespace": "ns", "uid": "rev-uid",
                     "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm",
                                          "uid": "vm-uid", "controller": true}]},
        "revision": 3, "data": {"spec": vm.spec},
    }))
    .unwrap()
}

fn world(vm: VirtualMachine, vmi: Option<VirtualMachineInstance>) -> World {
    World {
        revisions: vec![Arc::new(revision(&vm))],
        vm: Arc::new(vm),
        vmi: vmi.map(Arc::new),
        claims: Claims::default(),
        copied_claims: BTreeSet::new(),
        data_sources: BTreeMap::new(),
        instancetype: None,
        preference: None,
        namespace_labels: BTreeMap::new(),
        config: Arc::new(ClusterConfig::default()),
        settings: Arc::default(),
        behind: None,
        expects_instance: None,
        expects_data_volumes: None,
        hold_starts: false,
        failed: None,
        now: time(100),
    }
}

fn with_requests(mut vm: VirtualMachine, requests: Value) -> VirtualMachine {
    vm.status_mut().state_change_requests = serde_json::from_value(requests).unwrap();
    vm
}

/// The virtual machine with the status that the actions write.
fn status_after(w: &World) -> VirtualMachine {
    let written = decide(w).into_iter().find_map(|action| match action {
        Action::UpdateStatus(vm) => Some(*vm),
        _ => None,
    });
    written.unwrap_or_else(|| (*w.vm).clone())
}

fn creates(actions: &[Action]) -> Option<&VirtualMachineInstance> {
    actions.iter().find_map(|action| match action {
        Action::CreateVmi { vmi, .. } => Some(vmi.as_ref()),
        _ => None,
    })
}

fn deletes(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::DeleteVmi { uid, .. } if uid == "vmi-uid"))
}

fn patched<T: serde::Serialize + serde::de::DeserializeOwned>(object: &T, patch: &json_patch::Patch) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    machinery::patch::apply(&mut value, patch).expect("the patch fits what it was made from");
    serde_json::from_value(value).unwrap()
}

mod data_volumes;
mod instancetypes;
mod live_updates;
mod memory_dumps;
mod model;
mod networks;
mod printables;
mod properties;
mod receivers;
mod restarts;
mod sequences;
mod starts;
mod states;
mod strategies;
mod tracking;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Action, Look, Own, World, decide};
use crate::claims::Claims;
use crate::effect::Patch;
use crate::object::{Kind, Object};
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
        Action::ReplaceStatus(Object::Vm(vm)) => Some(*vm),
        _ => None,
    });
    written.unwrap_or_else(|| (*w.vm).clone())
}

fn creates(actions: &[Action]) -> Option<&VirtualMachineInstance> {
    actions.iter().find_map(|action| match action {
        Action::Create { object: Object::Vmi(vmi), .. } => Some(vmi.as_ref()),
        _ => None,
    })
}

/// What is adopted once a live read has shown that the VM is still there: kind, name, and the fields that are set.
fn adopts(action: &Action) -> Option<(Kind, &str, &Value)> {
    let Action::Confirm { look: Look::OwnerAlive, then } = action else { return None };
    let [Action::Patch { kind, name, patch: Patch::Merge(patch), .. }] = then.as_slice() else { panic!("{then:#?}") };
    Some((*kind, name, &patch["metadata"]))
}

fn deletes(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Delete { kind: Kind::Vmi, uid, .. } if uid == "vmi-uid"))
}

fn patched<T: serde::Serialize + serde::de::DeserializeOwned>(object: &T, patch: &json_patch::Patch) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    machinery::patch::apply(&mut value, patch).expect("the patch fits what it was made from");
    serde_json::from_value(value).unwrap()
}

/// The object with some JSON merged into it.
fn with<T: serde::Serialize + serde::de::DeserializeOwned>(object: T, change: Value) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    machinery::patch::merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

/// A configuration with some settings.
fn config(settings: Value) -> Arc<ClusterConfig> {
    let kubevirt = json!({"metadata": {"name": "kubevirt"}, "spec": {"configuration": settings}});
    Arc::new(ClusterConfig::from_kubevirt(&serde_json::from_value(kubevirt).unwrap()).unwrap())
}

fn data_volume(name: &str, status: Value) -> Arc<api::cdi::DataVolume> {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid",
                        "controller": true}]);
    let value = json!({"metadata": {"name": name, "namespace": "ns", "uid": "dv-uid", "ownerReferences": owner},
                       "spec": {}, "status": status});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn claim(name: &str, phase: &str) -> Arc<PersistentVolumeClaim> {
    let value = json!({"metadata": {"name": name, "namespace": "ns", "uid": "claim-uid"}, "status": {"phase": phase}});
    Arc::new(serde_json::from_value(value).unwrap())
}

/// The instance as the actions leave it, and whether they patch it.
fn instance_after(w: &World) -> Option<VirtualMachineInstance> {
    decide(w).iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } => {
            Some(patched(w.vmi.as_deref().unwrap(), patch))
        }
        _ => None,
    })
}

/// The virtual machine as a patch of its spec leaves it.
fn machine_after(w: &World) -> Option<VirtualMachine> {
    decide(w).iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. } => Some(patched(w.vm.as_ref(), patch)),
        _ => None,
    })
}

/// Reason and message of the condition that tells of a failure.
fn failure(w: &World) -> Option<(String, String)> {
    let after = status_after(w);
    let failure = after.condition(api::conditions::FAILURE)?;
    Some((failure.reason().to_owned(), failure.message().to_owned()))
}

/// What the condition Ready says about the missing instance.
fn waits_for(w: &World) -> String {
    status_after(w).condition(api::conditions::READY).unwrap().message().to_owned()
}

/// A running instance whose machine has since been changed.
fn changed(change: Value) -> World {
    let started = vm("Manual");
    let mut after = with(started.clone(), change);
    after.metadata.generation = Some(4);
    World { revisions: vec![Arc::new(revision(&started))], ..world(after, Some(vmi("Running"))) }
}

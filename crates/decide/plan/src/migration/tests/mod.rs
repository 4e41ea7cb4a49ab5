mod decentralized;
mod ends;
mod handoffs;
mod limits;
mod phases;
mod policies;
mod queue;
mod sequences;
mod slots;
mod starts;
mod state;
mod waits;

use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{Condition, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Action, Look, Own, World, decide};
use crate::effect::Patch;
use crate::object::{Kind as Of, Object};

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

/// A migration as admission leaves it, in some phase; it is 100 seconds old.
fn migration(phase: &str) -> Migration {
    named("m", phase)
}

fn named(name: &str, phase: &str) -> Migration {
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-of-{name}"), "resourceVersion": "1",
            "creationTimestamp": time(0), "finalizers": [api::finalizers::MIGRATION],
            "labels": {api::labels::VMI_NAME: "vm"},
            "annotations": {api::annotations::LATEST_OBSERVED_API_VERSION: "v1",
                            api::annotations::STORAGE_OBSERVED_API_VERSION: "v1"},
        },
        "spec": {"vmiName": "vm"},
    });
    if !phase.is_empty() {
        value["status"] = json!({"phase": phase, "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": time(0)}]});
    }
    serde_json::from_value(value).unwrap()
}

fn deleted(mut migration: Migration) -> Migration {
    migration.metadata.deletion_timestamp = Some(time(50));
    migration
}

/// A running instance on node n1, which it is asked to leave; `state` is its migrationState.
fn vmi(state: Value) -> VirtualMachineInstance {
    let value = json!({
        "metadata": {"name": "vm", "namespace": "ns", "uid": "vmi-uid", "resourceVersion": "7",
                     "labels": {api::labels::NODE_NAME: "n1", "tier": "gold"}, "annotations": {"kubevirt.io/nonroot": "true"}},
        "spec": {
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                                   "interfaces": [{"name": "default", "masquerade": {}}]},
                       "resources": {"requests": {"memory": "64Mi"}}},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}],
        },
        "status": {"phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1", "runtimeUser": 107, "selinuxContext": "none",
                   "conditions": [{"type": "LiveMigratable", "status": "True"}], "migrationState": state},
    });
    serde_json::from_value(value).unwrap()
}

/// What the nodes have written about migration `m` when it is this far.
fn course(stage: &str) -> Value {
    let mut state = json!({"migrationUid": "uid-of-m", "sourceNode": "n1", "sourcePod": "source", "targetNode": "n2",
                           "targetPod": "target"});
    let stages = ["handed off", "listening", "sending", "ready", "completed"];
    let at = stages.iter().position(|known| *known == stage).unwrap_or(2);
    if at >= 1 {
        state["targetNodeAddress"] = json!("10.0.0.2");
    }
    if at >= 2 {
        state["startTimestamp"] = json!(time(60));
    }
    if at >= 3 {
        state["targetNodeDomainReadyTimestamp"] = json!(time(70));
    }
    if at >= 4 {
        state["endTimestamp"] = json!(time(80));
        state["completed"] = json!(true);
    }
    if stage == "failed" {
        state["endTimestamp"] = json!(time(80));
        state["completed"] = json!(true);
        state["failed"] = json!(true);
        state["failureReason"] = json!("the link was cut");
    }
    state
}

fn pod(name: &str, node: Option<&str>, state: &str, labels: Value) -> Pod {
    let container = |state: Value| json!([{"name": "compute", "ready": true, "image": "", "imageID": "", "restartCount": 0, "state": state}]);
    let status = match state {
        "new" => json!({"phase": "Pending"}),
        "unschedulable" => json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/2 nodes are available"}]}),
        "running" => json!({"phase": "Running", "containerStatuses": container(json!({"running": {}}))}),
        "succeeded" => json!({"phase": "Succeeded"}),
        "failed" => json!({"phase": "Failed", "reason": "Evicted"}),
        other => panic!("no such state of a Pod: {other}"),
    };
    let mut value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}"), "resourceVersion": "3",
            "creationTimestamp": time(10), "labels": labels,
            "annotations": {api::annotations::MEMORY_OVERHEAD_BYTES: "1000"},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm",
                                 "uid": "vmi-uid", "controller": true}]},
        "spec": {"containers": [{"name": "compute", "image": "launcher:1"}]}, "status": status,
    });
    if let Some(node) = node {
        value["spec"]["nodeName"] = json!(node);
    }
    serde_json::from_value(value).unwrap()
}

fn source() -> Pod {
    pod("source", Some("n1"), "running", json!({api::labels::APP: "virt-launcher", api::labels::CREATED_BY: "vmi-uid"}))
}

fn target(state: &str) -> Pod {
    let node = (!matches!(state, "new" | "unschedulable")).then_some("n2");
    let labels = json!({api::labels::APP: "virt-launcher", api::labels::CREATED_BY: "vmi-uid",
                        api::labels::MIGRATION_JOB_UID: "uid-of-m"});
    pod("target", node, state, labels)
}

fn node(name: &str) -> Node {
    let value = json!({"metadata": {"name": name, "labels": {"kubevirt.io/schedulable": "true",
        "cpu-vendor.node.kubevirt.io/AMD": "true", "host-model-cpu.node.kubevirt.io/EPYC": "true"}}});
    serde_json::from_value(value).unwrap()
}

/// The world of a migration of a running instance, with its source Pod and these others.
fn world(migration: Migration, vmi: VirtualMachineInstance, others: Vec<Pod>) -> World {
    let config = ClusterConfig { launcher_image: "launcher:1".into(), ..ClusterConfig::default() };
    let pods = std::iter::once(source()).chain(others).map(Arc::new);
    World {
        pods: pods.collect(),
        nodes: vec![Arc::new(node("n1")), Arc::new(node("n2"))],
        ..World::new(Arc::new(migration), Some(Arc::new(vmi)), Arc::new(config), time(100))
    }
}

/// The status that is written, looking into confirmations too.
fn written(actions: &[Action]) -> Option<&Migration> {
    actions.iter().find_map(|action| match action {
        Action::ReplaceStatus(Object::Migration(migration)) => Some(migration.as_ref()),
        Action::Confirm { look: Look::NoTarget | Look::NoVmi | Look::SameState, then } => written(then),
        _ => None,
    })
}

/// The phase after the pass.
fn phase_after(w: &World) -> String {
    let actions = decide(w);
    let after = written(&actions).unwrap_or(&w.migration);
    after.phase().map_or_else(String::new, |phase| phase.as_str().to_owned())
}

/// The condition of a type after the pass.
fn condition_after(w: &World, type_: &str) -> Option<Condition> {
    let actions = decide(w);
    let after = written(&actions).unwrap_or(&w.migration);
    api::conditions::find(&after.status.as_ref()?.conditions, type_).cloned()
}

/// Why it waits, in one word.
fn waits_for(w: &World) -> String {
    let condition = condition_after(w, api::conditions::MIGRATION_WAITING);
    condition.map_or_else(String::new, |condition| condition.reason().to_owned())
}

fn notes(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .flat_map(|action| match action {
            Action::Note(note) => vec![note.reason.clone()],
            Action::NoteAbout(_, note) => vec![format!("vmi:{}", note.reason)],
            Action::Confirm { look: Look::NoTarget | Look::SameState, then } => notes(then),
            _ => vec![],
        })
        .collect()
}

/// What a patch makes of an object.
fn applied<T: serde::Serialize + serde::de::DeserializeOwned>(object: &T, patch: &json_patch::Patch) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    machinery::patch::apply(&mut value, patch).unwrap();
    serde_json::from_value(value).unwrap()
}

fn patched_vmi(w: &World) -> Option<VirtualMachineInstance> {
    let actions = decide(w);
    let patch = actions.iter().find_map(|action| match action {
        Action::Patch { kind: Of::Vmi, patch: Patch::Json(patch), .. } => Some(patch.clone()),
        _ => None,
    })?;
    Some(applied(w.vmi.as_deref().unwrap(), &patch))
}

fn deletes_target(w: &World) -> bool {
    fn deletes(actions: &[Action]) -> bool {
        actions.iter().any(|action| match action {
            Action::Delete { kind: Of::Pod, name, .. } => name == "target",
            Action::Confirm { look: Look::SameState, then } => deletes(then),
            _ => false,
        })
    }
    deletes(&decide(w))
}

fn is_failed(migration: &Migration) -> bool {
    migration.phase() == Some(&Phase::Failed)
}

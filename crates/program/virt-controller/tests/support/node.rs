//! A stand-in for scheduler, kubelet and node agent: binds Pods, runs their containers, starts and ends guests.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use api::v1::{VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use informer::{Classify, ErrorClass, Informer, Key, Requeue, Store, WorkQueue, run_workers};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Cluster, NAMESPACE};

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(#[from] kube::Error);

impl Classify for Failed {
    fn class(&self) -> ErrorClass {
        ErrorClass::Conflict
    }
}

/// What the node has seen over its life, by UID.
#[derive(Default)]
struct Seen {
    pods: BTreeSet<String>,
    vmis: BTreeSet<String>,
}

pub(crate) struct Node {
    seen: Arc<Mutex<Seen>>,
    _stop: DropGuard,
}

impl Node {
    /// A node that runs everything.
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        Self::with(cluster.admin.clone(), cluster.agent_client().await, true)
    }

    /// A node on which nothing fits.
    pub(crate) async fn full(cluster: &Cluster) -> Self {
        Self::with(cluster.admin.clone(), cluster.agent_client().await, false)
    }

    fn with(client: Client, agent_client: Client, room: bool) -> Self {
        let stop = CancellationToken::new();
        let pods: Store<Pod> = Informer::new().start(Api::all(client.clone()), stop.clone());
        let vmis: Store<VirtualMachineInstance> = Informer::new().start(Api::all(client.clone()), stop.clone());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        pods.subscribe(move |change| {
            log.lock().unwrap().pods.extend(change.object().metadata.uid.clone());
        });
        let log = seen.clone();
        vmis.subscribe(move |change| {
            log.lock().unwrap().vmis.extend(change.object().metadata.uid.clone());
        });
        let queue = WorkQueue::new("node");
        pods.feed(&queue);
        vmis.feed(&queue);
        tokio::spawn(run_workers(queue, 4, stop.clone(), move |key: Key| {
            let (client, agent_client) = (client.clone(), agent_client.clone());
            let (pod, vmi) = (pods.get(&key), vmis.get(&key));
            async move {
                if let Some(pod) = pod {
                    kubelet(&client, &pod, room).await?;
                }
                if let Some(vmi) = vmi {
                    agent(&agent_client, &vmi).await?;
                }
                Ok::<_, Failed>(Requeue::No)
            }
        }));
        Self { seen, _stop: stop.drop_guard() }
    }

    /// How many launcher Pods there have ever been.
    pub(crate) fn pods_ever(&self) -> usize {
        self.seen.lock().unwrap().pods.len()
    }

    /// How many instances there have ever been.
    pub(crate) fn vmis_ever(&self) -> usize {
        self.seen.lock().unwrap().vmis.len()
    }
}

async fn kubelet(client: &Client, pod: &Pod, room: bool) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let name = pod.metadata.name.as_deref().unwrap();
    let status = |status: serde_json::Value| Patch::Strategic(json!({"status": status}));
    let params = PatchParams::default();
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        api.delete(name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    } else if !bound && room {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
        let _: kube::core::Status = api.create_subresource("binding", name, &PostParams::default(), &binding).await?;
    } else if !bound {
        let told = |c: &k8s_openapi::api::core::v1::PodCondition| c.type_ == "PodScheduled" && c.status == "False";
        if !pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(told) {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                   "message": "0/1 nodes are available: 1 Insufficient memory."});
            api.patch_status(name, &params, &status(json!({"conditions": [condition]}))).await?;
        }
    } else if phase == "Pending" {
        let compute = json!({"name": "compute", "ready": true, "started": true, "image": "launcher:1", "imageID": "x",
                             "restartCount": 0, "state": {"running": {}}});
        let ready = json!({"type": "Ready", "status": "True"});
        let running = json!({"phase": "Running", "containerStatuses": [compute], "conditions": [ready]});
        api.patch_status(name, &params, &status(running)).await?;
    }
    Ok(())
}

async fn agent(client: &Client, vmi: &VirtualMachineInstance) -> Result<(), kube::Error> {
    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), NAMESPACE);
    let phase = match vmi.phase() {
        Some(Phase::Scheduled) if !vmi.is_marked_for_deletion() => Phase::Running,
        Some(Phase::Scheduled | Phase::Running) if vmi.is_marked_for_deletion() => Phase::Succeeded,
        _ => return Ok(()),
    };
    let mut new = vmi.clone();
    let entered = json!({"phase": phase, "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"});
    let status = new.status_mut();
    status.phase_transition_timestamps.push(serde_json::from_value(entered).unwrap());
    status.phase = Some(phase);
    api.replace(vmi.metadata.name.as_deref().unwrap(), &PostParams::default(), &new).await.map(drop)
}

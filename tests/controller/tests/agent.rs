//! A stand-in for the node agent: starts guests as soon as they are handed over, and ends them when they are deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use api::v1::{VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use informer::{Classify, ErrorClass, Informer, Key, Requeue, Store, WorkQueue, run_workers};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(#[from] kube::Error);

impl Classify for Failed {
    fn class(&self) -> ErrorClass {
        ErrorClass::Conflict
    }
}

/// The agent of one node, until it goes.
pub(crate) struct Agent {
    _stop: DropGuard,
}

impl Agent {
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let stop = CancellationToken::new();
        let here = format!("{}={node}", api::labels::NODE_NAME);
        let informer = Informer::new().labels(&here);
        let vmis: Store<VirtualMachineInstance> = informer.start(Api::all(client.clone()), stop.clone());
        let queue = WorkQueue::new("agent");
        vmis.feed(&queue);
        tokio::spawn(run_workers(queue, 4, stop.clone(), move |key: Key| {
            let (client, vmi) = (client.clone(), vmis.get(&key));
            async move {
                if let Some(vmi) = vmi {
                    drive(&client, &key, &vmi).await?;
                }
                Ok::<_, Failed>(Requeue::No)
            }
        }));
        Self { _stop: stop.drop_guard() }
    }
}

async fn drive(client: &Client, key: &Key, vmi: &VirtualMachineInstance) -> Result<(), kube::Error> {
    let phase = match vmi.phase() {
        Some(Phase::Scheduled) if !vmi.is_marked_for_deletion() => Phase::Running,
        Some(Phase::Scheduled | Phase::Running) if vmi.is_marked_for_deletion() => Phase::Succeeded,
        _ => return Ok(()),
    };
    let mut new = vmi.clone();
    let entered = json!({"phase": phase, "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"});
    let status = new.status_mut();
    status.phase_transition_timestamps.push(serde_json::from_value(entered).unwrap());
    if phase == Phase::Running {
        let movable = json!({"type": api::conditions::LIVE_MIGRATABLE, "status": "True"});
        status.conditions.push(serde_json::from_value(movable).unwrap());
    }
    status.phase = Some(phase);
    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &key.namespace);
    api.replace(&key.name, &PostParams::default(), &new).await.map(drop)
}

/// Counts every Pod and instance that there has ever been in a namespace.
pub(crate) struct Census {
    pods: Seen,
    vmis: Seen,
    _stop: DropGuard,
}

type Seen = Arc<Mutex<BTreeSet<String>>>;

impl Census {
    pub(crate) async fn start(client: &Client, namespace: &str) -> Self {
        let stop = CancellationToken::new();
        let pods: Store<Pod> = Informer::new().start(Api::namespaced(client.clone(), namespace), stop.clone());
        let vmis: Store<VirtualMachineInstance> =
            Informer::new().start(Api::namespaced(client.clone(), namespace), stop.clone());
        let census = Self { pods: Seen::default(), vmis: Seen::default(), _stop: stop.drop_guard() };
        let seen = census.pods.clone();
        pods.subscribe(move |change| seen.lock().unwrap().extend(change.object().metadata.uid.clone()));
        let seen = census.vmis.clone();
        vmis.subscribe(move |change| seen.lock().unwrap().extend(change.object().metadata.uid.clone()));
        assert!(pods.synced().await && vmis.synced().await, "the census has begun");
        census
    }

    /// How many instances, and how many Pods.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.vmis.lock().unwrap().len(), self.pods.lock().unwrap().len())
    }
}

//! Nodes that only pretend: `Node` objects, and a driver that does to Pods what a kubelet would tell the API server.
//!
//! A Pod bound to one of them runs as soon as it is seen: every container is said to run, init containers to have ended
//! well. A Pod that terminates is said to have stopped, and goes. Nothing is executed. Readiness gates are honoured as
//! a kubelet honours them: the Pod is ready once somebody has set all of its conditions.

mod status;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Requests about Pods under way at a time.
const AT_ONCE: usize = 16;

/// How often the nodes say that their agent of virtual machines is alive. One that is silent for five minutes is taken
/// for lost.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// What becomes of a Pod on a fake node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its containers run.
    Run,
    /// It stays as the scheduler left it: bound, and pending.
    Wait,
    /// Its image cannot be had: it stays pending, and its containers say why.
    NoImage,
    /// Its containers end with this code: 0 is a success.
    End(i32),
}

/// What the nodes are like.
#[derive(Clone, Debug)]
pub struct NodeShape {
    /// What they offer, beside CPU, memory and room for 10,000 Pods each.
    pub resources: BTreeMap<String, String>,
    /// Labels beside those that each node has.
    pub labels: BTreeMap<String, String>,
    /// Whether the agent of virtual machines shows signs of life.
    pub heartbeat: bool,
}

impl Default for NodeShape {
    /// Nodes that a virtual machine of any usual shape may run on.
    fn default() -> Self {
        let resources = ["kvm", "tun", "vhost-net", "vhost-vsock"].map(|name| format!("devices.kubevirt.io/{name}"));
        let labels = ["kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35"];
        NodeShape {
            resources: resources.into_iter().map(|name| (name, "100k".to_owned())).collect(),
            labels: labels.into_iter().map(|name| (name.to_owned(), "true".to_owned())).collect(),
            heartbeat: true,
        }
    }
}

/// Fake nodes of one cluster. They do nothing any more once this value is gone; their objects stay.
pub struct FakeNodes {
    client: Client,
    names: Vec<String>,
    fate: Arc<Mutex<ChooseFate>>,
    tasks: Vec<JoinHandle<()>>,
}

type ChooseFate = Box<dyn Fn(&Pod) -> Fate + Send + Sync>;

impl FakeNodes {
    /// Makes this many nodes, `node-0` and on, and drives their Pods from now on. All Pods run until
    /// [`decide`](Self::decide) says otherwise.
    pub async fn start(client: Client, count: usize, shape: &NodeShape) -> Result<FakeNodes> {
        let names: Vec<String> = (0..count).map(|number| format!("node-{number}")).collect();
        for name in &names {
            register(&client, name, shape).await.with_context(|| format!("cannot make the fake node {name}"))?;
        }
        let fate: Arc<Mutex<ChooseFate>> = Arc::new(Mutex::new(Box::new(|_| Fate::Run)));
        let driver = Driver { client: client.clone(), names: names.iter().cloned().collect(), fate: fate.clone() };
        let mut tasks = vec![tokio::spawn(drive(driver))];
        if shape.heartbeat {
            tasks.push(tokio::spawn(beat(client.clone(), names.clone())));
        }
        Ok(FakeNodes { client, names, fate, tasks })
    }

    /// The names of the nodes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// From now on decides about Pods that are not yet running.
    pub fn decide(&self, fate: impl Fn(&Pod) -> Fate + Send + Sync + 'static) {
        *self.fate.lock() = Box::new(fate);
    }

    /// Ends the containers of a running Pod with this code.
    pub async fn end(&self, namespace: &str, name: &str, code: i32) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let doing = || format!("cannot end the Pod {namespace}/{name}");
        let pod = pods.get(name).await.with_context(doing)?;
        write_status(&pods, &pod, status::ended(&pod, code)).await.with_context(doing)
    }
}

impl Drop for FakeNodes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn register(client: &Client, name: &str, shape: &NodeShape) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(status::node(name, shape))?;
    let made = nodes.create(&PostParams::default(), &node).await?;
    // A server may have dropped the status, and Kubernetes keeps Pods off a new node until a controller trusts it.
    let status = json!({ "status": node.status });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    if made.spec.is_some_and(|spec| spec.taints.is_some()) {
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}}))).await?;
    }
    Ok(())
}

/// Renews the signs of life until the task is ended. A write that fails is made up for by the next.
async fn beat(client: Client, names: Vec<String>) {
    let nodes: Api<Node> = Api::all(client);
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        for name in &names {
            let patch = json!({"metadata": {"annotations": status::heartbeat()}});
            let _ = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }
}

struct Driver {
    client: Client,
    names: HashSet<String>,
    fate: Arc<Mutex<ChooseFate>>,
}

/// Follows all Pods until the task is ended. What fails is tried again with the next event of the Pod, or said if there
/// can be none.
async fn drive(driver: Driver) {
    let pods: Api<Pod> = Api::all(driver.client.clone());
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    // Without pauses a client that fails at once, as it does when the runtime ends, would be asked again for ever, and the
    // runtime would wait for this task for ever.
    let events = watcher(pods, bound).default_backoff().filter_map(async |event| match event {
        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(pod),
        _ => None,
    });
    events
        .for_each_concurrent(AT_ONCE, async |pod| {
            if let Err(err) = driver.step(&pod).await {
                let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                eprintln!("the fake node of Pod {name} failed: {err:#}");
            }
        })
        .await;
}

impl Driver {
    /// Does what the Pod's state asks for next, if anything.
    async fn step(&self, pod: &Pod) -> Result<()> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if !node.is_some_and(|node| self.names.contains(node)) {
            return Ok(());
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        let over = matches!(phase, "Succeeded" | "Failed");
        if pod.metadata.deletion_timestamp.is_some() {
            if !over {
                // The write brings the Pod back here.
                return write_status(&pods, pod, status::ended(pod, 0)).await;
            }
            return remove(&pods, pod).await;
        }
        match phase {
            "Pending" => {
                let fate = (self.fate.lock())(pod);
                match fate {
                    Fate::Run => write_status(&pods, pod, status::running(pod)).await,
                    Fate::End(code) => write_status(&pods, pod, status::ended(pod, code)).await,
                    Fate::NoImage if !status::says_no_image(pod) => {
                        write_status(&pods, pod, status::no_image(pod)).await
                    }
                    Fate::NoImage | Fate::Wait => Ok(()),
                }
            }
            "Running" if status::ready(pod) != status::says_ready(pod) => {
                write_status(&pods, pod, status::readiness(pod)).await
            }
            _ => Ok(()),
        }
    }
}

/// Writes a status, unless the Pod has gone or was replaced meanwhile: then there is nothing to say about it.
async fn write_status(pods: &Api<Pod>, pod: &Pod, mut status: Value) -> Result<()> {
    status["metadata"] = json!({ "uid": pod.metadata.uid });
    let result = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await;
    gone_is_fine(result)
}

async fn remove(pods: &Api<Pod>, pod: &Pod) -> Result<()> {
    let uid = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let now = DeleteParams { preconditions: Some(uid), ..DeleteParams::default().grace_period(0) };
    gone_is_fine(pods.delete(&pod.name_any(), &now).await)
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<()> {
    match result {
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_runtime_ends_while_pods_are_followed() {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime can be made");
            runtime.block_on(async {
                let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
                let client = Client::try_from(nowhere).expect("a client can be made");
                let fate: ChooseFate = Box::new(|_| Fate::Run);
                let driver = Driver { client, names: HashSet::new(), fate: Arc::new(Mutex::new(fate)) };
                tokio::spawn(drive(driver));
                tokio::time::sleep(Duration::from_millis(50)).await;
            });
            drop(runtime);
            let _ = ended.send(());
        });
        end.recv_timeout(Duration::from_secs(30)).expect("the runtime ends");
    }
}

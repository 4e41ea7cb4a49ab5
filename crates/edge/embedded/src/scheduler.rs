//! The scheduler: [`placement`] decides; [`run`] watches, binds and reports.
//!
//! It considers all pending Pods whenever a Pod or a node changes, in order of priority and age. A Pod it has just
//! bound is assumed to be on its node before the watch shows it. It only writes differences: a binding once, and the
//! condition `PodScheduled` when its message changes.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use machinery::rights::{Identity, Program, Right, Verb};
use placement::{Assumed, forget_bound, place, queue, unscheduled, views};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Resync interval, in case a response got lost.
const RELOOK: Duration = Duration::from_secs(30);
/// Debounces successive changes.
const SETTLE: Duration = Duration::from_millis(5);

const RIGHTS: &[Right] = &[
    Right::watch::<Pod>(),
    Right::watch::<Node>(),
    Right::on::<Pod>(&[Verb::Create]).of("binding"),
    Right::on_status::<Pod>(&[Verb::Patch]),
];

/// The scheduler with its rights.
pub fn program() -> Program {
    Program { name: "system:kube-scheduler", identity: Identity::User, rights: RIGHTS.to_vec() }
}

/// Why the scheduler stopped early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch ended for good.
    #[error("the watch of {0} ended")]
    WatchEnded(&'static str),
}

struct Scheduler {
    client: Client,
    pods: Store<Pod>,
    nodes: Store<Node>,
    assumed: Assumed,
}

/// Schedules until shutdown.
pub async fn run(client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let (pods, pod_writer) = reflector::store();
    let (nodes, node_writer) = reflector::store();
    let config = watcher::Config::default();
    let pod_events = watcher::watcher(Api::<Pod>::all(client.clone()), config.clone()).default_backoff();
    let node_events = watcher::watcher(Api::<Node>::all(client.clone()), config).default_backoff();
    let mut pod_events = std::pin::pin!(reflector::reflector(pod_writer, pod_events));
    let mut node_events = std::pin::pin!(reflector::reflector(node_writer, node_events));
    let mut scheduler = Scheduler { client, pods, nodes, assumed: Assumed::new() };
    let (mut pods_known, mut nodes_known) = (false, false);
    let mut relook = tokio::time::interval(RELOOK);
    let mut dirty = false;
    loop {
        let settle = async { if dirty { tokio::time::sleep(SETTLE).await } else { std::future::pending().await } };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            event = pod_events.next() => match event {
                None => return Err(Error::WatchEnded("Pods")),
                Some(event) => pods_known |= noted(&event, "Pods"),
            },
            event = node_events.next() => match event {
                None => return Err(Error::WatchEnded("nodes")),
                Some(event) => nodes_known |= noted(&event, "nodes"),
            },
            _ = relook.tick() => {}
            () = settle => {
                dirty = false;
                scheduler.round().await;
                continue;
            }
        }
        // With an incomplete cache a full node would look empty.
        dirty = pods_known && nodes_known;
    }
}

/// Whether the event completes the initial list of a kind.
fn noted<K>(event: &Result<watcher::Event<K>, watcher::Error>, kind: &'static str) -> bool {
    if let Err(err) = event {
        tracing::warn!(kind, error = %err, "watch failed; retrying");
    }
    matches!(event, Ok(watcher::Event::InitDone))
}

impl Scheduler {
    /// Tries to place every pending Pod.
    async fn round(&mut self) {
        let pods = self.pods.state();
        forget_bound(&mut self.assumed, &pods);
        let waiting = queue(&pods, &self.assumed);
        if waiting.is_empty() {
            return;
        }
        let mut views = views(&pods, self.nodes.state(), &self.assumed);
        for pod in waiting {
            match place(&pod, &views) {
                Ok(node) => {
                    if self.bind(&pod, &node).await
                        && let Some(view) = views.iter_mut().find(|view| view.node.name_any() == node)
                    {
                        view.pods.push(pod);
                    }
                }
                Err(reason) => self.explain(&pod, &reason.message).await,
            }
        }
    }

    async fn bind(&mut self, pod: &Pod, node: &str) -> bool {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let answer = api.create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding).await;
        match answer {
            Ok(_) => {
                tracing::info!(%namespace, %name, %node, "Pod scheduled");
                self.assumed.insert(pod.metadata.uid.clone().unwrap_or_default(), node.to_owned());
                true
            }
            Err(err) => {
                tracing::warn!(%namespace, %name, %node, error = %err, "binding failed; the Pod is scheduled again");
                false
            }
        }
    }

    /// Sets the condition that explains why the Pod is pending, if it changed.
    async fn explain(&self, pod: &Pod, message: &str) {
        let condition = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let condition = condition.iter().find(|condition| condition.type_ == "PodScheduled");
        let Some(wanted) = unscheduled(condition, message, Timestamp::now()) else { return };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [wanted]}});
        let answer = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
        if let Err(err) = answer {
            tracing::warn!(%namespace, %name, error = %err, "failed to write the reason to the Pod");
        }
    }
}

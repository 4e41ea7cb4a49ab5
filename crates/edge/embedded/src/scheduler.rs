//! The scheduler: [`placement`] decides; [`run`] watches, binds and reports.
//!
//! It considers all pending Pods whenever a Pod or a node changes, in order of priority and age. A Pod it has just
//! bound is assumed to be on its node before the watch shows it. It only writes differences: a binding once, and the
//! condition `PodScheduled` when its message changes.

use std::time::Duration;

use claims::claim::SELECTED_NODE;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use machinery::rights::{Identity, Program, Right, Verb};
use placement::{Assumed, Storage, forget_bound, place, queue, unscheduled, views};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Resync interval, in case a response got lost.
const RELOOK: Duration = Duration::from_secs(30);
/// Debounces successive changes.
const SETTLE: Duration = Duration::from_millis(5);

const RIGHTS: &[Right] = &[
    Right::watch::<Pod>(),
    Right::watch::<Node>(),
    Right::watch::<PersistentVolumeClaim>(),
    Right::on::<PersistentVolumeClaim>(&[Verb::Patch]),
    Right::watch::<PersistentVolume>(),
    Right::watch::<StorageClass>(),
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
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    classes: Store<StorageClass>,
    assumed: Assumed,
}

/// Schedules until shutdown.
pub async fn run(client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let (pods, pod_events) = watched::<Pod>(&client);
    let (nodes, node_events) = watched::<Node>(&client);
    let (claims, claim_events) = watched::<PersistentVolumeClaim>(&client);
    let (volumes, volume_events) = watched::<PersistentVolume>(&client);
    let (classes, class_events) = watched::<StorageClass>(&client);
    let mut events = futures::stream::select_all([
        told("Pods", pod_events),
        told("nodes", node_events),
        told("claims", claim_events),
        told("volumes", volume_events),
        told("storage classes", class_events),
    ]);
    let mut scheduler = Scheduler { client, pods, nodes, claims, volumes, classes, assumed: Assumed::new() };
    // With an incomplete cache a full node would look empty, and a bound claim unbound.
    let mut unknown = 5_usize;
    let mut relook = tokio::time::interval(RELOOK);
    let mut dirty = false;
    loop {
        let settle = async { if dirty { tokio::time::sleep(SETTLE).await } else { std::future::pending().await } };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            event = events.next() => match event {
                None => return Err(Error::WatchEnded("all kinds")),
                Some(News::Ended(kind)) => return Err(Error::WatchEnded(kind)),
                Some(News::Complete) => unknown = unknown.saturating_sub(1),
                Some(News::Changed) => {}
            },
            _ = relook.tick() => {}
            () = settle => {
                dirty = false;
                scheduler.round().await;
                continue;
            }
        }
        dirty = unknown == 0;
    }
}

/// What a watch tells.
enum News {
    /// The first list is complete.
    Complete,
    Changed,
    Ended(&'static str),
}

type Events<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

fn watched<K>(client: &Client) -> (Store<K>, Events<K>)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher::watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    (store, reflector::reflector(writer, events).boxed())
}

/// The news of a watch; at its end that it has ended.
fn told<K: Send + 'static>(kind: &'static str, events: Events<K>) -> BoxStream<'static, News> {
    let mut complete = false;
    let news = events.map(move |event| match noted(&event, kind) && !std::mem::replace(&mut complete, true) {
        true => News::Complete,
        false => News::Changed,
    });
    news.chain(futures::stream::once(async move { News::Ended(kind) })).boxed()
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
        let storage =
            Storage { claims: self.claims.state(), volumes: self.volumes.state(), classes: self.classes.state() };
        for pod in waiting {
            match place(&pod, &views, &storage) {
                Ok(placed) => {
                    // Its place is kept while its volumes are made, as far as this round goes.
                    let kept = match placed.waits {
                        true => self.select(&pod, &placed.select, &placed.node, &storage).await,
                        false => self.bind(&pod, &placed.node).await,
                    };
                    if kept && let Some(view) = views.iter_mut().find(|view| view.node.name_any() == placed.node) {
                        view.pods.push(pod);
                    }
                }
                Err(reason) => self.explain(&pod, &reason.message).await,
            }
        }
    }

    /// Tells claims the node that their Pod is going to run on. When they are bound, the Pod is placed again.
    async fn select(&self, pod: &Pod, names: &[String], node: &str, storage: &Storage) -> bool {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        for name in names {
            let of = |claim: &&std::sync::Arc<PersistentVolumeClaim>| {
                claim.namespace().as_deref() == Some(&namespace) && claim.name_any() == *name
            };
            let Some(claim) = storage.claims.iter().find(of) else { return false };
            let patch = json!({"metadata": {
                "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version,
                "annotations": {SELECTED_NODE: node},
            }});
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => tracing::info!(%namespace, claim = name, %node, "node selected for a claim"),
                Err(err) => {
                    tracing::debug!(%namespace, claim = name, error = %err, "selecting a node for a claim is tried again");
                    return false;
                }
            }
        }
        true
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

//! A copy of all objects that virt-operator reads, kept up to date by watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use operate::{Id, Objects};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kinds::{KUBEVIRT, Kind, MANAGED};

/// The label by which managed objects are found.
fn selector() -> String {
    format!("{}={}", api::labels::MANAGED_BY, install::names::app::OPERATOR)
}

const DEFINITION: &str = "CustomResourceDefinition";
/// Page size for CRDs: a few of them are as large as hundreds of other objects.
const PAGE: u32 = 5;

/// The copy. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Mirror {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
}

/// Objects as JSON text. CRDs are large, and a parsed tree takes ten times the memory of its text; only a pass needs the
/// trees, and passes are rare.
type Texts = BTreeMap<Id, Arc<str>>;

#[derive(Default)]
struct State {
    objects: Texts,
    nodes: Texts,
    /// Kinds whose first list is complete.
    synced: BTreeSet<&'static str>,
}

impl Mirror {
    /// Starts to watch all kinds, until `shutdown`.
    pub(crate) fn start(client: &Client, namespace: &str, shutdown: &CancellationToken) -> Self {
        let mirror = Self { state: Arc::default(), changes: watch::channel(0).0 };
        for kind in MANAGED.iter().chain([&KUBEVIRT]) {
            let is_kubevirt = *kind == KUBEVIRT;
            let api = kind.api(client, if kind.namespaced && !is_kubevirt { namespace } else { "" });
            let config = watcher::Config::default();
            let config = if kind.kind == DEFINITION { config.page_size(PAGE) } else { config };
            let config = if is_kubevirt { config } else { config.labels(&selector()) };
            mirror.spawn(kind, watcher(api, config).boxed(), shutdown);
        }
        // Of nodes, only the labels are needed.
        let nodes = watcher(Api::<PartialObjectMeta<Node>>::all(client.clone()), watcher::Config::default());
        let nodes = nodes.map(|event| event.map(|event| event_map(event, dynamic)));
        mirror.spawn(&NODE, nodes.boxed(), shutdown);
        mirror
    }

    fn spawn(&self, kind: &'static Kind, events: Events, shutdown: &CancellationToken) {
        let (mirror, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            shutdown.run_until_cancelled(mirror.follow(kind, events)).await;
        });
    }

    async fn follow(&self, kind: &'static Kind, events: Events) {
        let mut events = events.default_backoff().boxed();
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(kind, event, &mut listed),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(kind = kind.kind, error, "watch failed; retrying");
                }
            }
        }
    }

    fn take(&self, kind: &'static Kind, event: Event<DynamicObject>, listed: &mut BTreeSet<Id>) {
        let mut state = self.state.lock();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                let (id, text) = kept(kind, object);
                listed.insert(id.clone());
                state.of(kind).insert(id, text);
                return;
            }
            Event::InitDone => {
                state.of(kind).retain(|id, _| id.kind != kind.kind || listed.contains(id));
                state.synced.insert(kind.kind);
            }
            Event::Apply(object) => {
                let (id, text) = kept(kind, object);
                // Nodes change with every heartbeat, but their labels do not.
                if state.of(kind).insert(id, text.clone()) == Some(text) {
                    return;
                }
            }
            Event::Delete(object) => {
                state.of(kind).remove(&kept(kind, object).0);
            }
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notifies of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until the first lists are complete. The KubeVirt kind may be defined later.
    pub(crate) async fn synced(&self) {
        let mut changes = self.changes();
        loop {
            if MANAGED.iter().chain([&KUBEVIRT, &NODE]).all(|kind| self.state.lock().synced.contains(kind.kind)) {
                return;
            }
            // The sender is in `self`.
            let _ = changes.changed().await;
        }
    }

    /// All objects but nodes.
    pub(crate) fn objects(&self) -> Objects {
        let texts = self.state.lock().objects.clone();
        trees(&texts)
    }

    /// The objects of some kinds.
    pub(crate) fn of_kinds(&self, kinds: &[&str]) -> Objects {
        let mut texts = self.state.lock().objects.clone();
        texts.retain(|id, _| kinds.contains(&id.kind.as_str()));
        trees(&texts)
    }

    /// The nodes, with nothing but names and labels.
    pub(crate) fn nodes(&self) -> Objects {
        let texts = self.state.lock().nodes.clone();
        trees(&texts)
    }

    /// One object of the installation's namespace.
    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        let (group, kind) = (String::new(), "Secret".to_owned());
        let id = Id { group, kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let text = self.state.lock().objects.get(&id).cloned()?;
        serde_json::from_str(&text).ok()
    }
}

impl State {
    fn of(&mut self, kind: &Kind) -> &mut Texts {
        if kind.kind == NODE.kind { &mut self.nodes } else { &mut self.objects }
    }
}

type Events = futures::stream::BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>>;

const NODE: Kind = Kind { group: "", version: "v1", kind: "Node", plural: "nodes", namespaced: false };

fn event_map(
    event: Event<PartialObjectMeta<Node>>,
    map: fn(PartialObjectMeta<Node>) -> DynamicObject,
) -> Event<DynamicObject> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(map(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(map(object)),
        Event::Delete(object) => Event::Delete(map(object)),
    }
}

fn dynamic(node: PartialObjectMeta<Node>) -> DynamicObject {
    let ObjectMeta { name, labels, .. } = node.metadata;
    DynamicObject { types: None, metadata: ObjectMeta { name, labels, ..ObjectMeta::default() }, data: Value::Null }
}

fn trees(texts: &Texts) -> Objects {
    texts.iter().filter_map(|(id, text)| Some((id.clone(), serde_json::from_str(text).ok()?))).collect()
}

/// The object as its own kind, which items of lists do not say.
fn kept(kind: &Kind, mut object: DynamicObject) -> (Id, Arc<str>) {
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&object).unwrap_or_default();
    value["apiVersion"] = kind.resource().api_version.into();
    value["kind"] = kind.kind.into();
    (Id::of(&value), value.to_string().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::of_kind;

    fn mirror() -> Mirror {
        Mirror { state: Arc::default(), changes: watch::channel(0).0 }
    }

    #[test]
    fn objects_come_back_as_they_were_without_their_managed_fields() {
        let (mirror, kind) = (mirror(), of_kind("", "Secret").unwrap());
        let secret = json!({
            "metadata": {"name": "a", "namespace": "n", "managedFields": [{"manager": "m"}]}, "data": {"k": "dg=="},
        });
        mirror.take(kind, Event::Apply(serde_json::from_value(secret).unwrap()), &mut BTreeSet::new());
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}, "data": {"k": "dg=="},
        });
        assert_eq!(mirror.secret("n", "a"), Some(expected.clone()));
        assert_eq!(mirror.objects().into_values().collect::<Vec<_>>(), [expected]);
        assert_eq!((mirror.of_kinds(&["Secret"]).len(), mirror.of_kinds(&["ConfigMap"]).len()), (1, 0));
        assert_eq!(mirror.secret("n", "b"), None);
    }

    #[test]
    fn the_heartbeat_of_a_node_is_no_change() {
        let (mirror, mut listed) = (mirror(), BTreeSet::new());
        let mut seen = |heartbeat: &str, schedulable: &str| {
            let node: PartialObjectMeta<Node> = serde_json::from_value(json!({"metadata": {
                "name": "n1", "resourceVersion": heartbeat,
                "labels": {"kubevirt.io/schedulable": schedulable}, "annotations": {"kubevirt.io/heartbeat": heartbeat},
            }}))
            .unwrap();
            mirror.take(&NODE, event_map(Event::Apply(node), dynamic), &mut listed);
            *mirror.changes().borrow()
        };
        assert_eq!([seen("1", "true"), seen("2", "true"), seen("3", "false"), seen("4", "false")], [1, 1, 2, 2]);
        let labels = mirror.nodes().into_values().map(|node| node["metadata"]["labels"].clone()).collect::<Vec<_>>();
        assert_eq!(labels, [json!({"kubevirt.io/schedulable": "false"})]);
    }
}

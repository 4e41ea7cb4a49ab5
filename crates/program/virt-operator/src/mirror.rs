//! A copy of all objects that virt-operator looks at, kept up to date by watches.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
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

/// The copy. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Mirror {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    nodes: Objects,
    /// Kinds of which everything has been seen once.
    synced: BTreeSet<&'static str>,
}

impl Mirror {
    /// Begins to follow all kinds, until `shutdown`.
    pub(crate) fn start(client: &Client, namespace: &str, shutdown: &CancellationToken) -> Self {
        let mirror = Self { state: Arc::default(), changes: watch::channel(0).0 };
        for kind in MANAGED.iter().chain([&KUBEVIRT]) {
            let is_kubevirt = *kind == KUBEVIRT;
            let api = kind.api(client, if kind.namespaced && !is_kubevirt { namespace } else { "" });
            let config =
                if is_kubevirt { watcher::Config::default() } else { watcher::Config::default().labels(&selector()) };
            mirror.spawn(kind, watcher(api, config).boxed(), shutdown);
        }
        // Of nodes only labels are of interest.
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
                    tracing::warn!(kind = kind.kind, error, "cannot watch; trying again");
                }
            }
        }
    }

    fn take(&self, kind: &'static Kind, event: Event<DynamicObject>, listed: &mut BTreeSet<Id>) {
        let mut state = self.state.lock();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                let object = value(kind, object);
                listed.insert(Id::of(&object));
                state.of(kind).insert(Id::of(&object), object);
                return;
            }
            Event::InitDone => {
                state.of(kind).retain(|id, _| id.kind != kind.kind || listed.contains(id));
                state.synced.insert(kind.kind);
            }
            Event::Apply(object) => {
                let object = value(kind, object);
                state.of(kind).insert(Id::of(&object), object);
            }
            Event::Delete(object) => {
                state.of(kind).remove(&Id::of(&value(kind, object)));
            }
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Tells of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until everything has been seen once. The KubeVirt kind may come later.
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
        self.state.lock().objects.clone()
    }

    /// The nodes, with nothing but metadata.
    pub(crate) fn nodes(&self) -> Objects {
        self.state.lock().nodes.clone()
    }

    /// One object of the installation's namespace.
    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        let (group, kind) = (String::new(), "Secret".to_owned());
        let id = Id { group, kind, namespace: namespace.to_owned(), name: name.to_owned() };
        self.state.lock().objects.get(&id).cloned()
    }
}

impl State {
    fn of(&mut self, kind: &Kind) -> &mut Objects {
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
    DynamicObject { types: None, metadata: node.metadata, data: Value::Null }
}

/// The object as its own kind: items of lists do not say it.
fn value(kind: &Kind, mut object: DynamicObject) -> Value {
    object.managed_fields_mut().clear();
    let mut value = serde_json::to_value(&object).unwrap_or_default();
    value["apiVersion"] = kind.resource().api_version.into();
    value["kind"] = kind.kind.into();
    value
}

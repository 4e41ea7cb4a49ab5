//! The Node controller: observes from the stores, confirms by live reads, and acts on the API.

use api::labels;
use api::v1::VirtualMachineInstance;
use informer::{Key, WorkQueue};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::Resource;
use plan::node::{Action, Agents, Live, World, decide, is_silent, judge};

use crate::Error;
use crate::api::{Api, Kind};
use crate::context::Context;
use crate::owned::uid;
use crate::reconcile::{Control, Next};
use crate::stores::{BY_NODE, Stores};

/// The component that users see in events.
const COMPONENT: &str = "node-controller";

/// How many instances are asked about in one request: a request has a length.
const AT_ONCE: usize = 50;

pub(crate) struct Controller<A> {
    ctx: Context<A>,
}

impl<A: Api> Controller<A> {
    pub(crate) fn new(ctx: Context<A>) -> Self {
        Self { ctx }
    }

    /// What wakes a node: itself, and instances that are on it although it is not there. Beyond that each pass asks for
    /// the next.
    pub(crate) fn register(&self, queue: &WorkQueue<Key>) {
        self.ctx.stores.nodes.feed(queue);
        let (stores, to) = (self.ctx.stores.clone(), queue.clone());
        self.ctx.stores.vmis.subscribe(move |change| {
            to_missing_node(&stores, change.object()).into_iter().for_each(|key| to.add(key));
        });
    }

    async fn look_live(&self, name: &str) -> Result<Live, Error> {
        let writer = &self.ctx.writer;
        let node: Option<Node> = writer.get("", name).await?;
        let vmis: Vec<VirtualMachineInstance> = writer.list("", &format!("{}={name}", labels::NODE_NAME)).await?;
        let mut pods: Vec<Pod> = vec![];
        for some in vmis.chunks(AT_ONCE) {
            let uids: Vec<&str> = some.iter().map(|vmi| uid(&vmi.metadata)).collect();
            pods.extend(writer.list("", &format!("{} in ({})", labels::CREATED_BY, uids.join(","))).await?);
        }
        let agents = if vmis.is_empty() { Agents::default() } else { self.agents().await? };
        Ok(Live { node, vmis, pods, agents })
    }

    async fn agents(&self) -> Result<Agents, Error> {
        let label = format!("{}={}", labels::APP, labels::app::HANDLER);
        let pods: Vec<Pod> = self.ctx.writer.list("", &label).await?;
        Ok(Agents { pods, daemon_sets: self.list_if_served::<DaemonSet>(&label).await? })
    }

    /// Lists a kind that a server may not have, or may not show us, where agents are no Pods.
    async fn list_if_served<K: Kind>(&self, labels: &str) -> Result<Vec<K>, Error> {
        match self.ctx.writer.list("", labels).await {
            Err(error) if is_not_served(&error) => Ok(vec![]),
            listed => listed,
        }
    }
}

fn is_not_served(error: &Error) -> bool {
    let Error::Api { source, .. } = error else { return false };
    matches!(source.as_ref(), kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// The node the instance was handed to, if the cache does not have it.
fn to_missing_node(stores: &Stores, vmi: &VirtualMachineInstance) -> Option<Key> {
    let name = vmi.status.as_ref()?.node_name.clone().filter(|name| !name.is_empty())?;
    let key = Key::new("", name);
    stores.nodes.get(&key).is_none().then_some(key)
}

impl<A: Api> Control for Controller<A> {
    type World = World;
    type Action = Action;

    fn observe(&self, key: &Key) -> Option<World> {
        let (node, now) = (self.ctx.stores.nodes.get(key), self.ctx.clock.api_time());
        let silent = is_silent(node.as_deref(), &now);
        let vmis = if silent { self.ctx.stores.vmis.by_index(BY_NODE, &key.name) } else { vec![] };
        let known = node.is_some() || !vmis.is_empty();
        known.then(|| World { name: key.name.clone(), node, vmis, now })
    }

    fn forget(&self, key: &Key) {
        self.ctx.writer.writes.forget(key);
    }

    fn decide(world: &World) -> Vec<Action> {
        decide(world)
    }

    async fn execute(&self, key: &Key, world: &World, action: Action) -> Result<Next<Action>, Error> {
        match action {
            Action::Confirm => return Ok(Next::Insert(judge(world, &self.look_live(&key.name).await?))),
            Action::PatchNode { patch, because: _ } => {
                drop(self.ctx.writer.merge_strategic::<Node>(key, &key.name, patch).await?);
            }
            Action::PatchVmi { namespace, name, patch, because: _ } => {
                let vmi = Key::new(namespace, name);
                drop(self.ctx.writer.patch::<VirtualMachineInstance>(&vmi, &vmi.name, patch).await?);
            }
            Action::NoteNode(note) => {
                let about = world.node.as_ref().map(|node| node.object_ref(&()));
                about.into_iter().for_each(|about| self.ctx.publish(COMPONENT, about, note.clone()));
            }
            Action::NoteVmi { namespace, name, uid, note } => {
                let about = ObjectReference {
                    api_version: Some(VirtualMachineInstance::api_version(&()).into_owned()),
                    kind: Some(VirtualMachineInstance::kind(&()).into_owned()),
                    namespace: Some(namespace),
                    name: Some(name),
                    uid: Some(uid),
                    ..ObjectReference::default()
                };
                self.ctx.publish(COMPONENT, about, note);
            }
            Action::Warn(message) => tracing::warn!(node = key.name, "{message}; the node is left alone"),
            Action::RequeueAfter(delay) => return Ok(Next::After(delay)),
        }
        Ok(Next::Continue)
    }
}

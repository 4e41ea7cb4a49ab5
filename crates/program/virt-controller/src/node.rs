//! The Node controller: observes from the stores, confirms by live reads, and acts on the API.

use api::labels;
use api::v1::VirtualMachineInstance;
use informer::Key;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::Resource;
use machinery::rights::{Right, Verb};
use plan::effect::Never;
use plan::node::{Action, Agents, Live, Own, World, decide, is_silent, judge};
use plan::object::Typed;

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Watches, Workers};
use crate::owned::uid;
use crate::reconcile::{Control, Next, reconciler};
use crate::stores::{BY_NODE, Stores};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-node",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "node-controller-threads",
        default: 3,
        help: "Concurrent health checks of nodes",
    }),
    watches,
    component: "node-controller",
    expects: Expected::NOTHING,
    tracks: &[],
    reads: &[
        Right::on::<Node>(&[Verb::Get]),
        Right::on::<VirtualMachineInstance>(&[Verb::List]),
        Right::on::<Pod>(&[Verb::List]),
        Right::on::<DaemonSet>(&[Verb::List]),
    ],
    writes: &[Right::on::<Node>(&[Verb::Patch]), Right::on::<VirtualMachineInstance>(&[Verb::Patch])],
    start: |ctx| reconciler(Nodes { ctx }, decide),
};

/// Maximum number of VMIs per request: the length of a request is limited.
const AT_ONCE: usize = 50;

struct Nodes {
    ctx: Context,
}

/// A node is triggered by itself and by VMIs on it while its object is missing. Beyond that each reconcile requeues
/// itself.
fn watches(on: &mut Watches<'_>) {
    on.objects(|stores| &stores.nodes);
    on.changes(
        |stores| &stores.vmis,
        |ctx, change| {
            to_missing_node(&ctx.stores, change.object()).into_iter().for_each(|key| ctx.queue.add(key));
        },
    );
}

impl Nodes {
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

    /// Lists a kind that the server may not serve, or may not let us read, where virt-handler does not run in Pods.
    async fn list_if_served<K: Typed>(&self, labels: &str) -> Result<Vec<K>, Error> {
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

/// The node the VMI was handed to, if it is not in the cache.
fn to_missing_node(stores: &Stores, vmi: &VirtualMachineInstance) -> Option<Key> {
    let name = vmi.status.as_ref()?.node_name.clone().filter(|name| !name.is_empty())?;
    let key = Key::new("", name);
    stores.nodes.get(&key).is_none().then_some(key)
}

impl Control for Nodes {
    type World = World;
    type Look = Never;
    type Own = Own;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

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

    fn about(world: &World) -> Option<ObjectReference> {
        world.node.as_ref().map(|node| node.object_ref(&()))
    }

    async fn own(&self, key: &Key, world: &World, own: Own) -> Result<Next<Action>, Error> {
        match own {
            Own::LookLive => Ok(Next::Insert(judge(world, &self.look_live(&key.name).await?))),
            Own::Warn(message) => {
                tracing::warn!(node = key.name, "{message}; leaving the node unchanged");
                Ok(Next::Continue)
            }
        }
    }
}

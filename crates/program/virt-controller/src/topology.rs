//! The topology updater: keeps the nodes' TSC frequency labels in line with what VMIs were promised.

use std::sync::atomic::{AtomicU64, Ordering};

use informer::Key;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use machinery::rights::{Right, Verb};
use plan::effect::Never;
use plan::node::topology::{Relabel, promised_frequency};
use plan::object::Kind;
use plan::topology::{Action, Own, World, concerns, decide};

use crate::Error;
use crate::api::{Part, Patch};
use crate::context::Context;
use crate::controller::{Controller, Expected, Queue, Watches, Workers};
use crate::reconcile::{Control, Next, reconciler};
use crate::stores::BY_NODE;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-topology",
    queue: Queue::Plain,
    // There is only one key.
    workers: Workers::Fixed(1),
    watches,
    component: "node-topology-updater",
    expects: Expected::NOTHING,
    tracks: &[],
    reads: &[],
    writes: &[Right::on::<Node>(&[Verb::Patch])],
    start: |ctx| reconciler(Topology { ctx, passes: AtomicU64::new(0) }, decide),
};

struct Topology {
    ctx: Context,
    passes: AtomicU64,
}

/// Nothing triggers it but itself.
fn watches(on: &mut Watches<'_>) {
    on.start(&Key::new("", "all-nodes"));
}

impl Control for Topology {
    type World = World;
    type Look = Never;
    type Own = Own;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, _: &Key) -> Option<World> {
        let (nodes, vmis) = (self.ctx.stores.nodes.all(), &self.ctx.stores.vmis);
        // Otherwise there is no need to look at every VMI.
        let concerned = concerns(&nodes);
        let vmis_of_all = if concerned { vmis.all() } else { vec![] };
        let names = nodes.iter().filter_map(|node| node.metadata.name.as_ref());
        let occupied = names.filter(|name| concerned && !vmis.by_index(BY_NODE, name).is_empty()).cloned().collect();
        Some(World {
            occupied,
            promised: vmis_of_all.iter().filter_map(|vmi| promised_frequency(vmi)).collect(),
            nodes,
            config: self.ctx.config.now(),
            pace: self.ctx.node_topology.clone(),
            pass: self.passes.fetch_add(1, Ordering::Relaxed),
        })
    }

    fn about(_: &World) -> Option<ObjectReference> {
        None
    }

    async fn own(&self, _: &Key, _: &World, own: Own) -> Result<Next<Action>, Error> {
        match own {
            Own::Relabel(Relabel { node, patch }) => {
                let (key, patch) = (Key::new("", &node), Patch::Strategic(patch));
                if let Err(error) = self.ctx.writer.patch(&key, Kind::Node, &node, Part::Object, &patch).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(node, error, "failed to update the TSC frequency labels");
                }
            }
            Own::Warn(error) => tracing::warn!(error, "leaving the TSC frequency labels unchanged"),
        }
        Ok(Next::Continue)
    }
}

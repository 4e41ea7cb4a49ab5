//! 72: a VMI is failed because of an unresponsive node only if the node is unresponsive and no Pod of the VMI is alive
//! there, confirmed by a live read.

use api::annotations::HEARTBEAT;
use api::v1::VirtualMachineInstancePhase as Phase;
use informer::Key;
use machinery::meta::annotation;

use super::support::{ensure, name, pass_of, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{has_ended, node_of};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

/// A node with a heartbeat within this time is responsive; some time may pass between read and write.
const HEARD: i64 = 240;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "silent_nodes"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(_), is)) = vmi_change(change) else { return Ok(()) };
        if is.phase() != Some(&Phase::Failed) || pass_of(scene, change, controllers::NODE).is_none() {
            return Ok(());
        }
        let node = is.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
        let reason = is.status.as_ref().and_then(|status| status.reason.as_deref());
        ensure(reason == Some("NodeUnresponsive"), || format!("instance {} failed for {reason:?}", name(is)))?;
        let heard = scene.server.tables.nodes.get(&Key::new("", &node)).and_then(|node| {
            let heartbeat: jiff::Timestamp = annotation(&node.metadata, HEARTBEAT)?.parse().ok()?;
            Some(scene.server.time().0.as_second() - heartbeat.as_second())
        });
        ensure(heard.is_none_or(|ago| ago > HEARD), || format!("{node} was heard of {heard:?} s ago"))?;
        let alive = pods_of(scene.server, uid(&is.metadata)).find(|pod| node_of(pod) == Some(node.as_str()) && !has_ended(pod));
        ensure(alive.is_none(), || format!("instance {} was failed while its Pod is alive on {node}", name(is)))
    }
}

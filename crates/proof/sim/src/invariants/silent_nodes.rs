//! 72: a VMI is failed because of an unresponsive node only if the node is unresponsive and no Pod of the VMI is alive
//! there, confirmed by a live read. What the node reports after that read comes too late.

use std::collections::BTreeMap;

use api::annotations::HEARTBEAT;
use api::v1::VirtualMachineInstancePhase as Phase;
use informer::Key;
use machinery::meta::annotation;

use super::support::{ensure, name, pass_of, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{has_ended, node_of};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// What a pass read: the node's last heartbeat at that time, if it has one.
    read: BTreeMap<u64, Option<jiff::Timestamp>>,
}

/// A node with a heartbeat within this time is responsive; some time may pass between read and write.
const HEARD: i64 = 240;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "silent_nodes"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(_), is)) = vmi_change(change) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::NODE).filter(|_| is.phase() == Some(&Phase::Failed)) else {
            return Ok(());
        };
        let node = is.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
        let reason = is.status.as_ref().and_then(|status| status.reason.as_deref());
        ensure(reason == Some("NodeUnresponsive"), || format!("instance {} failed for {reason:?}", name(is)))?;
        let last = self.read.get(&pass.id).copied().unwrap_or_else(|| heartbeat(scene, &Key::new("", &node)));
        let heard = last.map(|last| scene.server.time().0.as_second() - last.as_second());
        ensure(heard.is_none_or(|ago| ago > HEARD), || format!("{node} was heard of {heard:?} s ago"))?;
        let alive = pods_of(scene.server, uid(&is.metadata)).find(|pod| node_of(pod) == Some(node.as_str()) && !has_ended(pod));
        ensure(alive.is_none(), || format!("instance {} was failed while its Pod is alive on {node}", name(is)))
    }

    fn answer(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request, answer: Result<(), u16>) -> Verdict {
        if pass.controller == controllers::NODE && request.kind == Some(Kind::Node) && matches!(request.op, Op::Get) && answer.is_ok() {
            self.read.insert(pass.id, heartbeat(scene, &request.key));
        }
        Ok(())
    }
}

fn heartbeat(scene: &Scene<'_>, node: &Key) -> Option<jiff::Timestamp> {
    annotation(&scene.server.tables.nodes.get(node)?.metadata, HEARTBEAT)?.parse().ok()
}

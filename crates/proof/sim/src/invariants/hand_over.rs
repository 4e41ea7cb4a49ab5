//! 8: the hand-over to a node is a single write of phase, label, node and volume status, and the node is that of the
//! launcher Pod.

use api::labels;
use api::v1::VirtualMachineInstancePhase as Phase;
use machinery::meta::label;

use super::support::{ensure, is_receiver, name, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_launcher, node_of};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "hand_over"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        if is.phase() != Some(&Phase::Scheduled) || was.phase() == is.phase() {
            return Ok(());
        }
        let status = is.status.as_ref();
        let node = status.and_then(|status| status.node_name.as_deref()).filter(|node| !node.is_empty());
        let Some(node) = node else { return Err(format!("instance {} is Scheduled without a node", name(is))) };
        ensure(label(&is.metadata, labels::NODE_NAME) == Some(node), || {
            format!("instance {} is Scheduled to {node}, but its label says otherwise", name(is))
        })?;
        // A receiver may have Pods of earlier attempts.
        let pods = pods_of(scene.server, uid(&is.metadata)).filter(|pod| is_launcher(pod));
        let pods: Vec<_> = pods.filter(|pod| !is_receiver(is) || !has_ended(pod)).collect();
        let some = is_receiver(is) && pods.iter().any(|pod| node_of(pod) == Some(node));
        ensure(some || pods.iter().all(|pod| node_of(pod) == Some(node)), || {
            format!("instance {} is Scheduled to {node}, but its launcher is elsewhere", name(is))
        })?;
        let volumes = status.map_or(0, |status| status.volume_status.len());
        ensure(volumes >= is.spec.volumes.len(), || format!("instance {} is Scheduled without its volumes' status", name(is)))
    }
}

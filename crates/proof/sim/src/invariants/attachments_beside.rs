//! 21: attachment Pods are owned by the launcher Pod and require its node.

use machinery::meta::controller_of;
use informer::Key;

use super::support::{ensure, new_pod};
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_attachment, node_of};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "attachments_beside"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_attachment(pod)) else { return Ok(()) };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Pod");
        let Some(owner) = owner else { return Err(format!("attachment Pod {name} belongs to no launcher")) };
        let key = Key::new(pod.metadata.namespace.clone().unwrap_or_default(), &owner.name);
        let Some(launcher) = scene.server.tables.pods.get(&key) else { return Ok(()) };
        let spec = pod.spec.clone().unwrap_or_default();
        let wishes = serde_json::json!([spec.affinity, spec.node_selector, spec.node_name]).to_string();
        let node = node_of(launcher).unwrap_or_default();
        ensure(!node.is_empty() && wishes.contains(node), || format!("attachment Pod {name} does not ask for {node}"))
    }
}

//! 37: a target Pod avoids all nodes with a Pod of its guest and requires a CPU of the same vendor as the guest's.
//! (`one_target.rs` checks that it is never bound to the guest's node.)

use api::labels;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::{controller_of, label};

use super::support::{ensure, is_receiver, new_pod, sender_node};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

/// Whether the Pod's affinity excludes the node.
fn avoids(pod: &Pod, node: &str) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.iter().flat_map(|required| &required.node_selector_terms);
    let mut wanted = terms.flat_map(|term| term.match_expressions.iter().flatten());
    wanted.any(|wanted| wanted.operator == "NotIn" && wanted.values.iter().flatten().any(|value| value == node))
}

fn keeps_away(pod: &Pod, guest: &str) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().any(|term| {
        let wanted = term.label_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        let named = wanted.and_then(|labels| labels.get(labels::CREATED_BY)).is_some_and(|uid| uid == guest);
        named && term.topology_key == "kubernetes.io/hostname"
    })
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "target_placement"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let name = change.last.key().name;
        let guest = controller_of(&pod.metadata).map(|owner| owner.uid.clone()).unwrap_or_default();
        let vmi = scene.server.tables.vmis.all().find(|vmi| vmi.metadata.uid.as_ref() == Some(&guest));
        let from = vmi.filter(|vmi| is_receiver(vmi)).and_then(|vmi| sender_node(vmi));
        let apart = from.map_or_else(|| keeps_away(pod, &guest), |node| avoids(pod, node));
        ensure(apart, || format!("target {name} may be put where the guest is"))?;
        let node = from.or_else(|| vmi.and_then(|vmi| vmi.status.as_ref()?.node_name.as_deref()));
        let node = scene.server.tables.nodes.all().find(|known| known.metadata.name.as_deref() == node);
        let Some(node) = node else { return Ok(()) };
        let keys = node.metadata.labels.iter().flatten().map(|(key, _)| key);
        let vendor = keys.into_iter().find(|key| key.starts_with(labels::CPU_VENDOR_PREFIX)).cloned().unwrap_or_default();
        let wanted = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()?.get(&vendor));
        let known = label(&node.metadata, &vendor).is_some();
        ensure(known && wanted.is_some_and(|value| value == "true"), || format!("target {name} does not ask for {vendor:?}"))
    }
}

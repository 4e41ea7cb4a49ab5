//! Selectors, taints and affinities: which nodes are feasible for a Pod.

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, Taint, Toleration};
use machinery::selector::{Labels, Selector, selects_node};

use crate::NodeView;

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn is_cordoned(pod: &Pod, node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let taint = Taint { key: UNSCHEDULABLE_TAINT.into(), effect: "NoSchedule".into(), ..Taint::default() };
    cordoned && !is_tolerated(pod, &taint)
}

/// The first taint that the Pod does not tolerate.
pub(crate) fn untolerated_taint<'a>(pod: &Pod, node: &'a Node) -> Option<&'a Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let mut hard = taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.find(|taint| !is_tolerated(pod, taint))
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if key.is_empty() {
        return exists; // an empty key with Exists tolerates everything
    }
    key == taint.key
        && (exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

/// `nodeSelector` and the required node affinity.
pub(crate) fn selects(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let empty = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| selects_node(required, node))
}

fn terms(pod: &Pod, anti: bool) -> &[PodAffinityTerm] {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        if anti {
            affinity.pod_anti_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_deref()
        } else {
            affinity.pod_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_deref()
        }
    });
    required.unwrap_or_default()
}

/// Whether `other` matches a term of `pod`. An invalid selector matches nothing.
fn term_matches(term: &PodAffinityTerm, pod: &Pod, other: &Pod) -> bool {
    let Some(selector) = &term.label_selector else { return false };
    let Ok(selector) = Selector::from_label_selector(selector) else { return false };
    let everywhere = term.namespace_selector.as_ref().is_some_and(|selector| *selector == Default::default());
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let namespace = other.metadata.namespace.as_deref().unwrap_or_default();
    let own = listed.is_empty() && !everywhere && pod.metadata.namespace.as_deref() == Some(namespace);
    let empty = Labels::new();
    (everywhere || own || listed.iter().any(|name| name == namespace))
        && selector.matches(other.metadata.labels.as_ref().unwrap_or(&empty))
}

/// The value of a topology label; nodes that share it are one topology domain.
fn place<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn pods_in_place<'a>(nodes: &'a [NodeView], key: &'a str, here: Option<&'a str>) -> impl Iterator<Item = &'a Pod> {
    let same = nodes.iter().filter(move |view| here.is_some() && place(&view.node, key) == here);
    same.flat_map(|view| view.pods.iter().map(AsRef::as_ref))
}

/// Every required affinity term matches a Pod here. The first Pod of a group that matches itself may be placed
/// anywhere.
pub(crate) fn has_companions(pod: &Pod, view: &NodeView, nodes: &[NodeView]) -> bool {
    terms(pod, false).iter().all(|term| {
        let here = place(&view.node, &term.topology_key);
        let found = pods_in_place(nodes, &term.topology_key, here).any(|other| term_matches(term, pod, other));
        let nowhere = !nodes.iter().flat_map(|view| &view.pods).any(|other| term_matches(term, pod, other));
        found || (here.is_some() && nowhere && term_matches(term, pod, pod))
    })
}

/// No Pod here matches the Pod's anti-affinity.
pub(crate) fn avoids(pod: &Pod, view: &NodeView, nodes: &[NodeView]) -> bool {
    !terms(pod, true).iter().any(|term| {
        let here = place(&view.node, &term.topology_key);
        pods_in_place(nodes, &term.topology_key, here).any(|other| term_matches(term, pod, other))
    })
}

/// The Pod matches no anti-affinity of a Pod here.
pub(crate) fn is_welcome(pod: &Pod, view: &NodeView, nodes: &[NodeView]) -> bool {
    !nodes.iter().any(|other_view| {
        other_view.pods.iter().any(|other| {
            terms(other, true).iter().any(|term| {
                let here = place(&view.node, &term.topology_key);
                here.is_some() && here == place(&other_view.node, &term.topology_key) && term_matches(term, other, pod)
            })
        })
    })
}

/// A rule in the Pod that this scheduler does not support: leaving it pending with a reason is better than violating
/// it.
pub(crate) fn unknown_rule(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let spread = spec.topology_spread_constraints.iter().flatten();
    if spread.into_iter().any(|constraint| constraint.when_unsatisfiable == "DoNotSchedule") {
        return Some("this scheduler does not support topologySpreadConstraints with whenUnsatisfiable DoNotSchedule");
    }
    let selective = |term: &PodAffinityTerm| {
        term.namespace_selector.as_ref().is_some_and(|selector| *selector != Default::default())
    };
    if terms(pod, false).iter().chain(terms(pod, true)).any(selective) {
        return Some("this scheduler does not support a namespaceSelector in Pod affinity terms");
    }
    None
}

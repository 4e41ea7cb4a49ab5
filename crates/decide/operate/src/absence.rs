//! Nodes that are gone for so long that the roll-out of virt-handler goes on without them.
//!
//! virt-handler's Pods tolerate a NotReady node for ever, so its DaemonSet counts such a node as one whose Pod is
//! unavailable, until the node comes back or is deleted. When it comes back, Kubernetes starts the new Pod there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::rollout::{is_ready, template_of};

/// A node that is NotReady for this long is absent: Kubernetes evicts other Pods from it then.
const ABSENT_AFTER: Duration = Duration::from_secs(300);
/// How long a Pod may need to start before its node is looked at.
const STARTING: Duration = Duration::from_secs(60);
/// Maximum number of nodes that are looked at in a pass.
const LOOKED_AT: usize = 50;
/// Maximum number of Pods and nodes that a message names.
const NAMED: usize = 3;

/// NotReady nodes, and since when.
pub type NotReady = BTreeMap<String, Timestamp>;

/// Absent nodes that have a Pod of virt-handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) nodes: i64,
    /// How many of them have a Pod of the new template.
    pub(crate) updated: i64,
}

impl Absent {
    /// Counts the absent nodes. `hash` is that of the new template.
    pub(crate) fn of(pods: &[Pod], not_ready: &NotReady, hash: Option<&str>, now: Timestamp) -> Self {
        let mut absent = Self::default();
        for (node, pods) in by_node(pods) {
            let is_absent = not_ready.get(node).is_some_and(|since| *since + ABSENT_AFTER <= now);
            // One that is ready counts, whatever is said about its node.
            if is_absent && !pods.iter().any(|pod| is_ready(pod)) {
                absent.nodes += 1;
                absent.updated += i64::from(pods.iter().all(|pod| hash.is_some() && template_of(pod) == hash));
            }
        }
        absent
    }
}

/// When the next node is looked at, or becomes absent.
pub(crate) fn next(pods: &[Pod], not_ready: &NotReady, now: Timestamp) -> Option<Timestamp> {
    let doubted = pods.iter().filter(|pod| !is_ready(pod)).filter_map(unready_since).map(|since| since + STARTING);
    let absent = not_ready.values().map(|since| *since + ABSENT_AFTER);
    doubted.chain(absent).filter(|at| *at > now).min()
}

/// The nodes to look at: those of Pods that are not ready for some time, for the longest time first.
pub fn doubtful_nodes(pods: &[Pod], now: Timestamp) -> Vec<&str> {
    let unready = pods.iter().filter(|pod| !is_ready(pod));
    let aged = unready.filter_map(|pod| Some((unready_since(pod)?, node_of(pod)?)));
    let mut aged: Vec<(Timestamp, &str)> = aged.filter(|(since, _)| *since + STARTING <= now).collect();
    aged.sort_unstable();
    let mut seen = BTreeSet::new();
    aged.into_iter().map(|(_, node)| node).filter(|node| seen.insert(*node)).take(LOOKED_AT).collect()
}

/// What the roll-out of virt-handler waits for; nothing if no Pod is known to be in the way.
pub(crate) fn waits_for(pods: &[Pod], not_ready: &NotReady) -> Option<String> {
    let mut nodes = Vec::new();
    let mut unready = Vec::new();
    for (node, pods) in by_node(pods) {
        if pods.iter().any(|pod| is_ready(pod)) {
            continue;
        }
        match not_ready.get(node) {
            Some(since) => nodes.push(format!("node {node} is NotReady since {since:.0}")),
            None => {
                let name = |pod: &&Pod| pod.metadata.name.clone().unwrap_or_default();
                unready.extend(pods.iter().map(|pod| format!("Pod {} on node {node} is not ready", name(pod))));
            }
        }
    }
    let remedy = if nodes.is_empty() { "" } else { ". Repair such a node, or delete it from the cluster" };
    let all = [nodes, unready].concat();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = all.get(..NAMED.min(all.len())).unwrap_or_default().join("; ");
    (!all.is_empty()).then(|| format!("{named}{more}{remedy}"))
}

fn by_node(pods: &[Pod]) -> BTreeMap<&str, Vec<&Pod>> {
    let mut nodes: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for (node, pod) in pods.iter().filter_map(|pod| Some((node_of(pod)?, pod))) {
        nodes.entry(node).or_default().push(pod);
    }
    nodes
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A Pod that the kubelet has never seen has no such condition.
fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let changed = conditions.find(|one| one.type_ == "Ready").and_then(|ready| ready.last_transition_time.clone());
    changed.or_else(|| pod.metadata.creation_timestamp.clone()).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::drift::TEMPLATE_HASH;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn pod(node: &str, template: &str, ready: Option<bool>) -> Pod {
        let ready = ready.map(|ready| {
            let status = if ready { "True" } else { "False" };
            json!({"type": "Ready", "status": status, "lastTransitionTime": at(0).to_string()})
        });
        let conditions: Vec<Value> = ready.into_iter().collect();
        serde_json::from_value(json!({
            "metadata": {"name": format!("virt-handler-{node}"), "creationTimestamp": at(30).to_string(),
                         "annotations": {TEMPLATE_HASH: template}},
            "spec": {"nodeName": node, "containers": []}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_absent_when_it_is_not_ready_for_long_and_its_pod_neither() {
        let gone: NotReady = [("n1".to_owned(), at(0))].into();
        let absent = |nodes, updated| Absent { nodes, updated };
        let (old, new) = (pod("n1", "old", Some(false)), pod("n1", "new", None));
        for (case, pods, seconds, expected) in [
            ("long enough", vec![old.clone()], 300, absent(1, 0)),
            ("a moment before", vec![old.clone()], 299, absent(0, 0)),
            ("it had the new Pod", vec![new.clone()], 300, absent(1, 1)),
            ("the old Pod is not gone", vec![old, new], 300, absent(1, 0)),
            ("its Pod answers", vec![pod("n1", "old", Some(true))], 300, absent(0, 0)),
            ("another node", vec![pod("n2", "old", Some(false))], 300, absent(0, 0)),
            ("no Pod", vec![], 300, absent(0, 0)),
        ] {
            assert_eq!(Absent::of(&pods, &gone, Some("new"), at(seconds)), expected, "{case}");
        }
        let pods = [pod("n1", "old", Some(false)), pod("n2", "old", Some(true))];
        let next = |seconds| next(&pods, &gone, at(seconds));
        assert_eq!([next(10), next(60), next(300)], [Some(at(60)), Some(at(300)), None]);
    }

    #[test]
    fn nodes_of_pods_that_do_not_become_ready_are_looked_at() {
        let pods = [pod("new", "x", None), pod("bad", "x", Some(false)), pod("good", "x", Some(true))];
        for (seconds, expected) in [(59, &[][..]), (60, &["bad"]), (90, &["bad", "new"])] {
            assert_eq!(doubtful_nodes(&pods, at(seconds)), expected, "{seconds}");
        }
        let many: Vec<Pod> = (0..100).map(|number| pod(&format!("n{}", number / 2), "x", None)).collect();
        assert_eq!(doubtful_nodes(&many, at(90)).len(), LOOKED_AT);
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let gone: NotReady = [("n1".to_owned(), at(0))].into();
        let mut pods = vec![pod("n1", "old", Some(false)), pod("n2", "new", Some(false)), pod("n3", "old", Some(true))];
        let text = "node n1 is NotReady since 2023-11-14T22:13:20Z; Pod virt-handler-n2 on node n2 is not ready. \
                    Repair such a node, or delete it from the cluster";
        assert_eq!(waits_for(&pods, &gone).as_deref(), Some(text));
        let text = waits_for(&pods[1..], &gone);
        assert_eq!(text.as_deref(), Some("Pod virt-handler-n2 on node n2 is not ready"));
        assert_eq!(waits_for(&pods[2..], &gone), None);
        pods.extend(["n4", "n5", "n6"].map(|node| pod(node, "new", None)));
        assert!(waits_for(&pods[1..], &gone).unwrap().ends_with("n5 is not ready; and 1 more"));
    }
}

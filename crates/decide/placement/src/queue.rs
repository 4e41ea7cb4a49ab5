//! What a scheduler looks at in one round: the Pods that wait for a node, in order, and the nodes with their Pods.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery::pod::has_ended;

use crate::NodeView;
use crate::scheduled::node_of;

/// The scheduler name of the Pods that are placed, and that of Pods without one.
const SCHEDULER: &str = "default-scheduler";

/// Nodes of Pods that were bound, by the Pod's UID, until the watch shows them as bound.
pub type Assumed = BTreeMap<String, String>;

/// Forgets Pods that are gone, or that are shown as bound by now.
pub fn forget_bound(assumed: &mut Assumed, pods: &[Arc<Pod>]) {
    assumed.retain(|uid, _| pods.iter().any(|pod| pod.metadata.uid.as_ref() == Some(uid) && node_of(pod).is_none()));
}

/// The Pods that wait for a node: those with the highest priority first, then the oldest.
pub fn queue(pods: &[Arc<Pod>], assumed: &Assumed) -> Vec<Arc<Pod>> {
    let mut waiting: Vec<Arc<Pod>> = pods.iter().filter(|pod| waits(pod, assumed)).cloned().collect();
    waiting.sort_by(|one, other| turn(one).cmp(&turn(other)));
    waiting
}

fn waits(pod: &Pod, assumed: &Assumed) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().unwrap_or(SCHEDULER) == SCHEDULER;
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    ours && !gated
        && assumed_node(pod, assumed).is_none()
        && node_of(pod).is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && !has_ended(pod)
}

/// Its place in the queue: lower is earlier.
fn turn(pod: &Pod) -> (Reverse<i32>, Option<Timestamp>, Option<&str>, Option<&str>) {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (Reverse(priority), created, pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref())
}

/// The nodes, by name, with their Pods that have not finished, including those just bound.
pub fn views(pods: &[Arc<Pod>], mut nodes: Vec<Arc<Node>>, assumed: &Assumed) -> Vec<NodeView> {
    let mut by_node: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !has_ended(pod)) {
        if let Some(node) = node_of(pod).or(assumed_node(pod, assumed)) {
            by_node.entry(node).or_default().push(pod.clone());
        }
    }
    nodes.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let view = |node: Arc<Node>| {
        let pods = by_node.remove(node.metadata.name.as_deref().unwrap_or_default()).unwrap_or_default();
        NodeView { node, pods }
    };
    nodes.into_iter().map(view).collect()
}

fn assumed_node<'a>(pod: &Pod, assumed: &'a Assumed) -> Option<&'a str> {
    assumed.get(pod.metadata.uid.as_ref()?).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A Pod whose UID is its name.
    fn pod(name: &str, change: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:05Z"},
            "spec": {"containers": [], "schedulerName": "default-scheduler"},
            "status": {"phase": "Pending"},
        });
        for (part, fields) in change.as_object().unwrap() {
            pod[part].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    fn assumed(pods: &[&str]) -> Assumed {
        pods.iter().map(|pod| ((*pod).to_owned(), "n1".to_owned())).collect()
    }

    #[test]
    fn a_pod_waits_while_it_has_no_node_and_nothing_holds_it_back() {
        for (name, change, waits) in [
            ("a new one", json!({}), true),
            ("no scheduler is named", json!({"spec": {"schedulerName": null}}), true),
            ("another scheduler's", json!({"spec": {"schedulerName": "mine"}}), false),
            ("gated", json!({"spec": {"schedulingGates": [{"name": "later"}]}}), false),
            ("no longer gated", json!({"spec": {"schedulingGates": []}}), true),
            ("bound", json!({"spec": {"nodeName": "n1"}}), false),
            ("an empty node name", json!({"spec": {"nodeName": ""}}), true),
            ("just bound", json!({"metadata": {"uid": "assumed"}}), false),
            ("being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}), false),
            ("failed", json!({"status": {"phase": "Failed"}}), false),
            ("succeeded", json!({"status": {"phase": "Succeeded"}}), false),
        ] {
            let waiting = queue(&[pod("p", change)], &assumed(&["assumed"]));
            assert_eq!(waiting.len(), usize::from(waits), "{name}");
        }
        assert!(queue(&[Arc::default()], &assumed(&[])).is_empty(), "without a spec");
    }

    #[test]
    fn the_queue_goes_by_priority_then_age_then_name() {
        let old = json!({"creationTimestamp": "2026-01-01T00:00:01Z"});
        let pods = [
            pod("c", json!({})),
            pod("unwanted", json!({"spec": {"priority": -1}, "metadata": old})),
            pod("b", json!({"spec": {"priority": 0}})),
            pod("a", json!({"metadata": {"namespace": "later"}})),
            pod("old", json!({"metadata": old})),
            pod("urgent", json!({"spec": {"priority": 7}})),
        ];
        assert_eq!(names(&queue(&pods, &assumed(&[]))), ["urgent", "old", "b", "c", "a", "unwanted"]);
    }

    #[test]
    fn a_node_has_its_pods_and_those_just_bound_to_it() {
        let node = |name: &str| Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap());
        let pods = [
            pod("here", json!({"spec": {"nodeName": "n1"}})),
            pod(
                "leaving",
                json!({"spec": {"nodeName": "n1"}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}),
            ),
            pod("ended", json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}})),
            pod("waiting", json!({})),
            pod("just", json!({})),
            pod("there", json!({"spec": {"nodeName": "n2"}})),
            pod("lost", json!({"spec": {"nodeName": "n9"}})),
        ];
        // What the watch shows counts more than what was assumed.
        let views = views(&pods, vec![node("n3"), node("n2"), node("n1")], &assumed(&["just", "there"]));
        let found: Vec<(&str, Vec<&str>)> =
            views.iter().map(|view| (view.node.metadata.name.as_deref().unwrap(), names(&view.pods))).collect();
        assert_eq!(found, [("n1", vec!["here", "leaving", "just"]), ("n2", vec!["there"]), ("n3", vec![])]);
    }

    #[test]
    fn what_was_assumed_is_forgotten_once_the_watch_shows_it() {
        let pods = [pod("behind", json!({})), pod("shown", json!({"spec": {"nodeName": "n1"}}))];
        let mut known = assumed(&["behind", "shown", "gone"]);
        forget_bound(&mut known, &pods);
        assert_eq!(known, assumed(&["behind"]));
    }
}

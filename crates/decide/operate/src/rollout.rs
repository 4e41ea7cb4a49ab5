//! Roll-out progress of workloads, and the canary of virt-handler.
//!
//! ```text
//! template differs            ─► applied, one node at a time
//! no new Pod is ready         ─► wait; a new Pod that crashes is reported
//! a new Pod is ready          ─► the canary succeeded: 10% of the nodes at a time
//! all Pods are new and ready  ─► one node at a time again, finished
//! ```
//!
//! Absent nodes ([`absence`](crate::absence)) do not count. Kubernetes counts their Pods as unavailable, so during the
//! roll-out `maxUnavailable` is larger by their number. When one comes back, its new Pod stays unavailable until it is
//! ready, and the number shrinks as soon as its node is Ready: no other node takes its place meanwhile.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::absence::Absent;
use crate::drift::{HASH, TEMPLATE_HASH, stamped};

/// `maxUnavailable` until the canary is ready.
const ONE: i32 = 1;
/// `maxUnavailable` afterwards.
const TENTH: &str = "10%";
/// Waiting reasons of containers that need help to start.
const STUCK: &[&str] =
    &["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"];

/// Roll-out progress of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// Whether the status is about the current generation.
    current: bool,
    wanted: i64,
    all: i64,
    updated: i64,
    ready: i64,
}

impl Rollout {
    /// Reads the status of a Deployment or DaemonSet.
    pub(crate) fn of(live: &Value) -> Self {
        let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
        let count = |field: &str| number(&format!("/status/{field}")).unwrap_or(0);
        let current = number("/status/observedGeneration") >= number("/metadata/generation");
        match live["kind"] == "DaemonSet" {
            true => Self {
                current: current && number("/status/observedGeneration").is_some(),
                wanted: count("desiredNumberScheduled"),
                all: count("currentNumberScheduled"),
                updated: count("updatedNumberScheduled"),
                ready: count("numberReady"),
            },
            false => Self {
                current,
                wanted: number("/spec/replicas").unwrap_or(1),
                all: count("replicas"),
                updated: count("updatedReplicas"),
                ready: count("readyReplicas"),
            },
        }
    }

    /// The same without absent nodes, whose Pods are not ready.
    pub(crate) fn without(self, absent: Absent) -> Self {
        let Absent { nodes, updated } = absent;
        Self { wanted: self.wanted - nodes, all: self.all - nodes, updated: self.updated - updated, ..self }
    }

    /// Whether all of its Pods are new and ready. A DaemonSet without nodes is.
    pub(crate) fn is_finished(self) -> bool {
        self.current && [self.all, self.updated, self.ready].iter().all(|&count| count == self.wanted)
    }

    /// Whether a Pod is ready, old or new.
    pub(crate) fn answers(self) -> bool {
        self.ready > 0
    }
}

/// State of virt-handler's roll-out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Canary {
    /// The DaemonSet to apply now.
    pub(crate) object: Value,
    /// A new Pod that fails to start.
    pub(crate) stuck: Option<String>,
}

/// Decides the next step of virt-handler's roll-out. `desired` is the DaemonSet with a hash, `live` the current one.
pub(crate) fn canary(desired: &Value, live: Option<&Value>, pods: &[Pod], absent: Absent) -> Canary {
    let hash = template_hash(desired);
    let new: Vec<&Pod> = pods.iter().filter(|pod| hash.is_some() && template_of(pod) == hash).collect();
    let ready = new.iter().filter(|pod| is_ready(pod)).count();
    let same_template = live.is_some_and(|live| template_hash(live) == hash);
    let whole = live.map(Rollout::of).unwrap_or_default();
    let rollout = whole.without(absent);
    let under_way = same_template && rollout.current && rollout.updated < rollout.wanted;
    let object = with_unavailable(desired.clone(), unavailable(whole, absent, under_way, ready > 0));
    let stuck = new.iter().find_map(|pod| stuck(pod));
    Canary { object, stuck }
}

fn unavailable(whole: Rollout, absent: Absent, under_way: bool, canary_is_ready: bool) -> Value {
    match (under_way, canary_is_ready) {
        (false, _) => json!(ONE),
        (true, false) => json!(i64::from(ONE) + absent.nodes),
        (true, true) if absent.nodes == 0 => json!(TENTH),
        // Kubernetes rounds up, too. The sum is at most the number of nodes.
        (true, true) => json!(((whole.wanted + 9) / 10 + absent.nodes).min(whole.wanted)),
    }
}

/// The hash of the template of a DaemonSet.
pub(crate) fn template_hash(set: &Value) -> Option<&str> {
    set.pointer("/spec/template/metadata/annotations").and_then(|all| all[TEMPLATE_HASH].as_str())
}

fn with_unavailable(mut object: Value, unavailable: Value) -> Value {
    if object.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable") == Some(&unavailable) {
        return object;
    }
    object["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = unavailable;
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(HASH);
    }
    stamped(object)
}

pub(crate) fn template_of(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(TEMPLATE_HASH).map(String::as_str)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let leaving = pod.metadata.deletion_timestamp.is_some();
    !leaving && conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Why a Pod fails to start.
fn stuck(pod: &Pod) -> Option<String> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let reason = containers.iter().find_map(|container| {
        let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
        STUCK.contains(&reason).then_some(reason)
    })?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    Some(format!("Pod {name} on {node}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon_set(template: &str, unavailable: Value) -> Value {
        stamped(
            json!({"kind": "DaemonSet", "metadata": {"name": "virt-handler", "generation": 2, "annotations": {"a": "b"}},
            "spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": unavailable}},
                     "template": {"metadata": {"annotations": {TEMPLATE_HASH: template}}}}}),
        )
    }

    fn with_status(mut live: Value, wanted: i64, updated: i64, ready: i64) -> Value {
        live["status"] = json!({"observedGeneration": 2, "desiredNumberScheduled": wanted,
            "currentNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready});
        live
    }

    fn pod(template: &str, ready: bool, waiting: Option<&str>) -> Pod {
        let state = waiting.map_or(json!({}), |reason| json!({"waiting": {"reason": reason}}));
        let ready = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": "virt-handler-x", "annotations": {TEMPLATE_HASH: template}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [
                {"name": "virt-handler", "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_tenth_of_the_nodes_follows_once_one_node_is_fine() {
        let desired = daemon_set("new", json!(1));
        let old = pod("old", true, None);
        let table: [(&str, Option<Value>, Vec<Pod>, Value); 7] = [
            ("nothing is there", None, vec![], json!(1)),
            ("the old one", Some(with_status(daemon_set("old", json!(1)), 20, 20, 20)), vec![old.clone()], json!(1)),
            ("applied", Some(with_status(desired.clone(), 20, 0, 20)), vec![old.clone()], json!(1)),
            ("not ready", Some(with_status(desired.clone(), 20, 1, 19)), vec![pod("new", false, None)], json!(1)),
            ("the canary", Some(with_status(desired.clone(), 20, 1, 20)), vec![pod("new", true, None)], json!("10%")),
            ("all new", Some(with_status(desired.clone(), 20, 20, 19)), vec![pod("new", true, None)], json!(1)),
            ("done", Some(with_status(desired.clone(), 20, 20, 20)), vec![pod("new", true, None)], json!(1)),
        ];
        for (case, live, pods, expected) in table {
            let found = canary(&desired, live.as_ref(), &pods, Absent::default());
            let unavailable = found.object.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
            assert_eq!(unavailable, Some(&expected), "{case}");
            assert_eq!(found.stuck, None, "{case}");
        }
    }

    #[test]
    fn absent_nodes_take_nothing_from_the_budget_and_are_not_waited_for() {
        let desired = daemon_set("new", json!(1));
        let absent = |nodes, updated| Absent { nodes, updated };
        // Updated and ready of twenty; whether the canary is ready; absent nodes; the budget, and whether it is over.
        for (case, (updated, ready), canary_is_ready, absent, expected, is_finished) in [
            ("no canary yet", (0, 18), false, absent(2, 0), json!(3), false),
            ("the canary", (1, 18), true, absent(2, 0), json!(4), false),
            ("the last one", (17, 18), true, absent(2, 0), json!(4), false),
            ("one that is absent is new", (18, 18), true, absent(2, 1), json!(4), false),
            ("all others are new", (18, 17), true, absent(2, 0), json!(1), false),
            ("all others are ready", (18, 18), true, absent(2, 0), json!(1), true),
            ("and some absent ones new", (19, 18), true, absent(2, 1), json!(1), true),
            ("nobody else", (0, 0), false, absent(20, 0), json!(1), true),
            ("they are back", (18, 18), true, absent(0, 0), json!("10%"), false),
        ] {
            let live = with_status(desired.clone(), 20, updated, ready);
            let found = canary(&desired, Some(&live), &[pod("new", canary_is_ready, None)], absent);
            let unavailable = found.object.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
            assert_eq!(unavailable, Some(&expected), "{case}");
            assert_eq!(Rollout::of(&live).without(absent).is_finished(), is_finished, "{case}");
        }
    }

    #[test]
    fn the_hash_follows_the_number_of_nodes() {
        let desired = daemon_set("new", json!(1));
        let live = with_status(desired.clone(), 20, 1, 20);
        let canary = canary(&desired, Some(&live), &[pod("new", true, None)], Absent::default());
        assert_ne!(canary.object["metadata"]["annotations"][HASH], desired["metadata"]["annotations"][HASH]);
        assert_eq!(with_unavailable(canary.object, json!(1)), desired);
    }

    #[test]
    fn only_a_new_pod_that_crashes_is_reported() {
        let desired = daemon_set("new", json!(1));
        let live = with_status(desired.clone(), 3, 1, 2);
        let of = |template| {
            canary(&desired, Some(&live), &[pod(template, false, Some("CrashLoopBackOff"))], Absent::default()).stuck
        };
        assert_eq!(of("old"), None);
        assert_eq!(of("new").as_deref(), Some("Pod virt-handler-x on n1: CrashLoopBackOff"));
    }

    #[test]
    fn a_roll_out_is_finished_when_all_pods_are_new_and_ready() {
        let deployment = |generation: i64, observed: i64, counts: [i64; 3]| {
            json!({"kind": "Deployment", "metadata": {"generation": generation}, "spec": {"replicas": 2},
                "status": {"observedGeneration": observed, "replicas": counts[0], "updatedReplicas": counts[1],
                           "readyReplicas": counts[2]}})
        };
        let table = [
            (deployment(3, 3, [2, 2, 2]), true),
            (deployment(4, 3, [2, 2, 2]), false),
            (deployment(3, 3, [3, 2, 2]), false),
            (deployment(3, 3, [2, 1, 2]), false),
            (deployment(3, 3, [2, 2, 1]), false),
            (with_status(daemon_set("x", json!(1)), 3, 3, 3), true),
            (with_status(daemon_set("x", json!(1)), 3, 3, 2), false),
            // No node runs VMs: there is nothing to wait for.
            (with_status(daemon_set("x", json!(1)), 0, 0, 0), true),
            (daemon_set("x", json!(1)), false),
        ];
        for (live, expected) in table {
            assert_eq!(Rollout::of(&live).is_finished(), expected, "{live}");
        }
    }
}

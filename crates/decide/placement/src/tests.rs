//! Tables and properties of the decision.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NodeView, Storage, unscheduled};

/// Of Pods without claims.
fn place(pod: &Pod, nodes: &[NodeView]) -> Result<String, super::Unschedulable> {
    super::place(pod, nodes, &Storage::default()).map(|placed| placed.node)
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut object = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": spec});
    if object["spec"].get("containers").is_none() {
        object["spec"]["containers"] = json!([]);
    }
    serde_json::from_value(object).unwrap()
}

fn asking(cpu: &str, memory: &str) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
}

fn view(name: &str, cpu: &str, memory: &str, change: impl Fn(&mut Value), pods: Vec<Pod>) -> NodeView {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "z"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    change(&mut object);
    let node: Node = serde_json::from_value(object).unwrap();
    NodeView { node: Arc::new(node), pods: pods.into_iter().map(Arc::new).collect() }
}

fn node(name: &str) -> NodeView {
    view(name, "4", "8Gi", |_| {}, vec![])
}

fn same(_: &mut Value) {}

/// Name, Pod spec, nodes, and the node chosen or the reason given.
type Row = (&'static str, Value, Vec<NodeView>, Result<&'static str, &'static str>);

#[test]
fn a_pod_goes_where_every_rule_allows_it() {
    let device = json!({"containers": [{"name": "a", "resources": {"limits": {"devices.kubevirt.io/tun": "1"}}}]});
    let zone = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]},
    ]}});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}},
    ]}});
    let together = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}},
    ]}});
    let group = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}},
    ]}});
    let other = || pod("other", json!({}));
    let hermit = || {
        pod(
            "hermit",
            json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
            ]}}}),
        )
    };
    let tainted =
        |object: &mut Value| object["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    let table: Vec<Row> = vec![
        ("there is no node", json!({}), vec![], Err("no nodes available to schedule pods")),
        ("any node will do, the first by name", json!({}), vec![node("n1"), node("n2")], Ok("n1")),
        (
            "the emptier one",
            asking("1", "1Gi"),
            vec![view("n1", "4", "8Gi", same, vec![pod("p", asking("2", "1Gi"))]), node("n2")],
            Ok("n2"),
        ),
        (
            "with the fewer Pods when equally empty",
            json!({}),
            vec![view("n1", "4", "8Gi", same, vec![other()]), node("n2")],
            Ok("n2"),
        ),
        (
            "too little CPU here, too little memory there",
            asking("2", "4Gi"),
            vec![view("n1", "1", "8Gi", same, vec![]), view("n2", "4", "1Gi", same, vec![])],
            Err("0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
        ),
        (
            "what others have is gone",
            asking("1", "1Gi"),
            vec![view("n1", "2", "8Gi", same, vec![pod("p", asking("1500m", "1Gi"))])],
            Err("0/1 nodes are available: 1 Insufficient cpu."),
        ),
        (
            "a device nobody has",
            device.clone(),
            vec![node("n1")],
            Err("0/1 nodes are available: 1 Insufficient devices.kubevirt.io/tun."),
        ),
        (
            "a device that is there",
            device,
            vec![
                node("n1"),
                view(
                    "n2",
                    "4",
                    "8Gi",
                    |object| object["status"]["allocatable"]["devices.kubevirt.io/tun"] = json!("2"),
                    vec![],
                ),
            ],
            Ok("n2"),
        ),
        (
            "no room for one more Pod",
            json!({}),
            vec![view("n1", "4", "8Gi", |object| object["status"]["allocatable"]["pods"] = json!("1"), vec![other()])],
            Err("0/1 nodes are available: 1 Too many pods."),
        ),
        (
            "by node selector",
            json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}}),
            vec![node("n1"), node("n2")],
            Ok("n2"),
        ),
        (
            "a selector that nobody matches",
            json!({"nodeSelector": {"gpu": "yes"}}),
            vec![node("n1"), node("n2")],
            Err("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        ),
        ("by node affinity", json!({"affinity": {"nodeAffinity": zone}}), vec![node("n1"), node("n2")], Ok("n2")),
        (
            "not on a cordoned node",
            json!({}),
            vec![view("n1", "4", "8Gi", |object| object["spec"]["unschedulable"] = json!(true), vec![])],
            Err("0/1 nodes are available: 1 node(s) were unschedulable."),
        ),
        (
            "not on a node that is not ready",
            json!({}),
            vec![view(
                "n1",
                "4",
                "8Gi",
                |object| object["status"]["conditions"][0]["status"] = json!("Unknown"),
                vec![],
            )],
            Err("0/1 nodes are available: 1 node(s) were not ready."),
        ),
        (
            "not past a taint",
            json!({}),
            vec![view("n1", "4", "8Gi", tainted, vec![])],
            Err("0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."),
        ),
        (
            "unless it is tolerated",
            json!({"tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]}),
            vec![view("n1", "4", "8Gi", tainted, vec![])],
            Ok("n1"),
        ),
        (
            "everything tolerated",
            json!({"tolerations": [{"operator": "Exists"}]}),
            vec![view("n1", "4", "8Gi", tainted, vec![])],
            Ok("n1"),
        ),
        (
            "apart from another",
            json!({"affinity": apart}),
            vec![view("n1", "4", "8Gi", same, vec![other()]), node("n2")],
            Ok("n2"),
        ),
        (
            "apart from another who is everywhere",
            json!({"affinity": apart}),
            vec![view("n1", "4", "8Gi", same, vec![other()])],
            Err("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
        ),
        (
            "together with another",
            json!({"affinity": together}),
            vec![node("n1"), view("n2", "4", "8Gi", same, vec![other()])],
            Ok("n2"),
        ),
        (
            "together with nobody",
            json!({"affinity": together}),
            vec![node("n1")],
            Err("0/1 nodes are available: 1 node(s) didn't match pod affinity rules."),
        ),
        ("the first of a group", json!({"affinity": group}), vec![node("n1")], Ok("n1")),
        (
            "not next to one who wants to be alone",
            json!({}),
            vec![view("n1", "4", "8Gi", same, vec![hermit()])],
            Err("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."),
        ),
    ];
    for (name, spec, nodes, expected) in table {
        let found = place(&pod("x", spec), &nodes);
        let found = found.as_deref().map_err(|reason| reason.message.as_str());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_rule_that_cannot_be_kept_is_not_broken() {
    let spec = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {},
    }]});
    let reason = place(&pod("x", spec), &[node("n1")]).unwrap_err();
    assert!(reason.message.contains("topologySpreadConstraints"), "{reason}");
}

#[test]
fn init_containers_count_at_their_peak_and_sidecars_always() {
    let spec = json!({
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
            {"name": "init", "resources": {"requests": {"cpu": "2"}}},
        ],
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1500m"}}}],
        "overhead": {"cpu": "100m"},
    });
    let amounts = super::resources::requests(&pod("x", spec));
    assert_eq!(amounts.get("cpu").milli_value(), 3100);
}

#[test]
fn the_reason_is_written_once() {
    let now = jiff::Timestamp::from_second(10).unwrap();
    let later = jiff::Timestamp::from_second(20).unwrap();
    let first = unscheduled(None, "full", now).unwrap();
    assert_eq!(unscheduled(Some(&first), "full", later), None);
    let second = unscheduled(Some(&first), "fuller", later).unwrap();
    assert_eq!(second.last_transition_time, first.last_transition_time, "it has waited since the first time");
}

fn amounts() -> impl Strategy<Value = (u32, u32)> {
    (0u32..3000, 0u32..3000)
}

proptest! {
    /// Whatever is placed fits: no resource of the chosen node is given out twice.
    #[test]
    fn a_placed_pod_fits(
        capacities in prop::collection::vec((0u32..4000, 0u32..4000), 1..5),
        wishes in prop::collection::vec(amounts(), 1..20),
    ) {
        let mut views: Vec<NodeView> = capacities
            .iter()
            .enumerate()
            .map(|(index, (cpu, memory))| view(&format!("n{index}"), &format!("{cpu}m"), &memory.to_string(), same, vec![]))
            .collect();
        let mut used = vec![(0u32, 0u32, 0usize); capacities.len()];
        for (index, (cpu, memory)) in wishes.into_iter().enumerate() {
            let pod = pod(&format!("p{index}"), asking(&format!("{cpu}m"), &memory.to_string()));
            let fits = |(used, capacity): (&(u32, u32, usize), &(u32, u32))| {
                used.0 + cpu <= capacity.0 && used.1 + memory <= capacity.1 && used.2 < 10
            };
            let possible = used.iter().zip(&capacities).any(fits);
            let placed = place(&pod, &views);
            prop_assert_eq!(placed.is_ok(), possible);
            prop_assert_eq!(&place(&pod, &views), &placed, "the same question has the same answer");
            if let Ok(name) = placed {
                let chosen: usize = name[1..].parse().unwrap();
                prop_assert!(fits((&used[chosen], &capacities[chosen])));
                used[chosen] = (used[chosen].0 + cpu, used[chosen].1 + memory, used[chosen].2 + 1);
                views[chosen].pods.push(Arc::new(pod));
            }
        }
    }

    /// The order in which nodes are given does not matter.
    #[test]
    fn the_order_of_nodes_does_not_matter(
        capacities in prop::collection::vec((0u32..4000, 0u32..4000), 1..5),
        (cpu, memory) in amounts(),
        turn in 0usize..5,
    ) {
        let mut views: Vec<NodeView> = capacities
            .iter()
            .enumerate()
            .map(|(index, (cpu, memory))| view(&format!("n{index}"), &format!("{cpu}m"), &memory.to_string(), same, vec![]))
            .collect();
        let pod = pod("x", asking(&format!("{cpu}m"), &memory.to_string()));
        let first = place(&pod, &views);
        let turn = turn % views.len();
        views.rotate_left(turn);
        prop_assert_eq!(place(&pod, &views), first);
    }
}

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::labels;
use api::v1::{KubeVirt, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::super::lowest_tsc_frequency;
use super::super::topology::{InvalidFrequency, promised_frequency, relabel};
use super::{arc, node};

const GHZ: i64 = 1_000_000_000;

fn configured(frequency: Option<i64>) -> ClusterConfig {
    let developer = frequency.map_or(json!({}), |frequency| json!({"minimumClusterTSCFrequency": frequency}));
    let object = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt"},
                        "spec": {"configuration": {"developerConfiguration": developer}}});
    let kubevirt: KubeVirt = serde_json::from_value(object).unwrap();
    ClusterConfig::from_kubevirt(&kubevirt).unwrap()
}

fn counter(name: &str, frequency: &str, schedulable: bool) -> Node {
    let labels = json!({labels::TSC_FREQUENCY: frequency, labels::SCHEDULABLE: schedulable.to_string()});
    node(name, labels, None)
}

#[test]
fn guests_are_promised_the_lowest_frequency_of_the_nodes_that_matter() {
    let rows: [(&str, Vec<Node>, i64); 7] = [
        ("no nodes", vec![], 0),
        ("no node tells", vec![node("n1", json!({labels::SCHEDULABLE: "true"}), None)], 0),
        ("two tell", vec![counter("n1", "3000000000", true), counter("n2", "2000000000", true)], 2 * GHZ),
        (
            "the slower one takes no guests",
            vec![counter("n1", "3000000000", true), counter("n2", "2000000000", false)],
            3 * GHZ,
        ),
        ("but has some", vec![counter("n1", "3000000000", true), counter("busy", "2000000000", false)], 2 * GHZ),
        ("one tells nonsense", vec![counter("n1", "3000000000", true), counter("n2", "fast", true)], 3 * GHZ),
        ("one tells zero", vec![counter("n1", "0", true), counter("n2", "3000000000", true)], 3 * GHZ),
    ];
    for (name, nodes, wanted) in rows {
        let found = lowest_tsc_frequency(&arc(nodes), |node| node == "busy", &configured(None));
        assert_eq!(found, Ok(wanted), "{name}");
    }
}

#[test]
fn a_configured_frequency_holds_whatever_the_nodes_say() {
    let nodes = arc([counter("n1", "2000000000", true)]);
    assert_eq!(lowest_tsc_frequency(&nodes, |_| false, &configured(Some(GHZ))), Ok(GHZ));
    for wrong in [0, -1] {
        let refused = lowest_tsc_frequency(&nodes, |_| false, &configured(Some(wrong)));
        assert_eq!(refused, Err(InvalidFrequency { configured: wrong }));
        assert!(refused.unwrap_err().to_string().contains("minimumClusterTSCFrequency"));
    }
}

/// A node of two gigahertz with labels for these frequencies.
fn labelled(scalable: bool, there: &[i64]) -> Node {
    let mut all =
        json!({labels::TSC_FREQUENCY: "2000000000", labels::TSC_SCALABLE: scalable.to_string(), "other": "x"});
    for frequency in there {
        all[format!("{}{frequency}", labels::TSC_FREQUENCY_SCHEDULING_PREFIX)] = json!("true");
    }
    node("n1", all, None)
}

/// What is done to the labels of a node, without their prefix.
fn changes(node: Node, promised: &[i64], lowest: i64) -> Value {
    let done = relabel(&arc([node]), &promised.iter().copied().collect::<BTreeSet<_>>(), lowest);
    let Some(one) = done.first() else { return json!({}) };
    assert_eq!((one.node.as_str(), &one.patch["metadata"]["uid"]), ("n1", &json!("uid-of-n1")));
    let labels = one.patch["metadata"]["labels"].as_object().unwrap().iter();
    let strip = |key: &str| key.strip_prefix(labels::TSC_FREQUENCY_SCHEDULING_PREFIX).unwrap().to_owned();
    Value::Object(labels.map(|(key, value)| (strip(key), value.clone())).collect())
}

#[test]
fn a_node_offers_the_frequencies_in_use_that_it_can_run() {
    // 250 millionths of 2 GHz are 500 kHz.
    type Row = (&'static str, bool, &'static [i64], &'static [i64], i64, Value);
    let rows: [Row; 11] = [
        ("its own, always", false, &[], &[], 0, json!({"2000000000": "true"})),
        ("settled", false, &[2 * GHZ], &[], 0, json!({})),
        ("zero is no promise", true, &[2 * GHZ], &[0], 0, json!({})),
        ("within tolerance", false, &[2 * GHZ], &[2_000_500_000], 0, json!({"2000500000": "true"})),
        ("just outside", false, &[2 * GHZ], &[2_000_500_001], 0, json!({})),
        ("slower, not scalable", false, &[2 * GHZ], &[GHZ], 0, json!({})),
        ("slower, scalable", true, &[2 * GHZ], &[GHZ], 0, json!({"1000000000": "true"})),
        ("faster, scalable", true, &[2 * GHZ], &[3 * GHZ], 0, json!({})),
        ("the cluster's lowest", true, &[2 * GHZ], &[], GHZ, json!({"1000000000": "true"})),
        ("no longer promised", true, &[2 * GHZ, GHZ], &[], 0, json!({"1000000000": null})),
        ("no longer scalable", false, &[2 * GHZ, GHZ], &[GHZ], 0, json!({"1000000000": null})),
    ];
    for (name, scalable, there, promised, lowest, wanted) in rows {
        assert_eq!(changes(labelled(scalable, there), promised, lowest), wanted, "{name}");
    }
}

#[test]
fn nodes_that_do_not_tell_their_frequency_are_left_alone() {
    let stale = format!("{}{GHZ}", labels::TSC_FREQUENCY_SCHEDULING_PREFIX);
    for told in [json!({stale.clone(): "true"}), json!({stale: "true", labels::TSC_FREQUENCY: "fast"})] {
        assert_eq!(relabel(&arc([node("n1", told, None)]), &BTreeSet::from([GHZ]), GHZ), []);
    }
}

#[test]
fn labels_that_only_look_like_ours_stay() {
    let mut odd = labelled(false, &[2 * GHZ]);
    let key = format!("{}of-somebody-else", labels::TSC_FREQUENCY_SCHEDULING_PREFIX);
    odd.metadata.labels.as_mut().unwrap().insert(key, "true".into());
    assert_eq!(changes(odd, &[], 0), json!({}));
}

#[test]
fn a_promise_is_a_frequency_above_zero() {
    let vmi = |hints: Value| -> VirtualMachineInstance {
        let object = json!({"metadata": {}, "spec": {"domain": {"devices": {}}}, "status": {"topologyHints": hints}});
        serde_json::from_value(object).unwrap()
    };
    for (hints, wanted) in [
        (json!(null), None),
        (json!({}), None),
        (json!({"tscFrequency": 0}), None),
        (json!({"tscFrequency": 5}), Some(5)),
    ] {
        assert_eq!(promised_frequency(&vmi(hints.clone())), wanted, "{hints}");
    }
}

#[test]
fn applying_what_is_asked_leaves_nothing_to_do() {
    let before = labelled(true, &[3 * GHZ, GHZ]);
    let promised = BTreeSet::from([GHZ / 2, 5 * GHZ]);
    let [change] = relabel(&arc([before.clone()]), &promised, GHZ).try_into().unwrap();
    let mut value = serde_json::to_value(before).unwrap();
    machinery::patch::merge(&mut value, &change.patch);
    let after: Node = serde_json::from_value(value).unwrap();
    assert_eq!(relabel(&arc([after]), &promised, GHZ), []);
}

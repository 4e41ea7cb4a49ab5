use api::labels;
use api::v1::KubeVirt;
use serde_json::json;

use super::*;

const GHZ: i64 = 1_000_000_000;

/// A node that takes no guests and scales its TSC; without a frequency it reports none.
fn node(name: &str, frequency: Option<i64>) -> Arc<Node> {
    let mut own = json!({labels::TSC_SCALABLE: "true"});
    if let Some(frequency) = frequency {
        own[labels::TSC_FREQUENCY] = json!(frequency.to_string());
    }
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": own}})).unwrap())
}

fn world(nodes: Vec<Arc<Node>>, configured: Option<i64>) -> World {
    let developer = configured.map_or(json!({}), |frequency| json!({"minimumClusterTSCFrequency": frequency}));
    let kubevirt = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt"},
                          "spec": {"configuration": {"developerConfiguration": developer}}});
    let kubevirt: KubeVirt = serde_json::from_value(kubevirt).unwrap();
    World {
        nodes,
        occupied: BTreeSet::new(),
        promised: BTreeSet::new(),
        config: Arc::new(ClusterConfig::from_kubevirt(&kubevirt).unwrap()),
        pace: Pace::default(),
        pass: 0,
    }
}

/// Nodes with the frequencies that are added, or the warning.
fn told(w: &World) -> Vec<String> {
    let actions = decide(w);
    let Some((Action::RequeueAfter(pause), rest)) = actions.split_last() else { panic!("{actions:#?}") };
    assert!(*pause >= PERIOD);
    let tell = |action: &Action| match action {
        Action::Own(Own::Relabel(Relabel { node, patch })) => {
            let set = patch["metadata"]["labels"].as_object().unwrap();
            let strip = |key: &String| key.strip_prefix(labels::TSC_FREQUENCY_SCHEDULING_PREFIX).unwrap().to_owned();
            format!("{node}: {}", set.keys().map(strip).collect::<Vec<_>>().join(" "))
        }
        Action::Own(Own::Warn(message)) => message.clone(),
        other => panic!("{other}"),
    };
    rest.iter().map(tell).collect()
}

#[test]
fn every_node_that_reports_a_frequency_gets_the_labels_in_use() {
    let nodes = || vec![node("fast", Some(3 * GHZ)), node("silent", None), node("slow", Some(2 * GHZ))];
    assert_eq!(told(&world(nodes(), None)), ["fast: 3000000000", "slow: 2000000000"]);

    let promised = World { promised: BTreeSet::from([GHZ]), ..world(nodes(), None) };
    assert_eq!(told(&promised), ["fast: 1000000000 3000000000", "slow: 1000000000 2000000000"]);

    // New guests get the lowest frequency of the nodes that have guests.
    let occupied = World { occupied: BTreeSet::from(["slow".to_owned()]), ..world(nodes(), None) };
    assert_eq!(told(&occupied), ["fast: 2000000000 3000000000", "slow: 2000000000"]);
}

#[test]
fn an_invalid_frequency_is_told_only_where_it_matters() {
    let warned = told(&world(vec![node("n1", Some(2 * GHZ))], Some(0)));
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(warning.contains("minimumClusterTSCFrequency"), "{warning}");
    assert_eq!(told(&world(vec![node("silent", None)], Some(0))), [""; 0]);
    assert_eq!(told(&world(vec![], None)), [""; 0]);
}

#[test]
fn pauses_differ_and_stay_within_their_bounds() {
    let pauses = |identity: &str| -> Vec<Duration> {
        let pace = Pace { identity: identity.to_owned(), ..Pace::default() };
        (0..200).map(|pass| pace.pause(pass)).collect()
    };
    let some = pauses("a");
    assert!(some.iter().all(|pause| (PERIOD..=PERIOD * 22 / 10).contains(pause)), "{some:?}");
    assert!(some.iter().any(|pause| *pause != some[0]));
    assert_ne!(some, pauses("b"));
}

//! Which policy holds, and what it changes.

use std::collections::BTreeMap;

use api::migrations::MigrationPolicy;
use api::v1::MigrationConfiguration;
use proptest::prelude::*;

use super::*;
use crate::migration::policy::{best, overlay};

/// What is the case, the policies by name, and which of them wins.
type Row<'a> = (&'a str, Vec<(&'a str, Value)>, Option<&'a str>);

type Labels = BTreeMap<String, String>;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn policy(name: &str, selectors: Value, spec: Value) -> MigrationPolicy {
    let mut object = json!({"metadata": {"name": name}, "spec": spec});
    if !selectors.is_null() {
        object["spec"]["selectors"] = selectors;
    }
    serde_json::from_value(object).unwrap()
}

fn vmi_selector(pairs: Value) -> Value {
    json!({"virtualMachineInstanceSelector": pairs})
}

#[test]
fn the_most_specific_policy_wins() {
    let table: Vec<Row<'_>> = vec![
        ("none", vec![], None),
        ("without selectors it fits nothing", vec![("a", Value::Null)], None),
        ("empty selectors fit everything", vec![("a", json!({}))], Some("a")),
        ("a label that is not there", vec![("a", vmi_selector(json!({"tier": "lead"})))], None),
        ("one label beats none", vec![("a", json!({})), ("b", vmi_selector(json!({"tier": "gold"})))], Some("b")),
        ("all labels must fit", vec![("a", vmi_selector(json!({"tier": "gold", "os": "none"})))], None),
        (
            "more labels beat fewer",
            vec![
                ("a", vmi_selector(json!({"tier": "gold"}))),
                ("b", vmi_selector(json!({"tier": "gold", "os": "linux"}))),
            ],
            Some("b"),
        ),
        (
            "among as many, labels of the instance count more",
            vec![("a", json!({"namespaceSelector": {"env": "prod"}})), ("b", vmi_selector(json!({"tier": "gold"})))],
            Some("b"),
        ),
        (
            "both must fit",
            vec![(
                "a",
                json!({"namespaceSelector": {"env": "test"}, "virtualMachineInstanceSelector": {"tier": "gold"}}),
            )],
            None,
        ),
        (
            "then the name decides",
            vec![("z", vmi_selector(json!({"tier": "gold"}))), ("b", vmi_selector(json!({"os": "linux"})))],
            Some("b"),
        ),
    ];
    let (instance, namespace) = (labels(&[("tier", "gold"), ("os", "linux")]), labels(&[("env", "prod")]));
    for (what, policies, expected) in table {
        let policies: Vec<MigrationPolicy> =
            policies.into_iter().map(|(name, selectors)| policy(name, selectors, json!({}))).collect();
        let found = best(&policies, &instance, &namespace).and_then(|policy| policy.metadata.name.as_deref());
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_namespace_selector_counts_for_an_instance_without_labels() {
    let all = [policy("a", json!({"namespaceSelector": {"env": "prod"}}), json!({}))];
    assert!(best(&all, &Labels::new(), &labels(&[("env", "prod")])).is_some());
    let strict = [policy("a", vmi_selector(json!({"tier": "gold"})), json!({}))];
    assert!(best(&strict, &Labels::new(), &Labels::new()).is_none());
}

proptest! {
    #[test]
    fn the_order_of_policies_does_not_matter(
        sets in proptest::collection::vec((0usize..4, 0usize..3), 1..6), rotation in 0usize..6,
    ) {
        let (instance, namespace) =
            (labels(&[("l0", "1"), ("l1", "1"), ("l2", "1"), ("l3", "1")]), labels(&[("n0", "1"), ("n1", "1")]));
        let pick = |from: &Labels, n: usize| from.iter().take(n).map(|(k, v)| (k.clone(), v.clone())).collect::<Labels>();
        let mut policies: Vec<MigrationPolicy> = sets.iter().enumerate().map(|(n, (a, b))| {
            let selectors = json!({"virtualMachineInstanceSelector": pick(&instance, *a),
                                   "namespaceSelector": pick(&namespace, *b)});
            policy(&format!("p{n}"), selectors, json!({}))
        }).collect();
        let first = best(&policies, &instance, &namespace).cloned();
        let by = rotation % policies.len();
        policies.rotate_left(by);
        prop_assert_eq!(best(&policies, &instance, &namespace).cloned(), first.clone());
        policies.reverse();
        prop_assert_eq!(best(&policies, &instance, &namespace).cloned(), first);
    }
}

fn cluster() -> MigrationConfiguration {
    ClusterConfig::default().migrations()
}

#[test]
fn what_a_policy_leaves_unset_stays_as_the_cluster_has_it() {
    assert_eq!(overlay(&cluster(), None), cluster());
    assert_eq!(overlay(&cluster(), Some(&policy("a", json!({}), json!({})))), cluster());
    let spec = json!({"allowAutoConverge": true, "bandwidthPerMigration": "64Mi", "completionTimeoutPerGiB": 7,
                      "maxDowntimeMs": 50});
    let merged = overlay(&cluster(), Some(&policy("a", json!({}), spec)));
    let mut expected = cluster();
    expected.allow_auto_converge = Some(true);
    expected.bandwidth_per_migration = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("64Mi".into()));
    expected.completion_timeout_per_gib = Some(7);
    expected.max_downtime_ms = Some(50);
    assert_eq!(merged, expected);
}

#[test]
fn disruption_follows_post_copy_unless_it_is_named() {
    for (spec, post_copy, disruption) in [
        (json!({"allowPostCopy": true}), true, true),
        (json!({"allowPostCopy": true, "allowWorkloadDisruption": false}), true, false),
        (json!({"allowWorkloadDisruption": true}), false, true),
        (json!({"allowPostCopy": false}), false, false),
    ] {
        let merged = overlay(&cluster(), Some(&policy("a", json!({}), spec.clone())));
        let found = (merged.allow_post_copy, merged.allow_workload_disruption);
        assert_eq!(found, (Some(post_copy), Some(disruption)), "{spec}");
    }
}

#[test]
fn experimental_settings_merge_field_by_field() {
    let mut own = cluster();
    own.experimental = serde_json::from_value(json!({"compression": "zstd", "downtimeTuning": {"steps": 3}})).unwrap();
    let spec = json!({"experimental": {"downtimeTuning": {"initialMs": 10}, "stallDetector": {"stallMargin": 2}}});
    let merged = overlay(&own, Some(&policy("a", json!({}), spec)));
    let expected = json!({"compression": "zstd", "downtimeTuning": {"steps": 3, "initialMs": 10},
                          "stallDetector": {"stallMargin": 2}});
    assert_eq!(serde_json::to_value(merged.experimental).unwrap(), expected);
}

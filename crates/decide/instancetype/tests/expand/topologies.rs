//! Sockets, cores and threads of a number of CPUs.

use instancetype::{check_spread, topology};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{instancetype, preference};

/// A preference's CPU part, the CPUs asked for, and sockets, cores and threads that come out.
const CASES: &[(&str, u32, [u32; 3])] = &[
    (r#"{}"#, 1, [1, 1, 1]),
    (r#"{}"#, 4, [4, 1, 1]),
    (r#"{"preferredCPUTopology":"sockets"}"#, 4, [4, 1, 1]),
    (r#"{"preferredCPUTopology":"preferSockets"}"#, 4, [4, 1, 1]),
    (r#"{"preferredCPUTopology":"any"}"#, 4, [4, 1, 1]),
    (r#"{"preferredCPUTopology":"preferAny"}"#, 4, [4, 1, 1]),
    (r#"{"preferredCPUTopology":"cores"}"#, 4, [1, 4, 1]),
    (r#"{"preferredCPUTopology":"preferCores"}"#, 4, [1, 4, 1]),
    (r#"{"preferredCPUTopology":"threads"}"#, 4, [1, 1, 4]),
    (r#"{"preferredCPUTopology":"preferThreads"}"#, 4, [1, 1, 4]),
    (r#"{"preferredCPUTopology":"spread"}"#, 1, [1, 1, 1]),
    (r#"{"preferredCPUTopology":"spread"}"#, 6, [3, 2, 1]),
    (r#"{"preferredCPUTopology":"preferSpread"}"#, 6, [3, 2, 1]),
    (r#"{"preferredCPUTopology":"spread","spreadOptions":{"ratio":3}}"#, 6, [2, 3, 1]),
    (r#"{"preferredCPUTopology":"spread","spreadOptions":{"across":"SocketsCores","ratio":4}}"#, 8, [2, 4, 1]),
    (r#"{"preferredCPUTopology":"spread","spreadOptions":{"across":"CoresThreads"}}"#, 8, [1, 4, 2]),
    (r#"{"preferredCPUTopology":"spread","spreadOptions":{"across":"SocketsCoresThreads"}}"#, 8, [2, 2, 2]),
    (r#"{"preferredCPUTopology":"spread","spreadOptions":{"across":"SocketsCoresThreads","ratio":4}}"#, 8, [1, 4, 2]),
];

fn cpu(part: &str) -> Value {
    serde_json::from_str(part).expect("a CPU preference")
}

#[test]
fn cpus_are_laid_out_as_the_preference_says() {
    for (part, vcpus, expected) in CASES {
        let topology = topology(*vcpus, Some(&preference(json!({ "cpu": cpu(part) }))));
        assert_eq!([topology.sockets, topology.cores, topology.threads], *expected, "{vcpus} CPUs with {part}");
    }
}

#[test]
fn without_a_preference_cpus_are_sockets() {
    let topology = topology(3, None);
    assert_eq!([topology.sockets, topology.cores, topology.threads], [3, 1, 1]);
}

#[test]
fn the_old_ratio_counts_unless_the_new_one_is_given() {
    let sockets = |over: Value| {
        let mut spec = json!({ "cpu": { "preferredCPUTopology": "spread" }, "preferSpreadSocketToCoreRatio": 4 });
        machinery::patch::merge(&mut spec, &over);
        topology(8, Some(&preference(spec))).sockets
    };
    assert_eq!(sockets(json!({})), 2);
    assert_eq!(sockets(json!({ "preferSpreadSocketToCoreRatio": 0 })), 4);
    assert_eq!(sockets(json!({ "cpu": { "spreadOptions": { "ratio": 8 } } })), 1);
}

#[test]
fn cpus_that_cannot_be_spread_evenly_are_refused() {
    // A preference's CPU part, a number of CPUs that can be spread and one that cannot.
    let cases = [
        (json!({}), 4, 5),
        (json!({ "ratio": 3 }), 6, 7),
        (json!({ "across": "CoresThreads" }), 4, 3),
        (json!({ "across": "SocketsCoresThreads" }), 8, 6),
        (json!({ "across": "SocketsCoresThreads", "ratio": 3 }), 12, 8),
        (json!({ "across": "SocketsCoresThreads" }), 4, 3),
        // KubeVirt refuses a single CPU as well, although there is nothing to spread.
        (json!({}), 2, 1),
    ];
    for (options, even, odd) in cases {
        let spec = json!({ "cpu": { "preferredCPUTopology": "spread", "spreadOptions": options } });
        let preference = preference(spec);
        let check = |guest: u32| {
            let instancetype = instancetype(json!({ "cpu": { "guest": guest } }));
            check_spread(Some(&instancetype), Some(&preference)).map(|e| format!("{} {}", e.cause.as_str(), e.field))
        };
        assert_eq!(check(even), None, "{even} with {options}");
        assert_eq!(
            check(odd).as_deref(),
            Some("FieldValueInvalid instancetype.spec.cpu.guest"),
            "{odd} with {options}"
        );
    }
}

#[test]
fn a_ratio_of_zero_is_refused_instead_of_dividing_by_it() {
    let spread = json!({ "preferredCPUTopology": "spread", "spreadOptions": { "ratio": 0 } });
    let preference = preference(json!({ "cpu": spread }));
    assert!(check_spread(Some(&instancetype(json!({}))), Some(&preference)).is_some());
    topology(4, Some(&preference));
}

#[test]
fn only_an_instance_type_and_a_preference_to_spread_can_disagree() {
    let spread = preference(json!({ "cpu": { "preferredCPUTopology": "spread" } }));
    let odd = instancetype(json!({ "cpu": { "guest": 3 } }));
    assert_eq!(check_spread(None, Some(&spread)), None);
    assert_eq!(check_spread(Some(&odd), None), None);
    assert_eq!(check_spread(Some(&odd), Some(&preference(json!({})))), None);
}

proptest! {
    #[test]
    fn no_cpu_is_lost_unless_spreading_is_refused(vcpus in 1u32..1000, case in 0..CASES.len()) {
        let preference = preference(json!({ "cpu": cpu(CASES[case].0) }));
        let instancetype = instancetype(json!({ "cpu": { "guest": vcpus } }));
        let topology = topology(vcpus, Some(&preference));
        if check_spread(Some(&instancetype), Some(&preference)).is_none() {
            prop_assert_eq!(topology.sockets * topology.cores * topology.threads, vcpus);
        }
    }
}

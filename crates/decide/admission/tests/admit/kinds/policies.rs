//! Migration policies, instance types, preferences and plugins.

use serde_json::{Value, json};

use super::{On, PASSES, merged};

/// A policy that passes; `over` is merged over it.
pub(super) fn policy(over: Value) -> Value {
    let base = json!({
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": { "name": "slow" },
        "spec": { "selectors": { "namespaceSelector": { "tier": "back" } } },
    });
    merged(base, &over)
}

/// An instance type that passes; `over` is merged over it.
pub(super) fn instancetype(over: Value) -> Value {
    let base = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineInstancetype",
        "metadata": { "name": "small" },
        "spec": { "cpu": { "guest": 1 }, "memory": { "guest": "128Mi" } },
    });
    merged(base, &over)
}

/// A preference that passes; `over` is merged over it.
pub(super) fn preference(over: Value) -> Value {
    let base = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePreference",
        "metadata": { "name": "linux" },
        "spec": { "devices": { "preferredDiskBus": "virtio" } },
    });
    merged(base, &over)
}

/// A plugin that passes; `over` is merged over it.
pub(super) fn plugin(over: Value) -> Value {
    let base = json!({
        "apiVersion": "plugin.kubevirt.io/v1alpha1",
        "kind": "Plugin",
        "metadata": { "name": "tuner" },
        "spec": { "validatingAdmissionPolicies": [{ "name": "tuner" }] },
    });
    merged(base, &over)
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn policies() {
    On::new("migrationpolicies").check(
        policy,
        [
            (
                "time does not run backwards",
                spec(json!({ "completionTimeoutPerGiB": -1 })),
                "FieldValueInvalid spec.completionTimeoutPerGiB",
                spec(json!({ "completionTimeoutPerGiB": 0 })),
            ),
            (
                "nor does data",
                spec(json!({ "bandwidthPerMigration": "-1" })),
                "FieldValueInvalid spec.bandwidthPerMigration",
                spec(json!({ "bandwidthPerMigration": "0" })),
            ),
            (
                "a downtime needs a gate",
                spec(json!({ "maxDowntimeMs": 500 })),
                "FieldValueInvalid spec.maxDowntimeMs",
                json!({}),
            ),
            (
                "tuning needs a gate",
                spec(json!({ "experimental": { "downtimeTuning": {} } })),
                "FieldValueInvalid spec.experimental.downtimeTuning",
                spec(json!({ "experimental": { "compression": "zstd" } })),
            ),
            (
                "detection needs a gate",
                spec(json!({ "experimental": { "stallDetector": {} } })),
                "FieldValueInvalid spec.experimental.stallDetector",
                spec(json!({ "experimental": {} })),
            ),
        ],
    );
}

#[test]
fn a_permitted_downtime_can_be_changed_where_something_acts_on_it_and_stay_elsewhere() {
    let on = || On::new("migrationpolicies");
    let with = |downtime: u32| policy(spec(json!({ "maxDowntimeMs": downtime })));
    assert_eq!(on().with_gate("MigrationStallDetection").create(&with(500)), PASSES);
    assert_eq!(on().with_gate("MigrationDowntimeTuning").create(&with(500)), PASSES);
    assert_eq!(on().update(&with(500), &with(600)), ["FieldValueInvalid spec.maxDowntimeMs"]);
    assert_eq!(on().update(&with(500), &policy(json!({}))), ["FieldValueInvalid spec.maxDowntimeMs"]);
    let kept = merged(with(500), &spec(json!({ "allowPostCopy": true })));
    assert_eq!(on().update(&with(500), &kept), PASSES);
}

#[test]
fn experiments() {
    let on = On::new("migrationpolicies").with_gate("MigrationDowntimeTuning").with_gate("MigrationStallDetection");
    let experimental = |options: Value| spec(json!({ "experimental": options }));
    let detector = |factor: &str, value: &str| experimental(json!({ "stallDetector": { factor: value } }));
    on.check(
        policy,
        [
            (
                "one of both",
                experimental(json!({ "stallDetector": {}, "downtimeTuning": {} })),
                "FieldValueInvalid spec.experimental",
                experimental(json!({ "stallDetector": {} })),
            ),
            (
                "a weight above nothing",
                detector("ewmaAlpha", "0"),
                "FieldValueInvalid spec.experimental.stallDetector.ewmaAlpha",
                detector("ewmaAlpha", "1m"),
            ),
            (
                "a weight of at most one",
                detector("ewmaAlpha", "1.001"),
                "FieldValueInvalid spec.experimental.stallDetector.ewmaAlpha",
                detector("ewmaAlpha", "1"),
            ),
            (
                "a weight of at most three places",
                detector("ewmaAlpha", "0.4001"),
                "FieldValueInvalid spec.experimental.stallDetector.ewmaAlpha",
                detector("ewmaAlpha", "0.400"),
            ),
            (
                "a factor that does not shrink",
                detector("precopyPossibleFactor", "0.999"),
                "FieldValueInvalid spec.experimental.stallDetector.precopyPossibleFactor",
                detector("precopyPossibleFactor", "1"),
            ),
            (
                "a decay that does not turn around",
                detector("patienceWindowDecayFactor", "-0.001"),
                "FieldValueInvalid spec.experimental.stallDetector.patienceWindowDecayFactor",
                detector("patienceWindowDecayFactor", "0"),
            ),
            (
                "a decay that does not grow",
                detector("patienceWindowDecayFactor", "1.001"),
                "FieldValueInvalid spec.experimental.stallDetector.patienceWindowDecayFactor",
                detector("patienceWindowDecayFactor", "1"),
            ),
            (
                "more time, not less",
                detector("completionTimeoutFactor", "0.5"),
                "FieldValueInvalid spec.experimental.stallDetector.completionTimeoutFactor",
                detector("completionTimeoutFactor", "2.125"),
            ),
            (
                "places count in every factor",
                detector("completionTimeoutFactor", "2.1255"),
                "FieldValueInvalid spec.experimental.stallDetector.completionTimeoutFactor",
                detector("completionTimeoutFactor", "2125m"),
            ),
        ],
    );
}

#[test]
fn instance_types() {
    let memory = |memory: Value| spec(json!({ "memory": memory }));
    let pages = json!({ "pageSize": "2Mi" });
    for (resource, kind) in [
        ("virtualmachineinstancetypes", "VirtualMachineInstancetype"),
        ("virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype"),
    ] {
        let of_kind = |over: Value| instancetype(merged(json!({ "kind": kind }), &over));
        let on = On::new(resource);
        let percent = ["FieldValueInvalid spec.memory.overcommitPercent"];
        assert_eq!(on.create(&of_kind(memory(json!({ "overcommitPercent": -1 })))), percent);
        assert_eq!(on.create(&of_kind(memory(json!({ "overcommitPercent": 101 })))), percent);
        assert_eq!(on.create(&of_kind(memory(json!({ "overcommitPercent": 100 })))), PASSES);
        assert_eq!(on.create(&of_kind(memory(json!({ "overcommitPercent": 15, "hugepages": pages })))), percent);
        assert_eq!(on.create(&of_kind(memory(json!({ "overcommitPercent": 0, "hugepages": pages })))), PASSES);
        assert_eq!(on.delete(&of_kind(memory(json!({ "overcommitPercent": 101 })))), PASSES);
        let confidential = on.created(&of_kind(spec(json!({ "launchSecurity": { "sev": {} } }))));
        assert!(confidential.warnings[0].contains("spec.launchSecurity"), "{confidential:?}");
        assert_eq!(on.created(&of_kind(json!({}))).warnings, PASSES);
    }
}

#[test]
fn preferences() {
    for (resource, kind) in [
        ("virtualmachinepreferences", "VirtualMachinePreference"),
        ("virtualmachineclusterpreferences", "VirtualMachineClusterPreference"),
    ] {
        let of_kind = |over: Value| preference(merged(json!({ "kind": kind }), &over));
        let on = On::new(resource);
        let cpu = |topology: &str, options: Value| {
            of_kind(spec(json!({ "cpu": { "preferredCPUTopology": topology, "spreadOptions": options } })))
        };
        for topology in ["sockets", "cores", "threads", "spread", "any"] {
            let judged = on.created(&cpu(topology, Value::Null));
            assert_eq!((judged.causes, judged.warnings), (vec![], vec![]), "{topology}");
        }
        for topology in ["preferSockets", "preferCores", "preferThreads", "preferSpread", "preferAny"] {
            let judged = on.created(&cpu(topology, Value::Null));
            assert_eq!(judged.causes, [], "{topology}");
            assert!(judged.warnings[0].contains(topology), "{judged:?}");
        }
        assert_eq!(on.create(&cpu("rings", Value::Null)), ["FieldValueInvalid spec.cpu.preferredCPUTopology"]);
        let across = ["FieldValueInvalid spec.cpu.spreadOptions.across"];
        assert_eq!(on.create(&cpu("spread", json!({ "across": "Rings" }))), across);
        assert_eq!(on.create(&cpu("preferSpread", json!({ "across": "Rings" }))), across);
        assert_eq!(on.create(&cpu("cores", json!({ "across": "Rings" }))), PASSES, "nothing is spread");
        for fine in ["SocketsCores", "CoresThreads", "SocketsCoresThreads"] {
            assert_eq!(on.create(&cpu("spread", json!({ "across": fine }))), PASSES, "{fine}");
        }
        let ratio = ["FieldValueInvalid spec.cpu.spreadOptions.ratio"];
        assert_eq!(on.create(&cpu("spread", json!({ "across": "CoresThreads", "ratio": 4 }))), ratio);
        assert_eq!(on.create(&cpu("spread", json!({ "across": "CoresThreads", "ratio": 2 }))), PASSES);
        assert_eq!(on.create(&cpu("spread", json!({ "across": "SocketsCores", "ratio": 4 }))), PASSES);
        let shared = spec(json!({ "preferSpreadSocketToCoreRatio": 4 }));
        let threads = cpu("spread", json!({ "across": "CoresThreads" }));
        assert_eq!(on.create(&merged(threads, &shared)), ratio, "the shared ratio counts where there is no other");
        assert_eq!(on.delete(&cpu("rings", Value::Null)), PASSES);
    }
}

#[test]
fn plugins_need_their_gate() {
    let said = On::new("plugins").create(&plugin(json!({})));
    assert!(said[0].starts_with("400 Plugins feature gate not enabled"), "{said:?}");
    let open = On::new("plugins").with_gate("Plugins");
    assert_eq!(open.create(&plugin(json!({}))), PASSES);
    let changed = plugin(spec(json!({ "condition": "true" })));
    assert_eq!(On::new("plugins").update(&plugin(json!({})), &changed), PASSES, "those that are there can be changed");
}

#[test]
fn plugins() {
    let domain = |hook: Value| spec(json!({ "domainHooks": [hook] }));
    let cel = json!({ "expression": "vmi.metadata.name" });
    let socket = |path: &str| domain(json!({ "sidecar": { "socketPath": path } }));
    let node = |over: Value| {
        spec(json!({ "nodeHooks": [merged(json!({ "socket": "/s", "permittedHooks": ["PreVMStart"] }), &over)] }))
    };
    On::new("plugins").with_gate("Plugins").check(
        plugin,
        [
            (
                "its condition compiles",
                spec(json!({ "condition": "vmi.metadata.name ==" })),
                "FieldValueInvalid spec.condition",
                spec(json!({ "condition": "vmi.metadata.name == 'web'" })),
            ),
            (
                "a hook's condition compiles",
                domain(json!({ "cel": cel, "condition": "1 +" })),
                "FieldValueInvalid spec.domainHooks[0].condition",
                domain(json!({ "cel": cel, "condition": "1 + 1 == 2" })),
            ),
            (
                "a change compiles",
                domain(json!({ "cel": { "expression": "has(" } })),
                "FieldValueInvalid spec.domainHooks[0].cel.expression",
                domain(json!({ "cel": { "expression": "has(vmi.spec)" } })),
            ),
            (
                "a node hook's condition compiles",
                node(json!({ "condition": ")" })),
                "FieldValueInvalid spec.nodeHooks[0].condition",
                node(json!({ "condition": "true" })),
            ),
            (
                "no .. in a socket's path",
                socket("/run/../sock"),
                "FieldValueInvalid spec.domainHooks[0].sidecar.socketPath",
                socket("/run/sock"),
            ),
            (
                "no . in it",
                socket("./sock"),
                "FieldValueInvalid spec.domainHooks[0].sidecar.socketPath",
                socket("sock"),
            ),
            (
                "no empty part",
                socket("/run//sock"),
                "FieldValueInvalid spec.domainHooks[0].sidecar.socketPath",
                socket("run/sock"),
            ),
            (
                "no end without a name",
                socket("/run/sock/"),
                "FieldValueInvalid spec.domainHooks[0].sidecar.socketPath",
                socket("../sock"),
            ),
            (
                "one way to change the domain",
                domain(json!({})),
                "FieldValueInvalid spec.domainHooks[0]",
                domain(json!({ "cel": cel })),
            ),
            (
                "and no other",
                domain(json!({ "cel": cel, "sidecar": { "socketPath": "/s" } })),
                "FieldValueInvalid spec.domainHooks[0]",
                domain(json!({ "sidecar": { "socketPath": "/s" } })),
            ),
            (
                "known strategies",
                spec(json!({ "failureStrategy": "Panic" })),
                "FieldValueInvalid spec.failureStrategy",
                spec(json!({ "failureStrategy": "Ignore" })),
            ),
            (
                "also for a hook",
                domain(json!({ "cel": cel, "failureStrategy": "Panic" })),
                "FieldValueInvalid spec.domainHooks[0].failureStrategy",
                domain(json!({ "cel": cel, "failureStrategy": "Fail" })),
            ),
            (
                "known steps",
                node(json!({ "permittedHooks": ["PostMigrationTarget", "PreLunch"] })),
                "FieldValueInvalid spec.nodeHooks[0].permittedHooks[1]",
                node(json!({ "permittedHooks": ["PostMigrationTarget"] })),
            ),
        ],
    );
}

#[test]
fn no_expression_is_too_much() {
    let on = On::new("plugins").with_gate("Plugins");
    let create = |expression: String| on.create(&plugin(spec(json!({ "condition": expression }))));
    let refused = ["FieldValueInvalid spec.condition"];
    let nested = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(create(nested(20)), PASSES);
    assert_eq!(create(nested(4_000)), refused);
    assert_eq!(create("[".repeat(5_000)), refused);
    let chained = |length: usize| format!("{}true", "false ? false : ".repeat(length));
    assert_eq!(create(chained(32)), PASSES);
    assert_eq!(create(chained(33)), refused);
    let long = |terms: usize| format!("{}true", "true && ".repeat(terms));
    assert_eq!(create(long(1_000)), PASSES);
    assert_eq!(create(long(1_250)), refused);
}

#[test]
fn a_plugin_that_does_nothing_says_so() {
    let on = On::new("plugins").with_gate("Plugins");
    let empty = on.created(&plugin(spec(json!({ "validatingAdmissionPolicies": null }))));
    assert_eq!(empty.causes, []);
    assert!(empty.warnings[0].contains("does nothing"), "{empty:?}");
    assert_eq!(on.created(&plugin(json!({}))).warnings, PASSES);
}

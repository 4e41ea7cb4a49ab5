//! Affinity and spreading.

use serde_json::{Value, json};

use super::{Row, check, row, spec};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinity(kind: &str, when: &str, terms: Value) -> Value {
    spec(json!({ "affinity": { kind: { when: terms } } }))
}

/// A row whose path lies below these parts.
fn below(rule: &'static str, parts: &[&str], broken: Value, rest: &str, fine: Value) -> Row {
    let error = format!("Invalid spec.affinity.{}{rest}", parts.join("."));
    row(rule, broken, error.leak(), fine)
}

#[test]
fn nodes() {
    let terms = |terms: Value| affinity("nodeAffinity", REQUIRED, json!({ "nodeSelectorTerms": terms }));
    let labels = |expression: Value| terms(json!([{ "matchExpressions": [expression] }]));
    let fields = |expression: Value| terms(json!([{ "matchFields": [expression] }]));
    let preferred = |weight: i32| {
        let expressions = json!([{ "key": "a", "operator": "Exists" }]);
        let term = json!({ "weight": weight, "preference": { "matchExpressions": expressions } });
        affinity("nodeAffinity", PREFERRED, json!([term]))
    };
    let required = ["nodeAffinity", REQUIRED, "nodeSelectorTerms"];
    let of_label = |rule, broken: Value, rest: &str, fine: Value| {
        below(rule, &required, labels(broken), &format!("[0].matchExpressions[0].{rest}"), labels(fine))
    };
    let of_field = |rule, broken: Value, rest: &str| {
        let fine = fields(json!({ "key": "metadata.name", "operator": "In", "values": ["n1"] }));
        below(rule, &required, fields(broken), &format!("[0].matchFields[0].{rest}"), fine)
    };
    let exists = json!({ "key": "disk", "operator": "Exists" });
    check([
        below("some term", &required, terms(json!([])), "", labels(exists.clone())),
        of_label(
            "In needs values",
            json!({ "key": "disk", "operator": "In" }),
            "values",
            json!({ "key": "disk", "operator": "In", "values": ["ssd"] }),
        ),
        of_label(
            "Exists takes no values",
            json!({ "key": "disk", "operator": "Exists", "values": ["ssd"] }),
            "values",
            exists.clone(),
        ),
        of_label(
            "Gt takes one value",
            json!({ "key": "disks", "operator": "Gt", "values": ["1", "2"] }),
            "values",
            json!({ "key": "disks", "operator": "Gt", "values": ["1"] }),
        ),
        of_label("operators are known", json!({ "key": "disk", "operator": "Near" }), "operator", exists.clone()),
        of_label("keys are labels", json!({ "key": "a b", "operator": "Exists" }), "key", exists),
        of_field("one field", json!({ "key": "metadata.name", "operator": "In", "values": ["n1", "n2"] }), "values"),
        of_field("an operator for fields", json!({ "key": "metadata.name", "operator": "Exists" }), "operator"),
        of_field("a field there is", json!({ "key": "spec.x", "operator": "In", "values": ["n1"] }), "key"),
        of_field(
            "a name of a node",
            json!({ "key": "metadata.name", "operator": "In", "values": ["N_1"] }),
            "values[0]",
        ),
        below("weights are 1 to 100", &["nodeAffinity", PREFERRED], preferred(0), "[0].weight", preferred(100)),
        below("not 101", &["nodeAffinity", PREFERRED], preferred(101), "[0].weight", preferred(1)),
    ]);
}

#[test]
fn pods() {
    let term = |over: Value| {
        let mut term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": {} });
        machinery::patch::merge(&mut term, &over);
        term
    };
    let far = |over: Value| affinity("podAntiAffinity", REQUIRED, json!([term(over)]));
    let near = |weight: i32, over: Value| {
        affinity("podAffinity", PREFERRED, json!([{ "weight": weight, "podAffinityTerm": term(over) }]))
    };
    let of_term = |rule, broken: Value, rest: &str, fine: Value| {
        below(rule, &["podAntiAffinity", REQUIRED], far(broken), &format!("[0].{rest}"), far(fine))
    };
    let expression = |operator: &str, values: Value| json!({ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": operator, "values": values }] } });
    let fine = json!({ "labelSelector": { "matchLabels": { "a": "b" } } });
    check([
        of_term("in some topology", json!({ "topologyKey": "" }), "topologyKey", json!({})),
        of_term("that is a label", json!({ "topologyKey": "a b" }), "topologyKey", json!({})),
        of_term(
            "labels of Pods",
            json!({ "labelSelector": { "matchLabels": { "a": "b c" } } }),
            "labelSelector.matchLabels",
            fine.clone(),
        ),
        of_term(
            "keys of labels",
            json!({ "labelSelector": { "matchLabels": { "a b": "c" } } }),
            "labelSelector.matchLabels",
            fine.clone(),
        ),
        of_term(
            "In needs values",
            expression("In", json!([])),
            "labelSelector.matchExpressions[0].values",
            expression("In", json!(["b"])),
        ),
        of_term(
            "of labels",
            expression("NotIn", json!(["b c"])),
            "labelSelector.matchExpressions[0].values[0]",
            expression("NotIn", json!(["b"])),
        ),
        of_term(
            "Exists takes none",
            expression("Exists", json!(["b"])),
            "labelSelector.matchExpressions[0].values",
            expression("Exists", json!([])),
        ),
        of_term(
            "operators are known",
            expression("Gt", json!(["1"])),
            "labelSelector.matchExpressions[0].operator",
            expression("In", json!(["1"])),
        ),
        of_term(
            "labels of namespaces",
            json!({ "namespaceSelector": { "matchLabels": { "a": "b c" } } }),
            "namespaceSelector.matchLabels",
            json!({ "namespaceSelector": {} }),
        ),
        of_term(
            "names of namespaces",
            json!({ "namespaces": ["a.b"] }),
            "namespaces[0]",
            json!({ "namespaces": ["a"] }),
        ),
        of_term(
            "keys of the Pod's own labels",
            json!({ "matchLabelKeys": ["a b"] }),
            "matchLabelKeys[0]",
            json!({ "matchLabelKeys": ["a"] }),
        ),
        of_term(
            "that the selector leaves alone",
            json!({ "labelSelector": { "matchLabels": { "a": "b" } }, "mismatchLabelKeys": ["a"] }),
            "mismatchLabelKeys[0]",
            json!({ "labelSelector": { "matchLabels": { "a": "b" } }, "mismatchLabelKeys": ["c"] }),
        ),
        of_term(
            "if there is one",
            json!({ "labelSelector": null, "matchLabelKeys": ["a"] }),
            "matchLabelKeys",
            json!({ "matchLabelKeys": ["a"] }),
        ),
        below("weights", &["podAffinity", PREFERRED], near(0, json!({})), "[0].weight", near(1, json!({}))),
        below(
            "what is preferred has the same rules",
            &["podAffinity", PREFERRED],
            near(1, json!({ "topologyKey": "" })),
            "[0].podAffinityTerm.topologyKey",
            near(1, json!({})),
        ),
    ]);
}

#[test]
fn spreading() {
    let constraint = |over: Value| {
        let mut constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
        machinery::patch::merge(&mut constraint, &over);
        constraint
    };
    let spread = |over: Value| spec(json!({ "topologySpreadConstraints": [constraint(over)] }));
    let two = |over: Value| spec(json!({ "topologySpreadConstraints": [constraint(json!({})), constraint(over)] }));
    let at = |rest: &str| -> &'static str { format!("Invalid spec.topologySpreadConstraints[0].{rest}").leak() };
    let of = |rule, broken: Value, rest: &str, fine: Value| row(rule, spread(broken), at(rest), spread(fine));
    check([
        of("skew", json!({ "maxSkew": 0 }), "maxSkew", json!({})),
        of("topology", json!({ "topologyKey": "" }), "topologyKey", json!({})),
        of("that is a label", json!({ "topologyKey": "a b" }), "topologyKey", json!({})),
        of(
            "what to do about skew",
            json!({ "whenUnsatisfiable": "Panic" }),
            "whenUnsatisfiable",
            json!({ "whenUnsatisfiable": "ScheduleAnyway" }),
        ),
        of("domains", json!({ "minDomains": 0 }), "minDomains", json!({ "minDomains": 1 })),
        of(
            "domains only if they are insisted on",
            json!({ "minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway" }),
            "minDomains",
            json!({ "minDomains": 1 }),
        ),
        of(
            "nodes by affinity",
            json!({ "nodeAffinityPolicy": "Obey" }),
            "nodeAffinityPolicy",
            json!({ "nodeAffinityPolicy": "Honor" }),
        ),
        of(
            "nodes by taint",
            json!({ "nodeTaintsPolicy": "Obey" }),
            "nodeTaintsPolicy",
            json!({ "nodeTaintsPolicy": "Ignore" }),
        ),
        of(
            "which Pods",
            json!({ "labelSelector": { "matchLabels": { "a": "b c" } } }),
            "labelSelector.matchLabels",
            json!({ "labelSelector": { "matchLabels": { "a": "b" } } }),
        ),
        of(
            "labels of their own",
            json!({ "labelSelector": {}, "matchLabelKeys": ["a b"] }),
            "matchLabelKeys[0]",
            json!({ "labelSelector": {}, "matchLabelKeys": ["a"] }),
        ),
        row(
            "once per topology, which the schema tells first",
            two(json!({ "maxSkew": 2 })),
            "Duplicate spec.topologySpreadConstraints[1]",
            two(json!({ "whenUnsatisfiable": "ScheduleAnyway" })),
        ),
    ]);
}

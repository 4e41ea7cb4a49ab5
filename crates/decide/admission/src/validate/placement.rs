//! Affinity and topology spread: the same rules as for Pods, since they are copied to one.
//!
//! Kubernetes distinguishes missing, forbidden and invalid values; clients of a VMI get one cause for all of them.

use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery::field::{Cause, Path};
use machinery::names::{check_dns1123_label, check_dns1123_subdomain, check_label_value, check_qualified_name};

use super::findings::Findings;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
const NODE_INCLUSION: [&str; 2] = ["Honor", "Ignore"];

pub(super) fn check(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    if let Some(affinity) = &spec.affinity {
        check_affinity(found, &field.child("affinity"), affinity);
    }
    let spread = field.child("topologySpreadConstraints");
    let constraints = &spec.topology_spread_constraints;
    for (index, constraint) in constraints.iter().enumerate() {
        spreading(found, &spread.index(index), constraint, &constraints[index + 1..]);
    }
}

fn check_affinity(found: &mut Findings, field: &Path<'_>, affinity: &Affinity) {
    if let Some(node) = &affinity.node_affinity {
        node_affinity(found, &field.child("nodeAffinity"), node);
    }
    if let Some(pods) = &affinity.pod_affinity {
        let field = field.child("podAffinity");
        let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
        pod_affinity(found, &field, required.unwrap_or_default(), preferred.unwrap_or_default());
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        let field = field.child("podAntiAffinity");
        let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
        pod_affinity(found, &field, required.unwrap_or_default(), preferred.unwrap_or_default());
    }
}

fn node_affinity(found: &mut Findings, field: &Path<'_>, affinity: &NodeAffinity) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let field = field.child(REQUIRED);
        let terms = field.child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            found.refuse(Cause::Invalid, &terms, "Required value: must have at least one node selector term");
        }
        for (index, one) in required.node_selector_terms.iter().enumerate() {
            term(found, &terms.index(index), one);
        }
    }
    let field = field.child(PREFERRED);
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default();
    for (index, one) in preferred.iter().enumerate() {
        let field = field.index(index);
        weight(found, &field, one.weight);
        term(found, &field.child("preference"), &one.preference);
    }
}

fn term(found: &mut Findings, field: &Path<'_>, term: &NodeSelectorTerm) {
    let labels = field.child("matchExpressions");
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        node_labels(found, &labels.index(index), one);
    }
    let fields = field.child("matchFields");
    for (index, one) in term.match_fields.iter().flatten().enumerate() {
        node_fields(found, &fields.index(index), one);
    }
}

fn node_labels(found: &mut Findings, field: &Path<'_>, requirement: &NodeSelectorRequirement) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let message = "Required value: must be a single value when operator is Gt or Lt";
                found.refuse(Cause::Invalid, &field.child("values"), message);
            }
        }
        operator => number_of_values(found, field, operator, values),
    }
    label_key(found, &field.child("key"), &requirement.key);
}

/// Nodes can only be selected by the field `metadata.name`.
fn node_fields(found: &mut Findings, field: &Path<'_>, requirement: &NodeSelectorRequirement) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let values_field = field.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            found.refuse(
                Cause::Invalid,
                &values_field,
                "Required value: must be one value when operator is In or NotIn",
            );
        }
        operator => found.invalid(&field.child("operator"), operator, "not a valid selector operator"),
    }
    if requirement.key != "metadata.name" {
        return found.invalid(&field.child("key"), requirement.key.as_str(), "not a valid field selector key");
    }
    for (index, value) in values.iter().enumerate() {
        found.name(&values_field.index(index), value, &check_dns1123_subdomain(value));
    }
}

fn pod_affinity(
    found: &mut Findings,
    field: &Path<'_>,
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
) {
    let required_field = field.child(REQUIRED);
    for (index, term) in required.iter().enumerate() {
        pod_term(found, &required_field.index(index), term);
    }
    let preferred_field = field.child(PREFERRED);
    for (index, one) in preferred.iter().enumerate() {
        let field = preferred_field.index(index);
        weight(found, &field, one.weight);
        pod_term(found, &field.child("podAffinityTerm"), &one.pod_affinity_term);
    }
}

fn pod_term(found: &mut Findings, field: &Path<'_>, term: &PodAffinityTerm) {
    label_selector(found, &field.child("labelSelector"), term.label_selector.as_ref());
    label_selector(found, &field.child("namespaceSelector"), term.namespace_selector.as_ref());
    let namespaces = field.child("namespaces");
    for (index, namespace) in term.namespaces.iter().flatten().enumerate() {
        found.name(&namespaces.index(index), namespace, &check_dns1123_label(namespace));
    }
    label_keys(found, &field.child("matchLabelKeys"), term.match_label_keys.as_deref(), term.label_selector.as_ref());
    let mismatch = term.mismatch_label_keys.as_deref();
    label_keys(found, &field.child("mismatchLabelKeys"), mismatch, term.label_selector.as_ref());
    topology_key(found, field, &term.topology_key);
}

fn spreading(
    found: &mut Findings,
    field: &Path<'_>,
    constraint: &TopologySpreadConstraint,
    others: &[TopologySpreadConstraint],
) {
    if constraint.max_skew <= 0 {
        found.invalid(&field.child("maxSkew"), constraint.max_skew, "must be greater than zero");
    }
    topology_key(found, field, &constraint.topology_key);
    let when = constraint.when_unsatisfiable.as_str();
    if ![DO_NOT_SCHEDULE, "ScheduleAnyway"].contains(&when) {
        found.invalid(&field.child("whenUnsatisfiable"), when, "must be DoNotSchedule or ScheduleAnyway");
    }
    if let Some(domains) = constraint.min_domains {
        if domains <= 0 {
            found.invalid(&field.child("minDomains"), domains, "must be greater than zero");
        }
        if when != DO_NOT_SCHEDULE {
            found.invalid(&field.child("minDomains"), domains, "can only be used with whenUnsatisfiable DoNotSchedule");
        }
    }
    let policies = [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ];
    for (name, policy) in policies {
        if let Some(policy) = policy.as_deref().filter(|policy| !NODE_INCLUSION.contains(policy)) {
            found.invalid(&field.child(name), policy, "must be Honor or Ignore");
        }
    }
    label_selector(found, &field.child("labelSelector"), constraint.label_selector.as_ref());
    let keys = constraint.match_label_keys.as_deref();
    label_keys(found, &field.child("matchLabelKeys"), keys, constraint.label_selector.as_ref());
    let same = |other: &TopologySpreadConstraint| {
        other.topology_key == constraint.topology_key && other.when_unsatisfiable == constraint.when_unsatisfiable
    };
    if others.iter().any(same) {
        let message = format!("Duplicate value: {{{}, {when}}}", constraint.topology_key);
        found.refuse(Cause::Invalid, &field.child("{topologyKey, whenUnsatisfiable}"), message);
    }
}

/// Labels whose values the scheduler takes from the Pod itself. They extend a selector, so there must be one, and it
/// must not contain them already.
fn label_keys(found: &mut Findings, field: &Path<'_>, keys: Option<&[String]>, selector: Option<&LabelSelector>) {
    let Some(keys) = keys.filter(|keys| !keys.is_empty()) else { return };
    let Some(selector) = selector else {
        return found.refuse(Cause::Invalid, field, "Forbidden: must not be specified when labelSelector is not set");
    };
    for (index, key) in keys.iter().enumerate() {
        let at = field.index(index);
        label_key(found, &at, key);
        let listed = selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key))
            || selector.match_expressions.iter().flatten().any(|expression| expression.key == *key);
        if listed {
            found.invalid(&at, key.as_str(), "exists in both matchLabelKeys and labelSelector");
        }
    }
}

fn label_selector(found: &mut Findings, field: &Path<'_>, selector: Option<&LabelSelector>) {
    let Some(selector) = selector else { return };
    let labels = field.child("matchLabels");
    for (key, value) in selector.match_labels.iter().flatten() {
        label_key(found, &labels, key);
        found.name(&labels, value, &check_label_value(value));
    }
    let expressions = field.child("matchExpressions");
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let field = expressions.index(index);
        let values = expression.values.as_deref().unwrap_or_default();
        number_of_values(found, &field, &expression.operator, values);
        label_key(found, &field.child("key"), &expression.key);
        let values_field = field.child("values");
        for (index, value) in values.iter().enumerate() {
            found.name(&values_field.index(index), value, &check_label_value(value));
        }
    }
}

fn number_of_values(found: &mut Findings, field: &Path<'_>, operator: &str, values: &[String]) {
    let at = field.child("values");
    match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                let message = "Required value: must be specified when operator is In or NotIn";
                found.refuse(Cause::Invalid, &at, message);
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let message = "Forbidden: may not be specified when operator is Exists or DoesNotExist";
                found.refuse(Cause::Invalid, &at, message);
            }
        }
        operator => found.invalid(&field.child("operator"), operator, "not a valid selector operator"),
    }
}

fn topology_key(found: &mut Findings, field: &Path<'_>, key: &str) {
    let at = field.child("topologyKey");
    if key.is_empty() {
        found.refuse(Cause::Invalid, &at, "Required value: can not be empty");
    } else {
        label_key(found, &at, key);
    }
}

fn label_key(found: &mut Findings, field: &Path<'_>, key: &str) {
    found.name(field, key, &check_qualified_name(key));
}

fn weight(found: &mut Findings, field: &Path<'_>, weight: i32) {
    if !(1..=100).contains(&weight) {
        found.invalid(&field.child("weight"), weight, "must be in the range 1-100");
    }
}

#[cfg(test)]
mod tests {
    use api::v1::VirtualMachineInstanceSpec;
    use k8s_openapi::api::core::v1::TopologySpreadConstraint;
    use machinery::field::Path;

    use super::super::findings::Findings;

    /// The schema detects duplicates before this rule, so no object that it has validated gets here.
    #[test]
    fn a_topology_is_spread_over_once() {
        let constraint = |when: &str| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "zone".to_owned(),
            when_unsatisfiable: when.to_owned(),
            ..TopologySpreadConstraint::default()
        };
        let told = |one: &str, other: &str| {
            let topology_spread_constraints = vec![constraint(one), constraint(other)];
            let spec = VirtualMachineInstanceSpec { topology_spread_constraints, ..Default::default() };
            let mut found = Findings::default();
            super::check(&mut found, &Path::new("spec"), &spec);
            found.into_errors().iter().map(|error| error.field.to_string()).collect::<Vec<_>>()
        };
        let twice = ["spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}"];
        assert_eq!(told("DoNotSchedule", "DoNotSchedule"), twice);
        assert_eq!(told("DoNotSchedule", "ScheduleAnyway"), Vec::<String>::new());
    }
}

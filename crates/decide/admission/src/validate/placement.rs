//! Node selector, affinity and spreading: the rules a Pod's own have, because a Pod is what they end up in.

use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use machinery::field::{FieldError, FieldPath};
use machinery::names::{check_label_value, check_qualified_name};

use super::names;

const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const WHEN_UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

pub(super) fn check(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in &spec.node_selector {
        let field = field.child("nodeSelector").key(key);
        errors.extend(names(&field, key, check_qualified_name(key)));
        errors.extend(names(&field, value, check_label_value(value)));
    }
    let affinity_field = field.child("affinity");
    if let Some(affinity) = &spec.affinity {
        if let Some(node) = &affinity.node_affinity {
            errors.extend(node_affinity(&affinity_field.child("nodeAffinity"), node));
        }
        if let Some(pods) = &affinity.pod_affinity {
            let field = affinity_field.child("podAffinity");
            let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            errors.extend(pod_affinity(&field, required, preferred));
        }
        if let Some(pods) = &affinity.pod_anti_affinity {
            let field = affinity_field.child("podAntiAffinity");
            let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            errors.extend(pod_affinity(&field, required, preferred));
        }
    }
    let spread = field.child("topologySpreadConstraints");
    for (index, constraint) in spec.topology_spread_constraints.iter().enumerate() {
        errors.extend(spreading(&spread.index(index), constraint));
    }
    errors
}

fn node_affinity(field: &FieldPath, affinity: &NodeAffinity) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let field = field.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            errors.push(FieldError::required(field.clone(), "must have at least one node selector term"));
        }
        for (index, one) in required.node_selector_terms.iter().enumerate() {
            errors.extend(term(&field.index(index), one));
        }
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default();
    let field = field.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, one) in preferred.iter().enumerate() {
        errors.extend(weight(&field.index(index), one.weight));
        errors.extend(term(&field.index(index).child("preference"), &one.preference));
    }
    errors
}

fn term(field: &FieldPath, term: &NodeSelectorTerm) -> Vec<FieldError> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let field = field.child("matchExpressions");
    expressions.iter().enumerate().flat_map(|(index, one)| requirement(&field.index(index), one)).collect()
}

fn requirement(field: &FieldPath, requirement: &NodeSelectorRequirement) -> Vec<FieldError> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let mut errors = names(&field.child("key"), &requirement.key, check_qualified_name(&requirement.key));
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(field.child("values"), "must be specified when operator is In or NotIn"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when operator is Exists or DoesNotExist";
            errors.push(FieldError::forbidden(field.child("values"), detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors
                .push(FieldError::required(field.child("values"), "must be a single value when operator is Gt or Lt"));
        }
        operator if !OPERATORS.contains(&operator) => {
            errors.push(FieldError::invalid(field.child("operator"), operator, "not a valid selector operator"));
        }
        _ => {}
    }
    errors
}

fn pod_affinity(
    field: &FieldPath,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let required_field = field.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in required.unwrap_or_default().iter().enumerate() {
        errors.extend(topology_key(&required_field.index(index), &term.topology_key));
    }
    let preferred_field = field.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, one) in preferred.unwrap_or_default().iter().enumerate() {
        let field = preferred_field.index(index);
        errors.extend(weight(&field, one.weight));
        errors.extend(topology_key(&field.child("podAffinityTerm"), &one.pod_affinity_term.topology_key));
    }
    errors
}

fn spreading(field: &FieldPath, constraint: &TopologySpreadConstraint) -> Vec<FieldError> {
    let mut errors = topology_key(field, &constraint.topology_key);
    if constraint.max_skew <= 0 {
        errors.push(FieldError::invalid(field.child("maxSkew"), constraint.max_skew, "must be greater than zero"));
    }
    let when = constraint.when_unsatisfiable.as_str();
    if !WHEN_UNSATISFIABLE.contains(&when) {
        errors.push(FieldError::not_supported(field.child("whenUnsatisfiable"), when, &WHEN_UNSATISFIABLE));
    }
    errors
}

fn topology_key(field: &FieldPath, key: &str) -> Vec<FieldError> {
    let field = field.child("topologyKey");
    if key.is_empty() {
        return vec![FieldError::required(field, "can not be empty")];
    }
    names(&field, key, check_qualified_name(key))
}

fn weight(field: &FieldPath, weight: i32) -> Vec<FieldError> {
    if (1..=100).contains(&weight) {
        return Vec::new();
    }
    vec![FieldError::invalid(field.child("weight"), weight, "must be in the range 1-100")]
}

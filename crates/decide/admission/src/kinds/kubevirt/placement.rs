//! Placement of components.
//!
//! KubeVirt validates the placement with a dry run of a Deployment and a DaemonSet. Here the rules of a Pod's placement
//! are applied directly, and report which part is wrong.

use api::config::ClusterConfig;
use api::v1::{NodePlacement, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::Toleration;
use machinery::field::{FieldError, FieldPath};
use machinery::names::{check_label_value, check_qualified_name};

use crate::validate;

const EFFECTS: [&str; 4] = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(field: &FieldPath, placement: &NodePlacement, config: &ClusterConfig) -> Vec<FieldError> {
    let mut errors = affinity(field, placement, config);
    for (key, value) in &placement.node_selector {
        let field = field.child("nodeSelector").key(key);
        errors.extend(invalid(&field, key, check_qualified_name(key)));
        errors.extend(invalid(&field, value, check_label_value(value)));
    }
    for (index, toleration) in placement.tolerations.iter().enumerate() {
        errors.extend(tolerates(&field.child("tolerations").index(index), toleration));
    }
    errors
}

/// A VMI's affinity is copied to its Pod, so its rules are those of a Pod.
fn affinity(field: &FieldPath, placement: &NodePlacement, config: &ClusterConfig) -> Vec<FieldError> {
    let part = field.child("affinity");
    let stand_in = VirtualMachineInstanceSpec { affinity: placement.affinity.clone(), ..Default::default() };
    let mut errors = validate::spec(field, &stand_in, config);
    errors.retain(|error| error.field.as_str().starts_with(part.as_str()));
    errors
}

fn tolerates(field: &FieldPath, toleration: &Toleration) -> Vec<FieldError> {
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, value) = (given(&toleration.key), given(&toleration.value));
    let (operator, effect) = (given(&toleration.operator), given(&toleration.effect));
    let mut errors = Vec::new();
    let mut refuse = |name: &str, value: &str, detail: &str| {
        errors.push(FieldError::invalid(field.child(name), value, detail));
    };
    match operator.as_str() {
        "" | "Equal" if key.is_empty() => refuse("operator", &operator, "must be Exists when the key is empty"),
        "Exists" if !value.is_empty() => refuse("value", &value, "must be empty when the operator is Exists"),
        "" | "Equal" | "Exists" => {}
        _ => refuse("operator", &operator, "must be Equal or Exists"),
    }
    if !EFFECTS.contains(&effect.as_str()) {
        refuse("effect", &effect, "must be NoSchedule, PreferNoSchedule or NoExecute");
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        refuse("effect", &effect, "must be NoExecute when tolerationSeconds is set");
    }
    if !key.is_empty() {
        errors.extend(invalid(&field.child("key"), &key, check_qualified_name(&key)));
    }
    if operator != "Exists" {
        errors.extend(invalid(&field.child("value"), &value, check_label_value(&value)));
    }
    errors
}

/// An error for each problem with a name.
fn invalid(field: &FieldPath, name: &str, problems: Vec<String>) -> impl Iterator<Item = FieldError> {
    problems.into_iter().map(move |problem| FieldError::invalid(field.clone(), name, problem))
}

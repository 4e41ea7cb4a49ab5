//! PodDisruptionBudgets: whether a Pod may be evicted now.
//!
//! In Kubernetes a controller counts Pods into each budget's status, which evictions rely on. Here the Pods are counted
//! when an eviction is requested; without scale subresources, the existing Pods are the expected ones.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery::pod::has_ended;
use machinery::selector::{Labels, Selector};

/// What the budgets of a namespace mean for the eviction of one of its Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// No budget prevents it.
    Free,
    /// Not now; names the budget and explains its numbers.
    Exhausted { name: String, why: String },
    /// More than one budget covers the Pod: it is undefined which counts.
    Ambiguous,
}

/// Decides on the eviction of `pod`; `pods` are those of its namespace.
pub fn judge(pod: &Pod, budgets: &[PodDisruptionBudget], pods: &[Pod]) -> Budget {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if is_leaving(pod) || has_ended(pod) || phase == Some("Pending") {
        return Budget::Free; // it does not count as available anyway
    }
    let mut of_pod = budgets.iter().filter(|budget| covers(budget, pod));
    match (of_pod.next(), of_pod.next()) {
        (None, _) => Budget::Free,
        (Some(budget), None) => judge_one(pod, budget, pods),
        (Some(_), Some(_)) => Budget::Ambiguous,
    }
}

fn judge_one(pod: &Pod, budget: &PodDisruptionBudget, pods: &[Pod]) -> Budget {
    let expected = pods.iter().filter(|pod| covers(budget, pod));
    let (expected, healthy) =
        expected.fold((0, 0), |(all, healthy), pod| (all + 1, healthy + i64::from(is_ready(pod))));
    let needed = needed(budget, expected);
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let unhealthy_may_go = policy == Some("AlwaysAllow") || (needed > 0 && healthy >= needed);
    if healthy > needed || (!is_ready(pod) && unhealthy_may_go) {
        return Budget::Free;
    }
    let name = budget.metadata.name.clone().unwrap_or_default();
    let why = format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
    Budget::Exhausted { name, why }
}

/// An invalid or missing selector covers nothing; an empty one covers all Pods.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let empty = Labels::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    selector
        .and_then(|selector| Selector::from_label_selector(selector).ok())
        .is_some_and(|selector| selector.matches(labels))
}

/// How many Pods have to stay healthy.
fn needed(budget: &PodDisruptionBudget, expected: i64) -> i64 {
    let Some(spec) = &budget.spec else { return 0 };
    match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => scaled(least, expected),
        (None, Some(most)) => (expected - scaled(most, expected)).max(0),
        (None, None) => 0,
    }
}

/// A number, or a percentage of the expected Pods, rounded up. If it is neither, all of them have to stay.
fn scaled(value: &IntOrString, expected: i64) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => match text.strip_suffix('%').and_then(|share| share.parse::<i64>().ok()) {
            Some(share) => (expected * share + 99) / 100,
            None => expected,
        },
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    !is_leaving(pod) && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(ready: bool, phase: &str) -> Pod {
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"labels": {"app": "a"}}, "status": status})).unwrap()
    }

    fn budget(name: &str, over: Value) -> PodDisruptionBudget {
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}});
        for (field, value) in over.as_object().unwrap() {
            spec[field] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_pod_may_go_while_enough_others_are_healthy() {
        let table = [
            (json!({"minAvailable": 1}), 2, true),
            (json!({"minAvailable": 2}), 2, false),
            (json!({"minAvailable": "50%"}), 3, true),
            (json!({"minAvailable": "51%"}), 2, false),
            (json!({"maxUnavailable": 1}), 2, true),
            (json!({"maxUnavailable": 0}), 9, false),
            (json!({"maxUnavailable": "1%"}), 2, true),
            (json!({"minAvailable": "most"}), 2, false),
            (json!({}), 1, true),
        ];
        for (spec, count, free) in table {
            let pods = vec![pod(true, "Running"); count];
            let verdict = judge(&pods[0], &[budget("b", spec.clone())], &pods);
            assert_eq!(verdict == Budget::Free, free, "{spec} with {count}: {verdict:?}");
        }
    }

    #[test]
    fn a_pod_that_serves_nobody_may_go_although_the_budget_is_used_up() {
        let strict = [budget("b", json!({"minAvailable": 1}))];
        let sick = pod(false, "Running");
        assert_eq!(judge(&sick, &strict, &[sick.clone(), pod(true, "Running")]), Budget::Free);
        assert_ne!(judge(&sick, &strict, std::slice::from_ref(&sick)), Budget::Free, "the budget is not met");
        let lenient = [budget("b", json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}))];
        assert_eq!(judge(&sick, &lenient, std::slice::from_ref(&sick)), Budget::Free);
        for phase in ["Pending", "Succeeded", "Failed"] {
            assert_eq!(judge(&pod(true, phase), &strict, &[]), Budget::Free, "{phase}");
        }
    }

    #[test]
    fn two_budgets_for_one_pod_are_ambiguous_and_others_do_not_count() {
        let healthy = pod(true, "Running");
        let two = [budget("b", json!({"minAvailable": 0})), budget("c", json!({"minAvailable": 0}))];
        assert_eq!(judge(&healthy, &two, std::slice::from_ref(&healthy)), Budget::Ambiguous);
        let other = [budget("b", json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "b"}}}))];
        assert_eq!(judge(&healthy, &other, std::slice::from_ref(&healthy)), Budget::Free);
    }
}

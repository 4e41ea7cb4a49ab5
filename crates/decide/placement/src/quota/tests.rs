use serde_json::{Value, json};

use super::*;

fn quota(name: &str, spec: Value) -> ResourceQuota {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn pod(resources: Value, phase: &str) -> Pod {
    let spec = json!({"containers": [{"name": "compute", "image": "x", "resources": resources}]});
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}})).unwrap()
}

fn launcher(memory: &str) -> Pod {
    pod(json!({"requests": {"cpu": "100m", "memory": memory}}), "Running")
}

#[test]
fn a_pod_beyond_a_quota_is_refused_in_kubernetes_words() {
    let pods = [launcher("300Mi"), launcher("300Mi")];
    let none: Option<&str> = None;
    let table = [
        (json!({"pods": "3"}), none),
        (json!({"pods": "2"}), Some("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")),
        (
            json!({"count/pods": "2"}),
            Some("exceeded quota: q, requested: count/pods=1, used: count/pods=2, limited: count/pods=2"),
        ),
        (json!({"requests.memory": "900Mi", "cpu": "300m"}), none),
        (
            json!({"requests.memory": "800Mi", "cpu": "200m"}),
            Some(
                "exceeded quota: q, requested: cpu=100m,requests.memory=300Mi, used: cpu=200m,requests.memory=600Mi, \
                 limited: cpu=200m,requests.memory=800Mi",
            ),
        ),
        (json!({"limits.cpu": "9"}), Some("failed quota: q: must specify limits.cpu for: compute")),
        (json!({"services": "0"}), none),
    ];
    for (hard, expected) in table {
        let quotas = [quota("q", json!({"hard": hard}))];
        assert_eq!(exceeded(&launcher("300Mi"), &quotas, &pods).as_deref(), expected, "{hard}");
    }
}

#[test]
fn the_first_quota_by_name_that_is_exceeded_speaks() {
    let quotas = [quota("b", json!({"hard": {"pods": "0"}})), quota("a", json!({"hard": {"pods": "0"}}))];
    let said = exceeded(&launcher("1Mi"), &quotas, &[]).unwrap();
    assert!(said.starts_with("exceeded quota: a, "), "{said}");
}

#[test]
fn pods_that_have_ended_count_only_as_objects() {
    let pods = [pod(json!({"requests": {"memory": "1Gi"}}), "Succeeded"), launcher("300Mi")];
    let quota = quota("q", json!({"hard": {"pods": "9", "count/pods": "9", "memory": "9Gi"}}));
    let used: Vec<String> = used(&quota, &pods, &[]).iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    assert_eq!(used, ["count/pods=2", "memory=300Mi", "pods=1"]);
}

#[test]
fn a_scope_limits_whom_a_quota_speaks_of() {
    let full = |scope: Value| quota("q", json!({"hard": {"pods": "0"}, "scopes": scope}));
    let classes = |operator: &str, values: Value| {
        let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        quota("q", json!({"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}}))
    };
    let mut best_effort = pod(json!({}), "Pending");
    best_effort.status.as_mut().unwrap().qos_class = Some("BestEffort".into());
    best_effort.spec.as_mut().unwrap().priority_class_name = Some("high".into());
    let table = [
        (full(json!(["BestEffort"])), true),
        (full(json!(["NotBestEffort"])), false),
        (full(json!(["NotTerminating"])), true),
        (full(json!(["BestEffort", "Terminating"])), false),
        (full(json!(["CrossNamespacePodAffinity"])), false),
        (classes("In", json!(["high"])), true),
        (classes("In", json!(["low"])), false),
        (classes("NotIn", json!(["low"])), true),
        (classes("Exists", json!([])), true),
        (classes("DoesNotExist", json!([])), false),
    ];
    for (quota, refused) in table {
        let said = exceeded(&best_effort, std::slice::from_ref(&quota), &[]);
        assert_eq!(said.is_some(), refused, "{:?}", quota.spec);
    }
}

fn claim(name: &str, class: &str, size: &str) -> PersistentVolumeClaim {
    let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": size}}});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[test]
fn a_claim_beyond_a_quota_is_refused_in_kubernetes_words() {
    let claims = [claim("a", "local", "3Gi"), claim("b", "other", "1Gi")];
    let none: Option<&str> = None;
    let table = [
        (json!({"requests.storage": "6Gi", "persistentvolumeclaims": "3", "pods": "0"}), none),
        (
            json!({"requests.storage": "5Gi"}),
            Some(
                "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=4Gi, limited: requests.storage=5Gi",
            ),
        ),
        (
            json!({"count/persistentvolumeclaims": "2"}),
            Some(
                "exceeded quota: q, requested: count/persistentvolumeclaims=1, used: count/persistentvolumeclaims=2, \
                 limited: count/persistentvolumeclaims=2",
            ),
        ),
        (json!({"local.storageclass.storage.k8s.io/requests.storage": "5Gi"}), none),
        (json!({"other.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}), none),
        (
            json!({"local.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}),
            Some(
                "exceeded quota: q, requested: local.storageclass.storage.k8s.io/persistentvolumeclaims=1, used: \
                 local.storageclass.storage.k8s.io/persistentvolumeclaims=1, limited: \
                 local.storageclass.storage.k8s.io/persistentvolumeclaims=1",
            ),
        ),
    ];
    for (hard, expected) in table {
        let quotas = [quota("q", json!({"hard": hard}))];
        assert_eq!(exceeded_by_claim(&claim("c", "local", "2Gi"), &quotas, &claims).as_deref(), expected, "{hard}");
    }
    let quotas = [quota("q", json!({"hard": {"requests.storage": "5Gi"}}))];
    assert_eq!(
        exceeded_by_claim(&claim("a", "local", "4Gi"), &quotas, &claims),
        None,
        "its old size is no longer used"
    );
    assert!(exceeded_by_claim(&claim("a", "local", "5Gi"), &quotas, &claims).is_some());
    let scoped = [quota("q", json!({"hard": {"persistentvolumeclaims": "0"}, "scopes": ["BestEffort"]}))];
    assert_eq!(exceeded_by_claim(&claim("c", "local", "2Gi"), &scoped, &claims), None, "it is about Pods");
    let used: Vec<String> =
        used(&quota("q", json!({"hard": {"requests.storage": "9Gi", "persistentvolumeclaims": "9"}})), &[], &claims)
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
    assert_eq!(used, ["persistentvolumeclaims=2", "requests.storage=4Gi"]);
}

//! Accessors for the parts of a Pod's spec that decisions and container setup need.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

use crate::RestartPolicy;

/// Init containers first.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// The restart policy; Kubernetes defaults to Always.
pub fn restart_policy(spec: &PodSpec) -> RestartPolicy {
    match spec.restart_policy.as_deref() {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// A container's limit of a resource.
pub fn limit<'a>(container: &'a Container, resource: &str) -> Option<&'a Wire> {
    container.resources.as_ref()?.limits.as_ref()?.get(resource)
}

/// A limit without a request counts as a request.
pub fn request<'a>(container: &'a Container, resource: &str) -> Option<&'a Wire> {
    let asked = container.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get(resource));
    asked.or_else(|| limit(container, resource))
}

/// Guaranteed, Burstable or BestEffort, by the rules of Kubernetes.
pub fn qos_class(spec: &PodSpec) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let mut guaranteed = true;
    let mut best_effort = true;
    for container in containers(spec) {
        for resource in COUNTED {
            let (request, limit) = (request(container, resource), limit(container, resource));
            best_effort &= request.is_none();
            let equal = match (request.map(Quantity::try_from), limit.map(Quantity::try_from)) {
                (Some(Ok(request)), Some(Ok(limit))) => request == limit && !limit.is_zero(),
                _ => false,
            };
            guaranteed &= equal;
        }
    }
    match (guaranteed, best_effort) {
        (true, _) => "Guaranteed",
        (_, true) => "BestEffort",
        _ => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(containers: Value) -> PodSpec {
        serde_json::from_value(json!({ "containers": containers })).unwrap()
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let cases = [
            ("Guaranteed", json!([{"name": "a", "resources": full}])),
            (
                "Guaranteed",
                json!([{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}}]),
            ),
            ("Burstable", json!([{"name": "a", "resources": full}, {"name": "b"}])),
            ("Burstable", json!([{"name": "a", "resources": {"requests": {"cpu": "1m"}}}])),
            ("Burstable", json!([{"name": "a", "resources": {"limits": {"memory": "1Gi"}}}])),
            (
                "BestEffort",
                json!([{"name": "a"}, {"name": "b", "resources": {"limits": {"devices.kubevirt.io/tun": "1"}}}]),
            ),
        ];
        for (class, containers) in cases {
            assert_eq!(qos_class(&spec(containers.clone())), class, "{containers}");
        }
    }
}

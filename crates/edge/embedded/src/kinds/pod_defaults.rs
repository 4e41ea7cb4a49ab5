//! Defaults of Pods.

use serde_json::{Value, json};

use super::{default_member, list_at};

pub(super) fn apply(pod: &mut Value) {
    default_member(pod, "spec", json!({}));
    let spec = &mut pod["spec"];
    default_member(spec, "restartPolicy", "Always");
    default_member(spec, "dnsPolicy", "ClusterFirst");
    default_member(spec, "schedulerName", "default-scheduler");
    default_member(spec, "terminationGracePeriodSeconds", 30);
    default_member(spec, "securityContext", json!({}));
    default_member(spec, "enableServiceLinks", true);
    service_account(spec);
    tolerations(spec);
    for list in ["initContainers", "containers"] {
        elements(spec, list).for_each(container);
    }
    elements(spec, "volumes").for_each(volume);
}

fn elements<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Two fields with the same meaning: the deprecated one is kept in sync.
fn service_account(spec: &mut Value) {
    let name = ["serviceAccountName", "serviceAccount"].iter().find_map(|field| spec[*field].as_str());
    let name = json!(name.unwrap_or("default"));
    spec["serviceAccountName"] = name.clone();
    spec["serviceAccount"] = name;
}

/// By default a Pod stays on an unreachable node for five minutes.
fn tolerations(spec: &mut Value) {
    default_member(spec, "tolerations", json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list_at(spec, "tolerations").iter().any(|toleration| {
            let effect = toleration["effect"].as_str().unwrap_or_default();
            let its_key = toleration["key"].as_str().unwrap_or_default();
            (its_key == key || its_key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated && let Some(list) = spec["tolerations"].as_array_mut() {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

fn container(container: &mut Value) {
    default_member(container, "terminationMessagePath", "/dev/termination-log");
    default_member(container, "terminationMessagePolicy", "File");
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    default_member(container, "imagePullPolicy", policy);
    default_member(container, "resources", json!({}));
    requests_from_limits(&mut container["resources"]);
    elements(container, "ports").for_each(|port| default_member(port, "protocol", "TCP"));
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            default_probe(probe);
        }
    }
    for env in elements(container, "env") {
        if let Some(field) = env.pointer_mut("/valueFrom/fieldRef") {
            default_member(field, "apiVersion", "v1");
        }
    }
}

/// No tag, or `latest`; a digest pins the image.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    default_member(resources, "requests", json!({}));
    for (name, amount) in limits {
        default_member(&mut resources["requests"], &name, amount);
    }
}

fn default_probe(probe: &mut Value) {
    default_member(probe, "timeoutSeconds", 1);
    default_member(probe, "periodSeconds", 10);
    default_member(probe, "successThreshold", 1);
    default_member(probe, "failureThreshold", 3);
    if let Some(http) = probe.get_mut("httpGet") {
        default_member(http, "path", "/");
        default_member(http, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    if map.len() == 1 && map.contains_key("name") {
        map.insert("emptyDir".into(), json!({}));
    }
    for name in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = map.get_mut(name) {
            default_member(source, "defaultMode", 0o644);
        }
    }
    if let Some(path) = map.get_mut("hostPath") {
        default_member(path, "type", "");
    }
    if let Some(image) = map.get_mut("image") {
        let policy = if is_latest(image["reference"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
        default_member(image, "pullPolicy", policy);
    }
}

/// The Pod's QoS class.
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let containers = || list_at(spec, "initContainers").iter().chain(list_at(spec, "containers"));
    let amount =
        |container: &Value, kind: &str, name: &str| container["resources"][kind][name].as_str().map(str::to_owned);
    let names = ["cpu", "memory"];
    let guaranteed = containers().all(|container| {
        names.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    });
    let any = containers().any(|container| {
        names
            .iter()
            .any(|name| amount(container, "limits", name).is_some() || amount(container, "requests", name).is_some())
    });
    match (guaranteed, any) {
        (true, true) => "Guaranteed",
        (_, true) => "Burstable",
        _ => "BestEffort",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaulting_twice_changes_nothing() {
        let mut pod = json!({"spec": {
            "containers": [{
                "name": "a", "image": "x", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}],
        }});
        apply(&mut pod);
        let once = pod.clone();
        apply(&mut pod);
        assert_eq!(pod, once);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(container["livenessProbe"]["httpGet"], json!({"port": 80, "path": "/", "scheme": "HTTP"}));
        assert_eq!(pod["spec"]["volumes"][0], json!({"name": "v", "emptyDir": {}}));
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn images_that_may_move_are_pulled_always() {
        let table = [
            ("a", true),
            ("a:latest", true),
            ("a:1", false),
            ("r:5000/a", true),
            ("r:5000/a:1", false),
            ("a@sha256:0", false),
        ];
        for (image, latest) in table {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let table = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": both, "limits": both}), "Guaranteed"),
            (json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}), "Burstable"),
            (json!({"limits": {"devices.kubevirt.io/tun": "1"}}), "BestEffort"),
        ];
        for (resources, class) in table {
            assert_eq!(qos_class(&pod(resources.clone())), class, "{resources}");
        }
    }
}

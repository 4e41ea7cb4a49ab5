//! Pods.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, at, list_at, pod_defaults, text_at};
use crate::errors::{FieldError, duplicate, forbidden, invalid, not_found, required};
use crate::table::{AGE, Column, NAME, or_none, since};

pub(super) struct Pods;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    namespaced: true,
    status: true,
    generation: true,
    fields: Fields::of::<Pod>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    Column::with("Ready", |pod, _| json!(ready(pod))),
    Column::with("Status", |pod, _| json!(shown_status(pod))),
    Column::with("Restarts", |pod, now| json!(restarts(pod, now))),
    AGE,
    Column::with("IP", |pod, _| or_none(text_at(pod, "status.podIP"))).wide(),
    Column::with("Node", |pod, _| or_none(text_at(pod, "spec.nodeName"))).wide(),
    Column::with("Nominated Node", |pod, _| or_none(text_at(pod, "status.nominatedNodeName"))).wide(),
    Column::with("Readiness Gates", |pod, _| or_none(&readiness_gates(pod))).wide(),
];

impl Strategy for Pods {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn selectable_fields(&self, pod: &Value) -> Vec<(&'static str, String)> {
        const FIELDS: &[&str] = &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ];
        FIELDS.iter().map(|&path| (path, text_at(pod, path).to_owned())).collect()
    }

    fn default(&self, pod: &mut Value) {
        pod_defaults::apply(pod);
    }

    fn prepare_for_create(&self, pod: &mut Value) {
        pod["status"] = json!({"phase": "Pending", "qosClass": pod_defaults::qos_class(pod)});
    }

    fn validate(&self, pod: &Value) -> Vec<FieldError> {
        let mut errors = validate_volumes(pod);
        if list_at(pod, "spec.containers").is_empty() {
            errors.push(required("spec.containers", ""));
        }
        let mut names = BTreeSet::new();
        for list in ["initContainers", "containers"] {
            for (index, container) in list_at(&pod["spec"], list).iter().enumerate() {
                let path = format!("spec.{list}[{index}]");
                let name = text_at(container, "name");
                if name.is_empty() {
                    errors.push(required(&format!("{path}.name"), ""));
                } else if !names.insert(name) {
                    errors.push(duplicate(&format!("{path}.name"), name));
                }
                if text_at(container, "image").is_empty() {
                    errors.push(required(&format!("{path}.image"), ""));
                }
                errors.extend(validate_mounts(pod, container, &path));
            }
        }
        if !matches!(text_at(pod, "spec.restartPolicy"), "Always" | "OnFailure" | "Never") {
            let policy = at(pod, "spec.restartPolicy");
            errors.push(invalid("spec.restartPolicy", policy, "must be Always, OnFailure or Never"));
        }
        errors
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> Vec<FieldError> {
        if frozen(pod, old) == old["spec"] && adds_only(pod, old) {
            return vec![];
        }
        let detail = "pod updates may not change fields other than `spec.containers[*].image`, \
                      `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions \
                      to existing tolerations), `spec.schedulingGates` (only removals)";
        vec![forbidden("spec", detail)]
    }

    /// A running Pod gets its grace period; one that is not bound to a node, or is deleted with 0, is removed at once.
    fn grace_period(&self, pod: &Value, asked: Option<i64>) -> Option<i64> {
        let own = at(pod, "spec.terminationGracePeriodSeconds").as_i64().unwrap_or(30);
        let seconds = asked.unwrap_or(own).max(0);
        let over = machinery::pod::is_final(text_at(pod, "status.phase"));
        (seconds > 0 && !text_at(pod, "spec.nodeName").is_empty() && !over).then_some(seconds)
    }
}

/// The new spec with all mutable fields reset to their old values.
fn frozen(pod: &Value, old: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    for list in ["initContainers", "containers"] {
        let images = list_at(&old["spec"], list).iter().map(|container| &container["image"]);
        for (container, image) in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().zip(images) {
            container["image"] = image.clone();
        }
    }
    if let Some(map) = spec.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            match old["spec"].get(field) {
                Some(value) => map.insert(field.into(), value.clone()),
                None => map.remove(field),
            };
        }
    }
    spec
}

fn adds_only(pod: &Value, old: &Value) -> bool {
    let contains = |list: &[Value], item: &Value| list.contains(item);
    let (tolerations, gates) = ("spec.tolerations", "spec.schedulingGates");
    list_at(old, tolerations).iter().all(|item| contains(list_at(pod, tolerations), item))
        && list_at(pod, gates).iter().all(|item| contains(list_at(old, gates), item))
}

fn validate_volumes(pod: &Value) -> Vec<FieldError> {
    let mut errors = vec![];
    let mut names = BTreeSet::new();
    for (index, volume) in list_at(pod, "spec.volumes").iter().enumerate() {
        let path = format!("spec.volumes[{index}].name");
        match text_at(volume, "name") {
            "" => errors.push(required(&path, "")),
            name if !names.insert(name) => errors.push(duplicate(&path, name)),
            _ => {}
        }
    }
    errors
}

fn validate_mounts(pod: &Value, container: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = vec![];
    for (index, mount) in list_at(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = text_at(mount, "name");
        if !list_at(pod, "spec.volumes").iter().any(|volume| text_at(volume, "name") == name) {
            errors.push(not_found(&format!("{path}.name"), name));
        }
        if text_at(mount, "mountPath").is_empty() {
            errors.push(required(&format!("{path}.mountPath"), ""));
        }
    }
    errors
}

fn ready(pod: &Value) -> String {
    let statuses = list_at(pod, "status.containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == Value::Bool(true)).count();
    format!("{ready}/{}", list_at(pod, "spec.containers").len())
}

/// The status column: the phase, unless a container has a more specific reason.
fn shown_status(pod: &Value) -> String {
    if pod["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return "Terminating".into();
    }
    let phase = match text_at(pod, "status.reason") {
        "" => text_at(pod, "status.phase"),
        reason => reason,
    };
    init_status(pod).or_else(|| container_status(pod)).unwrap_or_else(|| phase.to_owned())
}

fn init_status(pod: &Value) -> Option<String> {
    let total = list_at(pod, "spec.initContainers").len();
    for (index, status) in list_at(pod, "status.initContainerStatuses").iter().enumerate() {
        let terminated = &status["state"]["terminated"];
        let waiting = text_at(status, "state.waiting.reason");
        if terminated["exitCode"] == json!(0) {
            continue;
        }
        if terminated.is_object() {
            return Some(format!("Init:{}", terminated_reason(terminated)));
        }
        if !waiting.is_empty() && waiting != "PodInitializing" {
            return Some(format!("Init:{waiting}"));
        }
        return Some(format!("Init:{index}/{total}"));
    }
    None
}

fn container_status(pod: &Value) -> Option<String> {
    let mut shown = None;
    for status in list_at(pod, "status.containerStatuses").iter().rev() {
        let waiting = text_at(status, "state.waiting.reason");
        let terminated = &status["state"]["terminated"];
        if !waiting.is_empty() {
            shown = Some(waiting.to_owned());
        } else if terminated.is_object() {
            shown = Some(terminated_reason(terminated));
        }
    }
    shown
}

fn terminated_reason(terminated: &Value) -> String {
    match (text_at(terminated, "reason"), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"]),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts(pod: &Value, now: Timestamp) -> String {
    let statuses = list_at(pod, "status.containerStatuses");
    let count: i64 = statuses.iter().filter_map(|status| status["restartCount"].as_i64()).sum();
    let last =
        statuses.iter().map(|status| text_at(status, "lastState.terminated.finishedAt")).max().unwrap_or_default();
    if count > 0 && !last.is_empty() { format!("{count} ({} ago)", since(last, now)) } else { count.to_string() }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list_at(pod, "spec.readinessGates");
    if gates.is_empty() {
        return String::new();
    }
    let conditions = list_at(pod, "status.conditions");
    let met = gates.iter().filter(|gate| {
        conditions.iter().any(|condition| condition["type"] == gate["conditionType"] && condition["status"] == "True")
    });
    format!("{}/{}", met.count(), gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "x:1"}]}});
        Pods.default(&mut pod);
        pod
    }

    #[test]
    fn names_images_and_mounts_are_checked() {
        let bad = json!({"spec": {
            "restartPolicy": "Sometimes",
            "containers": [{"name": "a", "image": "x"}, {"name": "a", "volumeMounts": [{"name": "v"}]}],
            "volumes": [{"name": "w"}, {"name": "w"}],
        }});
        let fields: Vec<String> = Pods.validate(&bad).into_iter().map(|error| error.field.to_string()).collect();
        assert_eq!(
            fields,
            [
                "spec.volumes[1].name",
                "spec.containers[1].name",
                "spec.containers[1].image",
                "spec.containers[1].volumeMounts[0].name",
                "spec.containers[1].volumeMounts[0].mountPath",
                "spec.restartPolicy",
            ]
        );
        assert!(Pods.validate(&pod()).is_empty());
    }

    #[test]
    fn an_update_may_change_the_image_and_add_tolerations_only() {
        let old = pod();
        let changed = |change: fn(&mut Value)| {
            let mut pod = pod();
            change(&mut pod["spec"]);
            Pods.validate_update(&pod, &old).is_empty()
        };
        assert!(changed(|spec| spec["containers"][0]["image"] = json!("x:2")));
        assert!(changed(|spec| spec["activeDeadlineSeconds"] = json!(5)));
        assert!(changed(|spec| spec["tolerations"].as_array_mut().unwrap().push(json!({"key": "k"}))));
        assert!(!changed(|spec| spec["tolerations"] = json!([])));
        assert!(!changed(|spec| spec["nodeName"] = json!("n1")));
        assert!(!changed(|spec| spec["containers"][0]["name"] = json!("b")));
    }

    #[test]
    fn grace_belongs_to_pods_on_a_node() {
        let with = |node: &str, phase: &str| json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
        let table = [
            ("unbound goes at once", with("", "Pending"), None, None),
            ("bound gets its own time", with("n1", "Running"), None, Some(30)),
            ("or the time asked for", with("n1", "Running"), Some(5), Some(5)),
            ("zero is now", with("n1", "Running"), Some(0), None),
            ("negative is now", with("n1", "Running"), Some(-1), None),
            ("finished needs no time", with("n1", "Failed"), None, None),
        ];
        for (name, pod, asked, expected) in table {
            assert_eq!(Pods.grace_period(&pod, asked), expected, "{name}");
        }
    }

    #[test]
    fn the_status_column_says_the_most_precise_thing() {
        let status = |status: Value| shown_status(&json!({"spec": {"initContainers": [{}]}, "status": status}));
        assert_eq!(status(json!({"phase": "Running"})), "Running");
        assert_eq!(status(json!({"phase": "Failed", "reason": "Evicted"})), "Evicted");
        let waiting =
            json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]});
        assert_eq!(status(waiting), "ErrImagePull");
        let ended = json!({"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]});
        assert_eq!(status(ended), "ExitCode:3");
        assert_eq!(status(json!({"initContainerStatuses": [{"state": {"running": {}}}]})), "Init:0/1");
        let deleted =
            json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
        assert_eq!(shown_status(&deleted), "Terminating");
    }
}

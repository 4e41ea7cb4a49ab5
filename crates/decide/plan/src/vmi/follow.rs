//! Propagates state from the VMI to its launcher Pod: labels, annotations, and whether the guest is paused.

use std::collections::BTreeMap;

use api::{annotations, conditions, labels, reasons};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::json;

use super::action::Action;
use super::network;
use super::world::World;
use crate::effect::{Part, Patch, Why};
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{meta, pods};

type Map = BTreeMap<String, String>;

/// Annotations that are kept in sync from the VMI to the Pod, including their removal.
const FOLLOWING_ANNOTATIONS: [&str; 2] = [annotations::DESCHEDULER_EVICT, annotations::DESCHEDULER_PREFER_NO_EVICTION];
/// Labels that are kept in sync in the same way.
const FOLLOWING_LABELS: [&str; 2] = [labels::NODE_NAME, labels::OUTDATED_LAUNCHER_IMAGE];
/// Patches the Pod's labels and annotations if they differ. `labels` are those the VMI is about to have: the hand-over
/// updates Pod and VMI in one pass.
pub(super) fn metadata(w: &World, pod: &Pod, labels: &Map) -> Option<Action> {
    let mut new = pod.metadata.clone();
    let pod_labels = new.labels.get_or_insert_default();
    meta::follow(&FOLLOWING_LABELS, &w.settings.follow_labels, labels, pod_labels);
    let own = w.vmi.metadata.annotations.clone().unwrap_or_default();
    let pod_annotations = new.annotations.get_or_insert_default();
    meta::follow(&FOLLOWING_ANNOTATIONS, &w.settings.follow_annotations, &own, pod_annotations);
    hooks(w, pod_annotations);
    if pods::is_ready_for_handover(pod) {
        pod_annotations.insert(annotations::DESCHEDULER_REQUEST_EVICT_ONLY.to_owned(), String::new());
        pod_annotations.extend(network::annotations(w, pod));
        eviction(w, pod_annotations);
    }
    let after = pod_annotations.clone();
    let patch = Guarded::new(&pod.metadata).labels(&new).annotations(&after).build()?;
    Some(Action::patch(Kind::Pod, meta::name(&pod.metadata), patch, Why::shown(reasons::FAILED_POD_PATCH, "")))
}

/// Velero's hooks are set unless the VMI or, if it says nothing, the installation disables them.
fn hooks(w: &World, onto: &mut Map) {
    let own = meta::annotation(&w.vmi.metadata, annotations::SKIP_BACKUP_HOOKS);
    let general = w.config.annotations.get(annotations::SKIP_BACKUP_HOOKS).map(String::as_str);
    if own.or(general).is_some_and(is_truthy) {
        onto.retain(|key, _| !render::VELERO_KEYS.contains(&key.as_str()));
    } else {
        onto.extend(render::velero_annotations(&w.vmi));
    }
}

fn is_truthy(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn eviction(w: &World, onto: &mut Map) {
    let node = w.vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref()).unwrap_or_default();
    if node.is_empty() {
        onto.remove(annotations::DESCHEDULER_EVICTION_IN_PROGRESS);
    } else {
        onto.insert(annotations::DESCHEDULER_EVICTION_IN_PROGRESS.to_owned(), "true".to_owned());
    }
}

/// The Pod is ready only while the guest is not paused. The readiness gate has no effect before the containers run, so
/// the first write waits for them.
pub(super) fn pause_gate(w: &World, pod: &Pod) -> Option<Action> {
    let paused = w.vmi.has_condition(conditions::PAUSED);
    let gate = pods::condition(pod, conditions::VIRTUAL_MACHINE_UNPAUSED).map(|c| c.status.as_str());
    let (status, reason, message) = match (paused, gate) {
        (true, Some("True")) => ("False", reasons::PAUSED, "the guest is paused"),
        (false, gate) if gate != Some("True") && pods::is_ready_for_handover(pod) => {
            ("True", reasons::NOT_PAUSED, "the guest is not paused")
        }
        _ => return None,
    };
    let condition = PodCondition {
        type_: conditions::VIRTUAL_MACHINE_UNPAUSED.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(w.now.clone()),
        ..PodCondition::default()
    };
    // A merge, so that conditions of other writers stay.
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    Some(Action::Patch {
        kind: Kind::Pod,
        namespace: None,
        name: meta::name(&pod.metadata).to_owned(),
        part: Part::Status,
        patch: Patch::Strategic(patch),
        why: Why::shown(reasons::FAILED_POD_PATCH, message),
    })
}

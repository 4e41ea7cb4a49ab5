//! Creating, marking and deleting the launcher Pod.

use std::collections::BTreeMap;

use api::{annotations, conditions, labels, reasons};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::action::Action;
use super::world::World;
use crate::guard::Guarded;
use crate::{Note, SyncError, meta, pods};

/// Annotations of the instance that follow it onto the Pod, and off it again.
const FOLLOWING_ANNOTATIONS: [&str; 2] =
    ["descheduler.alpha.kubernetes.io/evict", "descheduler.alpha.kubernetes.io/prefer-no-eviction"];
/// Labels of the instance that do the same.
const FOLLOWING_LABELS: [&str; 2] = [labels::NODE_NAME, labels::OUTDATED_LAUNCHER_IMAGE];

/// What is done about the Pod in this pass.
#[derive(Default)]
pub(super) struct Sync {
    pub(super) actions: Vec<Action>,
    /// Something that can fail is among the actions: an earlier failure is not over before they have succeeded.
    pub(super) attempts: bool,
    /// A Pod is among them.
    pub(super) creates: bool,
    pub(super) error: Option<SyncError>,
}

impl Sync {
    fn attempt(actions: Vec<Action>) -> Self {
        Self { attempts: !actions.is_empty(), actions, ..Self::default() }
    }

    fn error(actions: Vec<Action>, error: SyncError) -> Self {
        Self { actions, error: Some(error), ..Self::default() }
    }
}

pub(super) fn sync(w: &World) -> Sync {
    if let Some(error) = &w.failed {
        let note = Action::Note(Note::warning(&error.reason, error.message.clone()));
        return Sync::error(vec![note], error.clone());
    }
    if w.vmi.is_marked_for_deletion() {
        return Sync::attempt(w.pods.iter().flat_map(|pod| delete(pod)).collect());
    }
    if w.vmi.is_final() {
        return Sync::default();
    }
    match w.current_pod() {
        None if w.vmi.is_unprocessed() => create(w),
        None => Sync::default(),
        Some(pod) => Sync::attempt(mark(w, pod)),
    }
}

fn create(w: &World) -> Sync {
    match render::launcher_pod(&w.vmi, &w.config, &render::Context::default()) {
        Ok(pod) => {
            let message = format!("Created virtual machine pod {}", meta::name(&pod.metadata));
            let create = Action::CreatePod { pod: Box::new(pod), because: "the instance has no launcher Pod yet" };
            let note = Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message));
            Sync { creates: true, ..Sync::attempt(vec![create, note]) }
        }
        Err(error) => {
            let error = SyncError::caused_by(reasons::FAILED_CREATE, &error);
            let note = (!w.shows(&error)).then(|| Action::Note(Note::warning(&error.reason, error.message.clone())));
            Sync::error(note.into_iter().collect(), error)
        }
    }
}

/// Deletes a Pod unless that was done. One that has ended while going is deleted once more without grace: nobody may be
/// left on its node to finish the job.
fn delete(pod: &Pod) -> Vec<Action> {
    let (name, uid) = (meta::name(&pod.metadata).to_owned(), meta::uid(&pod.metadata).to_owned());
    let graceful = pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    let (at_once, because) = match (pods::is_deleting(pod), pods::is_down(pod)) {
        (false, _) => (false, "the instance is being deleted"),
        (true, true) if graceful => (true, "the instance is being deleted and the Pod has ended"),
        (true, _) => return vec![],
    };
    let note = Note::normal(reasons::SUCCESSFUL_DELETE, format!("Deleted virtual machine pod {name}"));
    vec![Action::DeletePod { name, uid, at_once, because }, Action::Note(note)]
}

/// Keeps the Pod's metadata and its pause gate in step with the instance.
fn mark(w: &World, pod: &Pod) -> Vec<Action> {
    if pods::is_down_or_going_down(pod) {
        return vec![];
    }
    let mut actions = vec![];
    actions.extend(pause_gate(w, pod));
    if pods::is_ready_for_handover(pod) {
        actions.extend(metadata(w, pod));
    }
    actions
}

/// The Pod counts as ready only while the guest is not paused.
fn pause_gate(w: &World, pod: &Pod) -> Option<Action> {
    let paused = w.vmi.has_condition(conditions::PAUSED);
    let gate = pods::condition(pod, conditions::VIRTUAL_MACHINE_UNPAUSED).map(|c| c.status.as_str());
    let (status, reason, message) = match (paused, gate) {
        (true, Some("True")) => ("False", reasons::PAUSED, "the guest is paused"),
        (false, gate) if gate != Some("True") => ("True", reasons::NOT_PAUSED, "the guest is not paused"),
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
    let (name, uid) = (meta::name(&pod.metadata).to_owned(), meta::uid(&pod.metadata).to_owned());
    Some(Action::SetPodCondition { name, uid, condition: Box::new(condition) })
}

fn metadata(w: &World, pod: &Pod) -> Option<Action> {
    let mut new = pod.metadata.clone();
    let annotations = new.annotations.get_or_insert_default();
    follow(&FOLLOWING_ANNOTATIONS, w.vmi.metadata.annotations.as_ref(), annotations);
    annotations.insert(annotations::DESCHEDULER_REQUEST_EVICT_ONLY.to_owned(), String::new());
    let evacuating = w.vmi.status.as_ref().and_then(|s| s.evacuation_node_name.as_deref()).unwrap_or_default();
    if evacuating.is_empty() {
        annotations.remove(annotations::DESCHEDULER_EVICTION_IN_PROGRESS);
    } else {
        annotations.insert(annotations::DESCHEDULER_EVICTION_IN_PROGRESS.to_owned(), "true".to_owned());
    }
    let annotations = annotations.clone();
    follow(&FOLLOWING_LABELS, w.vmi.metadata.labels.as_ref(), new.labels.get_or_insert_default());
    let patch = Guarded::new(&pod.metadata).labels(&new).annotations(&annotations).build()?;
    Some(Action::PatchPod { name: meta::name(&pod.metadata).to_owned(), patch })
}

fn follow(keys: &[&str], from: Option<&BTreeMap<String, String>>, onto: &mut BTreeMap<String, String>) {
    for key in keys {
        match from.and_then(|map| map.get(*key)) {
            Some(value) => drop(onto.insert((*key).to_owned(), value.clone())),
            None => drop(onto.remove(*key)),
        }
    }
}

//! Creates, updates and deletes the Pods of a VMI, in order of precedence.

use api::reasons;
use api::v1::{VirtualMachineInstance, Volume, VolumeSource};
use k8s_openapi::api::core::v1::Pod;

use super::action::{Action, Look};
use super::volumes::{self, Gate};
use super::world::World;
use super::{backend, follow, hotplug, network, topology};
use crate::effect::Why;
use crate::object::Kind;
use crate::{Note, SyncError, meta, migration, pods};

/// The feature gate that lets guests mount directories of their launcher's container.
const CONTAINER_PATH_VOLUMES: &str = "ContainerPathVolumes";

/// The Pod actions of this pass.
#[derive(Default)]
pub(super) struct Sync {
    pub(super) actions: Vec<Action>,
    /// They create a launcher Pod, or a claim that it needs.
    pub(super) creates: bool,
    pub(super) error: Option<SyncError>,
}

impl Sync {
    fn doing(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }

    fn creating(actions: Vec<Action>) -> Self {
        Self { creates: true, ..Self::doing(actions) }
    }

    fn error(actions: Vec<Action>, error: SyncError) -> Self {
        Self { actions, error: Some(error), ..Self::default() }
    }

    /// An error with its event, unless the VMI already shows it.
    fn told(w: &World, error: SyncError, note: Note) -> Self {
        let note = (!w.shows(&error)).then_some(Action::Note(note));
        Self::error(note.into_iter().collect(), error)
    }

    fn warned(w: &World, error: SyncError) -> Self {
        let note = Note::warning(&error.reason, error.message.clone());
        Self::told(w, error, note)
    }

    fn after(mut self, mut before: Vec<Action>) -> Self {
        before.append(&mut self.actions);
        self.actions = before;
        self
    }
}

pub(super) fn sync(w: &World) -> Sync {
    if let Some(error) = &w.failed {
        let error = explained(error);
        let note = Action::Note(Note::warning(&error.reason, error.message.clone()));
        return Sync::error(vec![note], error);
    }
    if w.vmi.is_marked_for_deletion() {
        return Sync::doing(w.pods.iter().flat_map(|pod| delete(pod)).collect());
    }
    if w.vmi.is_final() {
        let current = w.current_pod().into_iter().flat_map(|pod| w.helpers_of(pod));
        return Sync::doing(current.flat_map(|pod| detach(pod, "the instance has ended")).collect());
    }
    let orphans: Vec<Action> = orphans(w).flat_map(|pod| detach(pod, "its launcher Pod has ended")).collect();
    let sync = match w.current_pod() {
        Some(pod) if !pods::is_temporary(pod) => attend(w, pod),
        temporary if w.vmi.is_unprocessed() => prepare(w, temporary),
        Some(temporary) => Sync::doing(remove_temporary(temporary)), // no longer needed, whatever its state
        None => Sync::default(),
    };
    sync.after(orphans)
}

/// Adds an explanation to an error message that does not explain itself.
fn explained(error: &SyncError) -> SyncError {
    let mut error = error.clone();
    if error.reason == reasons::FAILED_CREATE && error.message.contains("violates PodSecurity") {
        error.message.push_str(
            "; a launcher Pod needs a namespace that enforces no stricter Pod security standard than privileged",
        );
    }
    error
}

/// Helper Pods of Pods that have ended.
fn orphans(w: &World) -> impl Iterator<Item = &Pod> {
    w.pods.iter().filter(|pod| pods::is_down(pod)).flat_map(|pod| w.helpers_of(pod))
}

fn detach(pod: &Pod, because: &'static str) -> Vec<Action> {
    let message = format!("Deleted attachment pod {}", meta::name(&pod.metadata));
    hotplug::remove(pod, because, reasons::FAILED_HOTPLUG_SYNC, message)
}

/// Brings a VMI without a launcher Pod to one: its prerequisites, then the Pod.
fn prepare(w: &World, temporary: Option<&Pod>) -> Sync {
    let gate = match volumes::gate(w) {
        Gate::Blocked { error, note } => return Sync::told(w, error, note),
        gate => gate,
    };
    if w.vmi.receives() && !w.has_target_node() {
        return Sync::default(); // the migration creates the Pod
    }
    if let Some(pod) = temporary {
        let spent = gate != Gate::WaitsForConsumer && (pods::is_running(pod) || pods::is_down(pod));
        return Sync::doing(if spent { remove_temporary(pod) } else { vec![] });
    }
    if topology::awaits_hints(w) || gate == Gate::NotReady {
        return Sync::default();
    }
    if w.launched {
        return Sync::default(); // it existed before, and is not created twice
    }
    if let Some(migration) = w.migrations.iter().find(|other| migration::is_running(other)) {
        let name = meta::name(&migration.metadata);
        let message = format!("migration {name} of an earlier instance of this name is still running");
        return Sync::warned(w, SyncError::new(reasons::FAILED_CREATE, message));
    }
    let backend = match backend::prepare(w) {
        Ok(backend) => backend,
        Err(error) => return Sync::warned(w, error),
    };
    if backend.making {
        return Sync::creating(backend.actions);
    }
    if shares_own_directory(&w.vmi).next().is_some() && !w.config.feature_gate(CONTAINER_PATH_VOLUMES) {
        let message = "the instance shares a directory of its container, which the feature gate ContainerPathVolumes \
                       does not allow";
        return Sync::warned(w, SyncError::new(reasons::CONTAINER_PATH_VOLUMES_DISABLED, message));
    }
    create(w, gate == Gate::WaitsForConsumer, backend.claim.as_deref()).after(backend.actions)
}

fn create(w: &World, first_consumer: bool, backend_claim: Option<&str>) -> Sync {
    let context = w.context(backend_claim);
    let (rendered, because) = if first_consumer {
        (render::first_consumer_pod(&w.vmi, &w.config, &context), "volumes wait for their first consumer")
    } else {
        (render::launcher_pod(&w.vmi, &w.config, &context), "the instance has no launcher Pod yet")
    };
    let refused = rendered.is_ok().then(|| network::refused(w)).flatten();
    if let Some(error) = refused {
        return Sync::warned(w, error);
    }
    match rendered {
        Ok(pod) => {
            let message = format!("Created virtual machine pod {}", meta::name(&pod.metadata));
            let create = Action::create(pod, Why::shown(reasons::FAILED_CREATE, because));
            let actions = vec![create, Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message))];
            Sync::creating(if w.inherited { vec![Action::confirm(Look::Current, actions)] } else { actions })
        }
        Err(error @ render::Error::ClaimNotFound { .. }) => {
            Sync::warned(w, SyncError::caused_by(reasons::FAILED_PVC_NOT_FOUND, &error))
        }
        Err(error) => Sync::warned(w, SyncError::caused_by(reasons::FAILED_CREATE, &error)),
    }
}

/// Volumes that share a directory of the launcher's own container with the guest.
fn shares_own_directory(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &str> {
    let shared = vmi.spec.domain.devices.filesystems.iter().map(|filesystem| filesystem.name.as_str());
    let is_own = |volume: &Volume| matches!(volume.source(), VolumeSource::ContainerPath(_));
    let own = move |name: &&str| vmi.spec.volumes.iter().any(|volume| volume.name == **name && is_own(volume));
    shared.filter(own)
}

fn remove_temporary(pod: &Pod) -> Vec<Action> {
    let message = format!("Deleted temporary pod {}", meta::name(&pod.metadata));
    hotplug::remove(pod, "its volumes need no consumer any more", reasons::FAILED_DELETE, message)
}

/// Maintains the launcher Pod and its helpers.
fn attend(w: &World, pod: &Pod) -> Sync {
    let spent = w.pods.iter().map(AsRef::as_ref).filter(|pod| pods::is_temporary(pod));
    let spent = spent.chain(hotplug::spent_triggers(w, pod));
    let ended = spent.filter(|pod| pods::is_running(pod) || pods::is_down(pod));
    let mut actions: Vec<Action> = ended.flat_map(remove_temporary).collect();
    if let Some(error) = missing_virtiofs(w, pod) {
        return Sync::warned(w, error).after(actions);
    }
    if pods::is_down_or_going_down(pod) {
        return Sync::doing(actions);
    }
    actions.extend(follow::pause_gate(w, pod));
    if pods::is_ready_for_handover(pod) {
        match hotplug::sync(w, pod) {
            Ok(plugging) => actions.extend(plugging),
            Err(error) => return Sync::warned(w, error).after(actions),
        }
    }
    Sync::doing(actions)
}

fn missing_virtiofs(w: &World, pod: &Pod) -> Option<SyncError> {
    let containers = || pod.spec.iter().flat_map(|spec| &spec.containers);
    let missing = shares_own_directory(&w.vmi).find(|volume| {
        let expected = format!("virtiofs-{volume}");
        !containers().any(|container| container.name == expected)
    })?;
    let message = format!(
        "launcher Pod {} has no container to share the directory of volume {missing}: restart the instance",
        meta::name(&pod.metadata)
    );
    Some(SyncError::new(reasons::MISSING_VIRTIOFS_CONTAINERS, message))
}

/// Deletes a Pod unless it is already being deleted. One that has ended while terminating is deleted again without
/// grace: there may be no kubelet left on its node to finish the job.
fn delete(pod: &Pod) -> Vec<Action> {
    let graceful = pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    let (at_once, because) = match (pods::is_deleting(pod), pods::is_down(pod)) {
        (false, _) => (false, "the instance is being deleted"),
        (true, true) if graceful => (true, "the instance is being deleted and the Pod has ended"),
        (true, _) => return vec![],
    };
    let message = format!("Deleted virtual machine pod {}", meta::name(&pod.metadata));
    let why = Why::shown(reasons::FAILED_DELETE, because);
    let delete = if at_once { Action::delete_at_once } else { Action::delete };
    vec![delete(Kind::Pod, &pod.metadata, why), Action::Note(Note::normal(reasons::SUCCESSFUL_DELETE, message))]
}

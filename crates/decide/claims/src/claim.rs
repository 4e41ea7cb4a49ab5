//! What is to be done about a claim.
//!
//! ```text
//!            ┌── names a volume ────────────────────────┐
//!  unbound ──┼── a free volume fits ────────────────────┼─► the volume's claimRef ─► volumeName ─► status Bound ─► growth
//!            ├── its class waits: event                 │
//!            └── its class provisions ─► engine ─► volume┘
//! ```
//!
//! Each pass writes one step, and the change that this causes brings the next pass. So a pass that is repeated, or begun
//! from a cache that is late, writes nothing or fails on the version it has seen.
//!
//! Guarantees: a volume's `claimRef` is written before any claim names the volume, on the version of the volume that had
//! none. Two claims therefore never get one volume.

use std::sync::Arc;

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotContent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use crate::action::{Action, Kind, Note, Part, Seen, Voice};
use crate::class::{class_of, default_class, waits_for_consumer};
use crate::fit::{self, When};
use crate::read::{self, Phase};
use crate::{CLAIM_FINALIZER, DRIVER, PROVISIONING_FINALIZER, grow, provision, users};

/// On claims: the node that a Pod of theirs is going to run on.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// Everything a decision about a claim sees.
pub struct World<'a> {
    pub claim: &'a PersistentVolumeClaim,
    pub classes: &'a [Arc<StorageClass>],
    pub volumes: &'a [Arc<PersistentVolume>],
    /// At least those that name the claim.
    pub pods: &'a [Arc<Pod>],
    /// The node that was selected for the claim, if it exists.
    pub node: Option<&'a Node>,
    /// The objects that its data source names, if they exist.
    pub source: Source<'a>,
    pub now: Timestamp,
}

/// What a claim's data source names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    pub claim: Option<&'a PersistentVolumeClaim>,
    pub snapshot: Option<&'a VolumeSnapshot>,
    pub content: Option<&'a VolumeSnapshotContent>,
}

impl<'a> World<'a> {
    pub(crate) fn seen(&self) -> Seen {
        Seen::new(Kind::Claim, &self.claim.metadata)
    }

    pub(crate) fn class(&self) -> Option<&'a StorageClass> {
        let name = class_of(self.claim).filter(|name| !name.is_empty())?;
        self.classes.iter().map(Arc::as_ref).find(|class| class.metadata.name.as_deref() == Some(name))
    }

    fn volume(&self, name: &str) -> Option<&'a PersistentVolume> {
        self.volumes.iter().map(Arc::as_ref).find(|volume| volume.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn uid(&self) -> &'a str {
        self.claim.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `namespace/name`.
    pub(crate) fn name(&self) -> String {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        format!("{}/{}", text(&self.claim.metadata.namespace), text(&self.claim.metadata.name))
    }

    pub(crate) fn patch(&self, part: Part, patch: Value) -> Action {
        Action::Patch { object: self.seen(), part, patch }
    }

    pub(crate) fn tell(&self, from: Voice, reason: &'static str, message: impl Into<String>) -> Action {
        Note::normal(&self.seen(), from, reason, message)
    }

    pub(crate) fn warn(&self, from: Voice, reason: &'static str, message: impl Into<String>) -> Action {
        Note::warning(&self.seen(), from, reason, message)
    }
}

/// Whether a claim names a volume and has been bound to it.
pub fn names_for_good(claim: &PersistentVolumeClaim, volume: &str) -> bool {
    read::volume_name(claim) == Some(volume) && read::annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// What to do next about a claim; nothing for one that is as it should be.
pub fn decide(w: &World<'_>) -> Vec<Action> {
    let metadata = &w.claim.metadata;
    if metadata.deletion_timestamp.is_some() {
        return ending(w);
    }
    if !read::has_finalizer(metadata, CLAIM_FINALIZER) {
        let finalizers = read::finalizers_with(metadata, CLAIM_FINALIZER);
        return vec![w.patch(Part::Main, json!({"metadata": {"finalizers": finalizers}}))];
    }
    proceed(w)
}

fn proceed(w: &World<'_>) -> Vec<Action> {
    match read::annotation(&w.claim.metadata, BIND_COMPLETED) {
        Some(_) => bound(w),
        None => unbound(w),
    }
}

/// A claim that is being deleted stays as it is while Pods use it.
fn ending(w: &World<'_>) -> Vec<Action> {
    let metadata = &w.claim.metadata;
    if !users(w.claim, w.pods).is_empty() {
        return if read::annotation(metadata, BIND_COMPLETED).is_some() { bound(w) } else { vec![] };
    }
    if read::has_finalizer(metadata, PROVISIONING_FINALIZER) {
        let finalizers = read::finalizers_without(metadata, PROVISIONING_FINALIZER);
        let drop = w.patch(Part::Main, json!({"metadata": {"finalizers": finalizers}}));
        let name = provision::volume_name(w.uid());
        // What has become a volume is reclaimed as one.
        return match w.volume(&name) {
            Some(_) => vec![drop],
            None => vec![Action::ConfirmNoVolume { name: name.clone() }, Action::Unprovision { name }, drop],
        };
    }
    if read::has_finalizer(metadata, CLAIM_FINALIZER) {
        let finalizers = read::finalizers_without(metadata, CLAIM_FINALIZER);
        let drop = w.patch(Part::Main, json!({"metadata": {"finalizers": finalizers}}));
        return vec![Action::ConfirmUnused(w.seen()), drop];
    }
    vec![]
}

fn unbound(w: &World<'_>) -> Vec<Action> {
    match read::volume_name(w.claim) {
        Some(name) => named(w, name),
        None => searching(w),
    }
}

/// The user, or a pass before this one, has chosen the volume.
fn named(w: &World<'_>, name: &str) -> Vec<Action> {
    let Some(volume) = w.volume(name) else {
        let message = format!("volume {name:?} requested by the claim does not exist yet");
        return waiting(w, vec![w.tell(Voice::Binder, "FailedBinding", message)]);
    };
    if fit::is_bound_to(volume, w.claim) {
        return bind(w, volume);
    }
    if read::claim_ref(volume).is_some() {
        let message = format!("volume {name:?} already bound to a different claim.");
        return waiting(w, vec![w.warn(Voice::Binder, "FailedBinding", message)]);
    }
    let gone = volume.metadata.deletion_timestamp.is_some()
        || matches!(read::volume_phase(volume), Phase::Released | Phase::Failed);
    match fit::mismatch(volume, w.claim).or(gone.then_some("it is being deleted, or was released by another claim")) {
        None => bind(w, volume),
        Some(why) => {
            let message = format!("Cannot bind to requested volume {name:?}: {why}");
            waiting(w, vec![w.warn(Voice::Binder, "VolumeMismatch", message)])
        }
    }
}

fn searching(w: &World<'_>) -> Vec<Action> {
    if let (None, Some(class)) = (class_of(w.claim), default_class(w.classes)) {
        return vec![w.patch(Part::Main, json!({"spec": {"storageClassName": class.metadata.name}}))];
    }
    let selected = read::annotation(&w.claim.metadata, SELECTED_NODE);
    let waits = w.class().is_some_and(waits_for_consumer);
    let when = match (waits, selected, w.node) {
        (false, ..) => When::Now,
        (true, None, _) => When::Later,
        (true, Some(_), Some(node)) => When::On(node),
        (true, Some(name), None) => return reschedule(w, &format!("node {name:?} does not exist")),
    };
    if let Some(volume) = fit::best(w.claim, w.volumes, when) {
        return bind(w, volume);
    }
    let own = provision::volume_name(w.uid());
    if w.volume(&own).is_some_and(|volume| volume.metadata.deletion_timestamp.is_some()) {
        let message = format!("waiting for volume {own:?}, which is being deleted, before another one is made");
        return waiting(w, vec![w.tell(Voice::Binder, "FailedBinding", message)]);
    }
    match (class_of(w.claim), when) {
        (None | Some(""), _) => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            waiting(w, vec![w.tell(Voice::Binder, "FailedBinding", message)])
        }
        (Some(_), When::Later) => waiting(w, vec![first_consumer(w)]),
        (Some(name), _) => provisioned(w, name),
    }
}

fn first_consumer(w: &World<'_>) -> Action {
    let pods = users::waiting(w.claim, w.pods);
    match pods.as_slice() {
        [] => {
            let message = "waiting for first consumer to be created before binding";
            w.tell(Voice::Binder, "WaitForFirstConsumer", message)
        }
        [pod] => w.tell(Voice::Binder, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => {
            let message = format!("waiting for pods {} to be scheduled", pods.join(","));
            w.tell(Voice::Binder, "WaitForPodScheduled", message)
        }
    }
}

/// Takes the choice of the node back: the scheduler chooses again.
fn reschedule(w: &World<'_>, why: &str) -> Vec<Action> {
    vec![
        w.warn(Voice::Provisioner, "ProvisioningFailed", format!("{why}; the Pod is scheduled again")),
        w.patch(Part::Main, json!({"metadata": {"annotations": {SELECTED_NODE: null}}})),
    ]
}

fn provisioned(w: &World<'_>, class_name: &str) -> Vec<Action> {
    let Some(class) = w.class() else {
        let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
        return waiting(w, vec![w.warn(Voice::Binder, "ProvisioningFailed", message)]);
    };
    let provisioner = class.provisioner.as_str();
    if provisioner == "kubernetes.io/no-provisioner" && read::annotation(&w.claim.metadata, SELECTED_NODE).is_some() {
        return reschedule(w, "no free volume fits on the selected node");
    }
    if provisioner.starts_with("kubernetes.io/") {
        let message = format!("no volume plugin matched name: {provisioner}");
        return waiting(w, vec![w.warn(Voice::Binder, "ProvisioningFailed", message)]);
    }
    if let Some(populator) = provision::populator(w.claim) {
        let message = format!("waiting for a volume populator to fill a volume from {populator}");
        return waiting(w, vec![w.tell(Voice::Binder, "ExternalProvisioning", message)]);
    }
    let metadata = &w.claim.metadata;
    let ours = provisioner == DRIVER;
    let announced = read::annotation(metadata, PROVISIONER) == Some(provisioner);
    let held = !ours || read::has_finalizer(metadata, PROVISIONING_FINALIZER);
    if !announced || !held {
        // The finalizer goes when the volume is bound: until then, what is in the storage has no other record.
        let mut patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner, OLD_PROVISIONER: provisioner}}});
        if ours {
            patch["metadata"]["finalizers"] = json!(read::finalizers_with(metadata, PROVISIONING_FINALIZER));
        }
        return vec![w.patch(Part::Main, patch)];
    }
    let mut actions = vec![];
    if !ours {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        actions.push(w.tell(Voice::Binder, "ExternalProvisioning", message));
        return waiting(w, actions);
    }
    let message = format!("External provisioner is provisioning volume for claim {:?}", w.name());
    actions.push(w.tell(Voice::Provisioner, "Provisioning", message));
    match provision::request(w, class) {
        Ok(request) => actions.push(Action::Provision(Box::new(request))),
        Err(why) => actions.push(Action::Tell(provision::failed(&w.seen(), class_name, &why))),
    }
    waiting(w, actions)
}

/// A claim that waits is `Pending`, whatever it was.
fn waiting(w: &World<'_>, mut actions: Vec<Action>) -> Vec<Action> {
    if read::claim_phase(w.claim) != Phase::Pending {
        actions.push(w.patch(Part::Status, json!({"status": {"phase": "Pending"}})));
    }
    actions
}

/// The next step towards a claim and a volume that name each other.
fn bind(w: &World<'_>, volume: &PersistentVolume) -> Vec<Action> {
    let reference = read::claim_of(volume);
    let seen = Seen::new(Kind::Volume, &volume.metadata);
    if reference.is_none_or(|(_, _, uid)| uid != w.uid()) {
        let mut patch = json!({"spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": w.claim.metadata.namespace, "name": w.claim.metadata.name,
            "uid": w.uid(), "resourceVersion": w.claim.metadata.resource_version,
        }}});
        if reference.is_none() {
            patch["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
        }
        return vec![Action::Patch { object: seen, part: Part::Main, patch }];
    }
    let metadata = &w.claim.metadata;
    if read::volume_name(w.claim) != volume.metadata.name.as_deref()
        || read::annotation(metadata, BIND_COMPLETED).is_none()
    {
        let mut annotations = json!({BIND_COMPLETED: "yes"});
        if read::volume_name(w.claim).is_none() {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        let mut patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.metadata.name}});
        if read::has_finalizer(metadata, PROVISIONING_FINALIZER) {
            patch["metadata"]["finalizers"] = json!(read::finalizers_without(metadata, PROVISIONING_FINALIZER));
        }
        return vec![w.patch(Part::Main, patch)];
    }
    bound_status(w, volume).into_iter().collect()
}

fn bound_status(w: &World<'_>, volume: &PersistentVolume) -> Option<Action> {
    if read::claim_phase(w.claim) == Phase::Bound && read::size(w.claim).is_some() {
        return None;
    }
    let spec = volume.spec.as_ref()?;
    let status = json!({"phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity});
    Some(w.patch(Part::Status, json!({"status": status})))
}

fn bound(w: &World<'_>) -> Vec<Action> {
    let Some(name) = read::volume_name(w.claim) else {
        return lost(w, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    };
    let Some(volume) = w.volume(name) else {
        // A volume that is missing in a cache may be new: only one that the API server does not have is lost.
        let mut actions =
            lost(w, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
        if !actions.is_empty() {
            actions.insert(0, Action::ConfirmNoVolume { name: name.to_owned() });
        }
        return actions;
    };
    match read::claim_of(volume) {
        Some((_, _, uid)) if uid == w.uid() => {}
        _ if read::claim_ref(volume).is_none() || fit::is_bound_to(volume, w.claim) => return bind(w, volume),
        _ => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            return lost(w, "ClaimMisbound", message);
        }
    }
    match bound_status(w, volume) {
        Some(status) => vec![status],
        None => grow::decide(w, volume),
    }
}

fn lost(w: &World<'_>, reason: &'static str, message: &str) -> Vec<Action> {
    if read::claim_phase(w.claim) == Phase::Lost {
        return vec![];
    }
    let status = json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}});
    vec![w.patch(Part::Status, status), w.warn(Voice::Binder, reason, message)]
}

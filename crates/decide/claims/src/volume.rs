//! What is to be done about a PersistentVolume.
//!
//! ```text
//!   Pending ─► Available ◄────────────── claimRef removed by hand
//!                 │ claimRef                       ▲
//!                 ▼                                │
//!               Bound ── claim gone ─► Released ───┼─ Retain: stays
//!                                                  └─ Delete: content, then object
//! ```
//!
//! Guarantees: content is removed only after the API server itself has said that the claim with that UID is gone, and only
//! of a volume that is `Released` or was never bound; and by the engine only if no Pod uses it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::action::{Action, Kind, Note, Part, Seen, Voice};
use crate::claim::BOUND_BY_CONTROLLER;
use crate::grow::time;
use crate::read::{self, Phase};
use crate::{STORAGE_FINALIZER, VOLUME_FINALIZER};

/// Everything a decision about a volume sees.
pub struct World<'a> {
    pub volume: &'a PersistentVolume,
    /// The claim that its `claimRef` names, if there is one of that name.
    pub claim: Option<&'a PersistentVolumeClaim>,
    pub now: Timestamp,
}

/// What to do next about a volume; nothing for one that is as it should be.
pub fn decide(w: &World<'_>) -> Vec<Action> {
    let metadata = &w.volume.metadata;
    let deleting = metadata.deletion_timestamp.is_some();
    if !deleting && !read::has_finalizer(metadata, VOLUME_FINALIZER) {
        let finalizers = read::finalizers_with(metadata, VOLUME_FINALIZER);
        return vec![w.patch(Part::Main, json!({"metadata": {"finalizers": finalizers}}))];
    }
    let Some((namespace, name, uid)) = read::claim_of(w.volume) else { return unclaimed(w) };
    if uid.is_empty() {
        return unclaimed(w); // meant for a claim that does not exist yet
    }
    let claim = w.claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid));
    match claim {
        None => released(w, namespace, name, uid),
        Some(claim) => match read::volume_name(claim) {
            // Deleted before the claim could name it: the claim gets another one.
            None if deleting => withdrawn(w),
            None => vec![], // the claim's next step
            Some(own) if Some(own) == metadata.name.as_deref() => w.phase(Phase::Bound).into_iter().collect(),
            Some(_) => superfluous(w, namespace, name),
        },
    }
}

impl World<'_> {
    fn seen(&self) -> Seen {
        Seen::new(Kind::Volume, &self.volume.metadata)
    }

    fn patch(&self, part: Part, patch: Value) -> Action {
        Action::Patch { object: self.seen(), part, patch }
    }

    /// Writes the phase if it is another one.
    fn phase(&self, phase: Phase) -> Option<Action> {
        (read::volume_phase(self.volume) != phase).then(|| self.write(phase, None))
    }

    fn write(&self, phase: Phase, message: Option<&str>) -> Action {
        let status = json!({
            "phase": phase.as_str(), "message": message, "reason": null, "lastPhaseTransitionTime": time(self.now),
        });
        self.patch(Part::Status, json!({"status": status}))
    }

    fn policy(&self) -> &str {
        let spec = self.volume.spec.as_ref();
        spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
    }

    fn deleting(&self) -> bool {
        self.volume.metadata.deletion_timestamp.is_some()
    }
}

fn unclaimed(w: &World<'_>) -> Vec<Action> {
    if w.deleting() {
        return withdrawn(w);
    }
    w.phase(Phase::Available).into_iter().collect()
}

/// A volume that is being deleted and that no claim has named yet.
fn withdrawn(w: &World<'_>) -> Vec<Action> {
    let volume = w.volume.metadata.name.clone().unwrap_or_default();
    ending(w, vec![Action::ConfirmUnnamed { volume }])
}

fn released(w: &World<'_>, namespace: &str, name: &str, uid: &str) -> Vec<Action> {
    let gone = || {
        let text = str::to_owned;
        Action::ConfirmGone { kind: Kind::Claim, namespace: text(namespace), name: text(name), uid: text(uid) }
    };
    if !matches!(read::volume_phase(w.volume), Phase::Released | Phase::Failed) {
        return vec![gone(), w.write(Phase::Released, None)];
    }
    reclaim(w, vec![gone()])
}

/// The claim has another volume: this one came too late, or the claim was bound by hand meanwhile.
fn superfluous(w: &World<'_>, namespace: &str, name: &str) -> Vec<Action> {
    let provisioned =
        w.volume.metadata.annotations.iter().flatten().any(|(key, _)| key == "pv.kubernetes.io/provisioned-by");
    if provisioned && w.policy() == "Delete" {
        if read::volume_phase(w.volume) != Phase::Released {
            return vec![w.write(Phase::Released, None)];
        }
        return reclaim(w, vec![]);
    }
    let chosen_here = read::annotation(&w.volume.metadata, BOUND_BY_CONTROLLER).is_some();
    let patch = match chosen_here {
        true => json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}}),
        // The user's choice of the claim stays.
        false => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
    };
    let message = format!("claim {namespace}/{name} is bound to another volume");
    vec![w.patch(Part::Main, patch), Note::normal(&w.seen(), Voice::Binder, "Unbound", message)]
}

fn reclaim(w: &World<'_>, confirmed: Vec<Action>) -> Vec<Action> {
    let policy = w.policy();
    if w.deleting() || (policy == "Delete" && read::handle(w.volume).is_some()) {
        return ending(w, confirmed);
    }
    let csi = w.volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    let message = match policy {
        "Retain" => return vec![],
        "Delete" if csi => return vec![], // by its driver's own provisioner
        "Delete" => "error getting deleter volume plugin for volume: no volume plugin matched",
        _ => "this server does not recycle volumes: delete the PersistentVolume, or set its reclaim policy to Retain",
    };
    if read::volume_phase(w.volume) == Phase::Failed {
        return vec![];
    }
    let told = Note::warning(&w.seen(), Voice::Binder, "VolumeFailedDelete", message);
    vec![told, w.write(Phase::Failed, Some(message))]
}

/// Removes the object, and before its finalizers go the content, if that is the volume's policy.
fn ending(w: &World<'_>, mut actions: Vec<Action>) -> Vec<Action> {
    if !w.deleting() {
        actions.push(Action::Delete(w.seen()));
        return actions;
    }
    let ours = read::handle(w.volume);
    let finalizers = w.volume.metadata.finalizers.as_deref().unwrap_or_default();
    let dropped = |name: &str| name == VOLUME_FINALIZER || (name == STORAGE_FINALIZER && ours.is_some());
    let kept: Vec<&String> = finalizers.iter().filter(|name| !dropped(name)).collect();
    if kept.len() == finalizers.len() {
        return vec![];
    }
    if let Some(handle) = ours.filter(|_| w.policy() == "Delete") {
        if read::volume_phase(w.volume) != Phase::Released {
            // From now on no claim is bound to it.
            return vec![w.write(Phase::Released, None)];
        }
        actions.push(Action::Remove { handle: handle.to_owned() });
    }
    actions.push(w.patch(Part::Main, json!({"metadata": {"finalizers": kept}})));
    actions
}

/// The storage has not removed a volume.
pub fn removal_failed(volume: &PersistentVolume, why: &str) -> Note {
    let about = Seen::new(Kind::Volume, &volume.metadata);
    let (from, reason) = (Voice::Provisioner, "VolumeFailedDelete");
    Note { about, from, warning: true, reason, message: why.to_owned() }
}

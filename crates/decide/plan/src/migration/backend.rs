//! The claim with the guest's own state: its TPM, its NVRAM, its block tracking.
//!
//! If both nodes can write to it at once, it is used by both. Otherwise the target gets one of its own, which the transfer
//! fills, and which takes the place of the source's when the guest has arrived. On failure it goes.

use api::v1::VirtualMachineInstance;
use api::{labels, reasons};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta::label;
use machinery::names;

use super::action::Action;
use super::world::World;
use crate::guard::Guarded;
use crate::{SyncError, claims, meta};

const PREFIX: &str = labels::PERSISTENT_STATE_FOR;
/// The access mode of claims that several nodes may write to.
const SHARED: &str = "ReadWriteMany";

/// The claims of both sides; the same one if both can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) source: String,
    pub(super) target: String,
}

/// Whether volumes came, or can come, after the start.
pub(super) fn has_plugged_volumes(vmi: &VirtualMachineInstance) -> bool {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    statuses.into_iter().any(|status| status.hotplug_volume.is_some())
        || vmi.spec.volumes.iter().any(claims::is_hotpluggable)
}

/// What both sides use, if the guest keeps state. What was written down before is kept: the source's claim may be gone.
pub(super) fn names(w: &World) -> Option<Names> {
    let vmi = w.vmi.as_deref()?;
    if !render::needs_backend_claim(vmi) {
        return None;
    }
    let known = w.migration.status.as_ref().and_then(|status| status.migration_state.as_ref());
    if let Some(known) = known
        && let (Some(source), Some(target)) =
            (&known.source_persistent_state_pvc_name, &known.target_persistent_state_pvc_name)
    {
        return Some(Names { source: source.clone(), target: target.clone() });
    }
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    let entry = statuses.into_iter().find(|status| status.name.starts_with(PREFIX))?;
    let source = entry.persistent_volume_claim_info.as_ref()?.claim_name.clone()?;
    let is_shared = find(w, &source).is_some_and(is_shared);
    let target = if is_shared { source.clone() } else { target_name(w, vmi) };
    Some(Names { source, target })
}

fn target_name(w: &World, vmi: &VirtualMachineInstance) -> String {
    let seed = format!("{}/{}", meta::uid(&vmi.metadata), w.uid());
    let prefix = format!("{PREFIX}-{}", meta::name(&vmi.metadata));
    names::truncated_name(&prefix, &names::suffix(&seed), names::LABEL_MAX)
}

fn is_shared(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.status.as_ref().and_then(|status| status.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == SHARED)
}

fn find<'a>(w: &'a World, name: &str) -> Option<&'a PersistentVolumeClaim> {
    w.state_claims.iter().map(AsRef::as_ref).find(|claim| meta::name(&claim.metadata) == name)
}

/// Whether the target has a claim of its own, so that the outcome decides which of two survives.
pub(super) fn has_own_target_claim(w: &World) -> bool {
    names(w).is_some_and(|names| names.source != names.target && find(w, &names.target).is_some())
}

/// What the target Pod mounts, or what must be made first.
pub(super) enum Prepared {
    /// The claim to mount, if there is one.
    Ready(Option<String>),
    Create(Action),
}

pub(super) fn prepare(w: &World, vmi: &VirtualMachineInstance) -> Result<Prepared, SyncError> {
    if !render::needs_backend_claim(vmi) {
        return Ok(Prepared::Ready(None));
    }
    let missing = |what: &str| SyncError::new(reasons::FAILED_BACKEND_STORAGE_PROBE, what);
    let names = names(w).ok_or_else(|| missing("the instance does not say which claim keeps the guest's state"))?;
    if names.source == names.target || find(w, &names.target).is_some() {
        return Ok(Prepared::Ready(Some(names.target)));
    }
    let source = find(w, &names.source)
        .ok_or_else(|| missing(&format!("PersistentVolumeClaim {} with the guest's state is missing", names.source)))?;
    let claim = Box::new(claim_like(w, source, names.target));
    Ok(Prepared::Create(Action::CreateClaim { claim, because: "the guest's state needs a place on the target" }))
}

fn claim_like(w: &World, source: &PersistentVolumeClaim, name: String) -> PersistentVolumeClaim {
    let mut spec = source.spec.clone().unwrap_or_default();
    spec.volume_name = None;
    let mut labels = source.metadata.labels.clone().unwrap_or_default();
    labels.remove(PREFIX); // only one claim may carry it
    labels.insert(labels::MIGRATION_NAME.to_owned(), meta::name(&w.migration.metadata).to_owned());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: source.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: source.metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The guest has arrived: the target's claim becomes the guest's, then the source's goes. Done before, it is nothing.
pub(super) fn hand_over(w: &World) -> Vec<Action> {
    let Some(names) = names(w).filter(|names| names.source != names.target) else { return vec![] };
    let guest = w.vmi.as_deref().map(|vmi| meta::name(&vmi.metadata)).unwrap_or_default();
    let Some(target) = find(w, &names.target) else { return vec![] };
    if label(&target.metadata, PREFIX).is_some_and(|other| other != guest) {
        return vec![]; // somebody gave it to another guest; nothing of ours to take
    }
    let mut new = target.metadata.clone();
    let labels = new.labels.get_or_insert_default();
    labels.insert(PREFIX.to_owned(), guest.to_owned());
    labels.remove(labels::MIGRATION_NAME);
    let because = "the guest runs with it";
    let patch = Guarded::new(&target.metadata).labels(&new).build();
    let adopt = patch.map(|patch| Action::PatchClaim { name: names.target.clone(), patch, because });
    let old = find(w, &names.source).filter(|claim| !meta::is_deleting(&claim.metadata));
    let drop = old.map(|claim| remove(claim, "the guest has left it"));
    adopt.into_iter().chain(drop).collect()
}

/// The guest stayed: the target's claim goes, if it is one of its own.
pub(super) fn abandon(w: &World) -> Vec<Action> {
    let Some(names) = names(w).filter(|names| names.source != names.target) else { return vec![] };
    let ours = |claim: &&PersistentVolumeClaim| {
        let made_for = label(&claim.metadata, labels::MIGRATION_NAME);
        made_for == Some(meta::name(&w.migration.metadata)) && !meta::is_deleting(&claim.metadata)
    };
    let doomed = find(w, &names.target).filter(ours);
    doomed.map(|claim| remove(claim, "the guest did not come")).into_iter().collect()
}

fn remove(claim: &PersistentVolumeClaim, because: &'static str) -> Action {
    let (name, uid) = (meta::name(&claim.metadata).to_owned(), meta::uid(&claim.metadata).to_owned());
    Action::DeleteClaim { name, uid, because }
}

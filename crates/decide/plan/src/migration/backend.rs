//! The claim with the guest's persistent state: TPM, NVRAM and changed block tracking.
//!
//! If both nodes can write to it at the same time, source and target share it. Otherwise the target gets a claim of its
//! own, which the migration fills, and which replaces the source's claim once the guest has arrived. If the migration
//! fails, the target's claim is deleted.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use api::{labels, reasons};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinery::meta::label;
use machinery::names;

use super::action::{Action, delete_claim};
use super::kinds::{self, Kind};
use super::world::World;
use crate::effect::Why;
use crate::guard::Guarded;
use crate::object::Kind as Of;
use crate::{SyncError, claims, meta};

const PREFIX: &str = labels::PERSISTENT_STATE_FOR;
/// The access mode of claims that several nodes can write to.
const SHARED: &str = "ReadWriteMany";

/// The claims of source and target; the same claim if they share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) source: String,
    pub(super) target: String,
}

/// Whether the VMI has hot-plugged volumes, or volumes that can be hot-plugged.
pub(super) fn has_plugged_volumes(vmi: &VirtualMachineInstance) -> bool {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    statuses.into_iter().any(|status| status.hotplug_volume.is_some())
        || vmi.spec.volumes.iter().any(claims::is_hotpluggable)
}

/// The claims of source and target, if the guest has persistent state. Before the hand-off these are the claims that
/// the two Pods mount: the guest may have got another claim since they were last recorded. From then on they are the
/// claims named in the hand-off.
pub(super) fn names(w: &World) -> Option<Names> {
    let vmi = w.vmi.as_deref()?;
    if !render::needs_backend_claim(vmi) {
        return None;
    }
    if let Some(names) = w.own_state().and_then(noted) {
        return Some(names);
    }
    let known = w.migration.status.as_ref().and_then(|status| status.migration_state.as_ref()).and_then(noted);
    if kinds::is_with_nodes(&w.migration) || w.is_handed_off() {
        return known;
    }
    // The VMI of a receiver has only the target Pod.
    let source = w.origin().filter(|_| w.kind() != Kind::Receives).and_then(mounted).or_else(|| shown(vmi))?;
    let made = known.filter(|_| kinds::has_target(&w.migration)).map(|names| names.target);
    let is_shared = find(w, &source).is_some_and(is_shared);
    let planned = || if is_shared { source.clone() } else { target_name(w, vmi) };
    let target = w.target().and_then(mounted).or(made).unwrap_or_else(planned);
    Some(Names { source, target })
}

fn noted(state: &State) -> Option<Names> {
    let (source, target) = (&state.source_persistent_state_pvc_name, &state.target_persistent_state_pvc_name);
    Some(Names { source: source.clone()?, target: target.clone()? })
}

/// The state claim that this Pod mounts.
pub(super) fn mounted(pod: &Pod) -> Option<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let state = volumes.into_iter().find(|volume| volume.name == render::STATE_VOLUME)?;
    state.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone())
}

/// The state claim in the VMI's status.
fn shown(vmi: &VirtualMachineInstance) -> Option<String> {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    let entry = statuses.into_iter().find(|status| status.name.starts_with(PREFIX))?;
    entry.persistent_volume_claim_info.as_ref()?.claim_name.clone()
}

/// The claims of source and target, if they are different ones.
pub fn state_claims(w: &World) -> Vec<String> {
    apart(w).map(|names| vec![names.source, names.target]).unwrap_or_default()
}

fn apart(w: &World) -> Option<Names> {
    names(w).filter(|names| names.source != names.target)
}

/// Derived from the migration alone: if the VMI is recreated while the migration waits, the prepared claim is still
/// used.
fn target_name(w: &World, vmi: &VirtualMachineInstance) -> String {
    let prefix = format!("{PREFIX}-{}", meta::name(&vmi.metadata));
    names::truncated_name(&prefix, &names::suffix(w.uid()), names::LABEL_MAX)
}

fn modes(claim: &PersistentVolumeClaim) -> &[String] {
    claim.status.as_ref().and_then(|status| status.access_modes.as_deref()).unwrap_or_default()
}

fn is_shared(claim: &PersistentVolumeClaim) -> bool {
    modes(claim).iter().any(|mode| mode == SHARED)
}

fn find<'a>(w: &'a World, name: &str) -> Option<&'a PersistentVolumeClaim> {
    w.state_claims.iter().map(AsRef::as_ref).find(|claim| meta::name(&claim.metadata) == name)
}

fn guest(w: &World) -> &str {
    w.vmi.as_deref().map(|vmi| meta::name(&vmi.metadata)).unwrap_or_default()
}

/// Whether the target's claim has become the guest's: then the guest has arrived, whatever else is reported.
pub(super) fn is_adopted(w: &World) -> bool {
    let target = apart(w).and_then(|names| find(w, &names.target));
    target.is_some_and(|target| label(&target.metadata, PREFIX) == Some(guest(w)))
}

/// Whether source and target have claims of their own.
pub(super) fn is_apart(w: &World) -> bool {
    apart(w).is_some()
}

/// Whether the outcome decides which of two claims is kept. A claim missing from the cache may hold the guest's state
/// nevertheless. Before the hand-off it cannot: a guest that has left was moved by another migration, and the result of
/// a Job on the source's claim is about that one.
pub(super) fn is_undecided(w: &World) -> bool {
    let begun = kinds::is_with_nodes(&w.migration) || w.is_handed_off();
    begun && is_apart(w) && !is_adopted(w)
}

/// Whether there is a claim to hand over, and it is in the cache.
pub(super) fn can_hand_over(w: &World) -> bool {
    apart(w).is_none_or(|names| find(w, &names.target).is_some())
}

/// Whether nothing is left to hand over.
pub(super) fn is_handed_over(w: &World) -> bool {
    let gone = |claim: &PersistentVolumeClaim| meta::is_deleting(&claim.metadata);
    apart(w).is_none_or(|names| is_adopted(w) && find(w, &names.source).is_none_or(gone))
}

/// What the target Pod mounts, or what must be created first.
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
    let names = names(w).ok_or_else(|| missing("VMI names no PersistentVolumeClaim for the guest's state"))?;
    if names.source == names.target || find(w, &names.target).is_some() {
        return Ok(Prepared::Ready(Some(names.target)));
    }
    let source = find(w, &names.source)
        .ok_or_else(|| missing(&format!("PersistentVolumeClaim {} with the guest's state is missing", names.source)))?;
    if modes(source).is_empty() {
        let why = "does not say yet how many nodes can use it";
        return Err(missing(&format!("PersistentVolumeClaim {} with the guest's state {why}", names.source)));
    }
    let why = Why::shown(reasons::FAILED_CREATE, "the target needs a claim of its own for the guest's state");
    Ok(Prepared::Create(Action::create(claim_like(w, source, names.target), why)))
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
            // Until the guest adopts it, only the migration needs it. Owned by the migration, it is collected even if
            // it was created too late to be noticed.
            owner_references: meta::controller_ref(&*w.migration).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The guest has arrived: the target's claim becomes the guest's, then the source's is deleted. Idempotent.
pub(super) fn hand_over(w: &World) -> Vec<Action> {
    let Some(names) = apart(w) else { return vec![] };
    let guest = guest(w);
    let Some(target) = find(w, &names.target) else { return vec![] };
    if label(&target.metadata, PREFIX).is_some_and(|other| other != guest) {
        return vec![]; // it was given to another guest; it is not ours to take
    }
    let mut new = target.metadata.clone();
    let labels = new.labels.get_or_insert_default();
    labels.insert(PREFIX.to_owned(), guest.to_owned());
    labels.remove(labels::MIGRATION_NAME);
    let because = "the guest now runs with this claim";
    let source = find(w, &names.source);
    let owners = owners(w, source);
    let patch = Guarded::new(&target.metadata).labels(&new);
    let adopted = label(&target.metadata, PREFIX) == Some(guest);
    let patch = match adopted {
        true => patch.build(),
        false => patch.whole(&["metadata", "ownerReferences"], &target.metadata.owner_references, &owners).build(),
    };
    let adopt = patch.map(|patch| Action::patch(Of::Claim, &names.target, patch, because));
    let old = source.filter(|claim| !meta::is_deleting(&claim.metadata));
    let drop = old.map(|claim| delete_claim(claim, "the guest now runs with another claim"));
    adopt.into_iter().chain(drop).collect()
}

/// The owners of the guest's state, taken from the source's claim. The VM may be deleted at this very moment and orphan
/// its VMI; the VMI is therefore an owner too, so that the claim is not collected before the guest ends.
fn owners(w: &World, source: Option<&PersistentVolumeClaim>) -> Option<Vec<OwnerReference>> {
    let vmi = w.vmi.as_deref()?;
    let known = source.map_or(&vmi.metadata.owner_references, |source| &source.metadata.owner_references);
    let mut all = known.clone().unwrap_or_default();
    if !all.iter().any(|owner| owner.uid == meta::uid(&vmi.metadata)) {
        let controls = all.is_empty();
        let own = meta::controller_ref(vmi);
        all.extend(own.map(|own| {
            if controls { own } else { OwnerReference { controller: None, block_owner_deletion: None, ..own } }
        }));
    }
    Some(all)
}

/// The guest stayed: deletes the target's claim, if it has one of its own.
pub(super) fn abandon(w: &World) -> Vec<Action> {
    let Some(names) = apart(w) else { return vec![] };
    let ours = |claim: &&PersistentVolumeClaim| {
        let made_for = label(&claim.metadata, labels::MIGRATION_NAME);
        made_for == Some(meta::name(&w.migration.metadata)) && !meta::is_deleting(&claim.metadata)
    };
    let doomed = find(w, &names.target).filter(ours);
    doomed.map(|claim| delete_claim(claim, "the guest did not arrive on the target")).into_iter().collect()
}

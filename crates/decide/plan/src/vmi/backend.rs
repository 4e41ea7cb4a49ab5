//! The claim with the guest's persistent state: TPM, NVRAM and changed block tracking.
//!
//! It belongs to the VM and outlives its VMIs, so its name is derived from the VM's UID.

use std::collections::BTreeMap;

use api::annotations;
use api::cdi::{APPLY_STORAGE_PROFILE, ClaimPropertySet};
use api::v1::{ChangedBlockTrackingState as Tracking, PersistentVolumeClaimInfo, VirtualMachineInstance, VolumeStatus};
use api::{labels, reasons};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::names;

use super::action::{Action, Look};
use super::world::World;
use crate::effect::Why;
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{SyncError, meta};

/// The claim's entry in `status.volumeStatus`.
const VOLUME: &str = "persistent-state-for-this-vm";
/// The name of claims that predate the label, and the prefix of current names.
const PREFIX: &str = labels::PERSISTENT_STATE_FOR;
/// Enough for a TPM and NVRAM.
const SIZE: &str = "10Mi";
/// With block tracking: 512Mi more.
const SIZE_WITH_TRACKING: &str = "522Mi";
const FILESYSTEM: &str = "Filesystem";

/// What the claim means for the start of the VMI.
#[derive(Debug, Default)]
pub(super) struct Backend {
    /// Actions to execute first.
    pub(super) actions: Vec<Action>,
    /// The claim to mount.
    pub(super) claim: Option<String>,
    /// The start waits for these actions: the claim is being created.
    pub(super) making: bool,
}

fn tracks_blocks(vmi: &VirtualMachineInstance) -> bool {
    let tracking = vmi.status.as_ref().and_then(|status| status.changed_block_tracking.as_ref());
    tracking.is_some_and(|tracking| matches!(tracking.state, Tracking::Initializing | Tracking::Enabled))
}

/// The current claim: the labelled one, else the one with the legacy name.
pub(super) fn current(w: &World) -> Option<&PersistentVolumeClaim> {
    let alive = || w.state_claims.iter().map(AsRef::as_ref).filter(|claim| !meta::is_deleting(&claim.metadata));
    let labelled = alive().filter(|claim| is_labelled(w, claim)).min_by_key(|claim| claim.metadata.name.clone());
    let legacy = format!("{PREFIX}-{}", meta::name(&w.vmi.metadata));
    labelled.or_else(|| alive().find(|claim| meta::name(&claim.metadata) == legacy))
}

pub(super) fn current_name(w: &World) -> Option<&str> {
    current(w).map(|claim| meta::name(&claim.metadata))
}

fn is_labelled(w: &World, claim: &PersistentVolumeClaim) -> bool {
    machinery::meta::label(&claim.metadata, PREFIX) == Some(meta::name(&w.vmi.metadata))
}

/// Finds, creates or removes the claim before the launcher Pod is created.
pub(super) fn prepare(w: &World) -> Result<Backend, SyncError> {
    let found = current(w);
    if !render::needs_backend_claim(&w.vmi) {
        let why = Why::shown(reasons::FAILED_BACKEND_STORAGE_CREATE, "the guest has no persistent state any more");
        let actions = found.map(|claim| Action::delete(Kind::Claim, &claim.metadata, why));
        return Ok(Backend { actions: actions.into_iter().collect(), ..Backend::default() });
    }
    let Some(claim) = found else {
        let why = Why::shown(reasons::FAILED_BACKEND_STORAGE_CREATE, "the guest has persistent state");
        let create = Action::create(new_claim(w)?, why);
        let actions = vec![Action::confirm(Look::NoStateClaim, vec![create])];
        return Ok(Backend { actions, making: true, ..Backend::default() });
    };
    check_ready(w, claim)?;
    Ok(Backend {
        actions: label_legacy(w, claim).or_else(|| replace_owner(w, claim)).into_iter().collect(),
        claim: Some(meta::name(&claim.metadata).to_owned()),
        making: false,
    })
}

fn label_legacy(w: &World, claim: &PersistentVolumeClaim) -> Option<Action> {
    if is_labelled(w, claim) {
        return None;
    }
    let mut new = claim.metadata.clone();
    let name = meta::name(&w.vmi.metadata).to_owned();
    new.labels.get_or_insert_default().insert(PREFIX.to_owned(), name);
    let patch = Guarded::new(&claim.metadata).labels(&new).build()?;
    let why = Why::shown(reasons::FAILED_BACKEND_STORAGE_CREATE, "");
    Some(Action::patch(Kind::Claim, meta::name(&claim.metadata), patch, why))
}

/// The claim that a guest got on a migration is owned by its VMI, too. That VMI has ended if another one starts: were it
/// the only owner left when the VM is deleted and orphans this VMI, the claim would be collected.
fn replace_owner(w: &World, claim: &PersistentVolumeClaim) -> Option<Action> {
    let old = &claim.metadata.owner_references;
    let own = meta::controller_ref(&*w.vmi)?;
    let mut new = old.clone()?;
    let ended = new.iter_mut().find(|owner| owner.kind == own.kind && owner.uid != own.uid)?;
    ended.uid.clone_from(&own.uid);
    ended.name.clone_from(&own.name);
    let patch = Guarded::new(&claim.metadata).whole(&["metadata", "ownerReferences"], old, &Some(new)).build()?;
    let why = Why::shown(reasons::FAILED_BACKEND_STORAGE_CREATE, "its former VMI has ended");
    Some(Action::patch(Kind::Claim, meta::name(&claim.metadata), patch, why))
}

fn new_claim(w: &World) -> Result<PersistentVolumeClaim, SyncError> {
    let class = storage_class(w)?;
    let size = if tracks_blocks(&w.vmi) { SIZE_WITH_TRACKING } else { SIZE };
    let name = meta::name(&w.vmi.metadata).to_owned();
    let own = || meta::controller_ref(&*w.vmi).into_iter().collect();
    let owners = w.vmi.metadata.owner_references.clone().filter(|owners| !owners.is_empty()).unwrap_or_else(own);
    let seed = owners.first().map_or_else(|| meta::uid(&w.vmi.metadata), |owner| &owner.uid);
    Ok(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::truncated_name(&format!("{PREFIX}-{name}"), &names::suffix(seed), names::LABEL_MAX)),
            namespace: w.vmi.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([
                (PREFIX.to_owned(), name),
                (APPLY_STORAGE_PROFILE.to_owned(), "true".to_owned()),
            ])),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![access_mode(w, &class).to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(size.to_owned()))])),
                limits: None,
            }),
            storage_class_name: Some(class),
            volume_mode: Some(FILESYSTEM.to_owned()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

/// The configured storage class, else the default class for VMs, else the default class.
fn storage_class(w: &World) -> Result<String, SyncError> {
    if let Some(configured) = w.config.vm_state_storage_class() {
        return Ok(configured.to_owned());
    }
    let marked = |key: &str| {
        let is_default = |class: &&StorageClass| meta::annotation(&class.metadata, key) == Some("true");
        let mut all: Vec<&StorageClass> = w.storage.classes.iter().map(AsRef::as_ref).filter(is_default).collect();
        all.sort_by_key(|class| meta::name(&class.metadata));
        all.first().map(|class| meta::name(&class.metadata).to_owned())
    };
    let default =
        marked(annotations::DEFAULT_VIRT_STORAGE_CLASS).or_else(|| marked(annotations::DEFAULT_STORAGE_CLASS));
    default.ok_or_else(|| {
        let message = "no default storage class for the guest's persistent state: mark one as default, or name \
                       one in spec.configuration.vmStateStorageClass of the KubeVirt object";
        SyncError::new(reasons::FAILED_BACKEND_STORAGE_CREATE, message)
    })
}

/// ReadWriteMany, if the class is known to support it or was configured for this purpose.
fn access_mode(w: &World, class: &str) -> &'static str {
    const SHARED: &str = "ReadWriteMany";
    const SINGLE: &str = "ReadWriteOnce";
    let profile = w.storage.profiles.get(class).and_then(|profile| profile.status.as_ref());
    let of_files = |set: &&ClaimPropertySet| set.volume_mode.as_deref() == Some(FILESYSTEM);
    let offers = |mode: &str| {
        let sets = profile.into_iter().flat_map(|profile| &profile.claim_property_sets).filter(of_files);
        sets.flat_map(|set| &set.access_modes).any(|offered| offered == mode)
    };
    if offers(SHARED) {
        SHARED
    } else if offers(SINGLE) || w.config.vm_state_storage_class().is_none() {
        SINGLE
    } else {
        SHARED
    }
}

/// Bound, or to be bound by the launcher Pod itself.
fn check_ready(w: &World, claim: &PersistentVolumeClaim) -> Result<(), SyncError> {
    let name = meta::name(&claim.metadata);
    let probe = |why: String| Err(SyncError::new(reasons::FAILED_BACKEND_STORAGE_PROBE, why));
    let not_ready = |why: String| Err(SyncError::new(reasons::BACKEND_STORAGE_NOT_READY, why));
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => Ok(()),
        Some("Lost") => probe(format!("PersistentVolumeClaim {name} with the guest's state has lost its volume")),
        Some("Pending") | None => {
            let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
            let found = w.storage.classes.iter().find(|known| meta::name(&known.metadata) == class);
            match found.map(|class| class.volume_binding_mode.as_deref()) {
                None => probe(format!(
                    "PersistentVolumeClaim {name} for the guest's state asks for storage class {class:?}, which does not exist"
                )),
                Some(Some("WaitForFirstConsumer")) => Ok(()),
                Some(_) => not_ready(format!("PersistentVolumeClaim {name} for the guest's state is not bound yet")),
            }
        }
        Some(other) => probe(format!("PersistentVolumeClaim {name} is in the unknown phase {other}")),
    }
}

/// Maintains the claim's entry in `status.volumeStatus`, under its current name.
pub(super) fn record(w: &World, list: &mut Vec<VolumeStatus>) {
    let Some(claim) = current(w) else { return };
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
    let position = list.iter().position(is_entry).unwrap_or_else(|| {
        list.push(VolumeStatus::default());
        list.len() - 1
    });
    let entry = &mut list[position];
    entry.name = VOLUME.to_owned();
    let info = entry.persistent_volume_claim_info.get_or_insert_with(PersistentVolumeClaimInfo::default);
    info.claim_name = claim.metadata.name.clone();
    info.access_modes = modes;
}

/// Whether an entry in `status.volumeStatus` is about this claim.
pub(super) fn is_entry(status: &VolumeStatus) -> bool {
    status.name.starts_with(PREFIX)
}

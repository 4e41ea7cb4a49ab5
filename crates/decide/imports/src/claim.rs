//! The claim of a DataVolume.
//!
//! `spec.pvc` is taken as it is. What `spec.storage` leaves out comes from the profile of its class, and its size is that of
//! the disk: a file system claim becomes larger by what its file system takes.

use std::collections::BTreeMap;

use api::cdi::{self, ClaimPropertySet, DataVolume};
use api::v1::StorageSpec;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta;
use machinery::quantity::Quantity;

use crate::cluster::{Cluster, class_of};
use crate::size;
use crate::source::{Origin, OriginKind, Work};
use crate::words::{content, keys, phases, reasons};

pub(crate) const BLOCK: &str = "Block";
pub(crate) const FILESYSTEM: &str = "Filesystem";
const STORAGE: &str = "storage";
/// An access or volume mode of a claim that stands for whatever the profile says.
const FROM_PROFILE: &str = "FromStorageProfile";

/// Why there is no claim yet, with the reason of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotYet {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Nothing is wrong: it has to wait.
    pub(crate) waits: bool,
}

impl NotYet {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), waits: false }
    }

    fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { waits: true, ..Self::new(reason, message) }
    }
}

/// The claim for a DataVolume.
pub(crate) fn render(dv: &DataVolume, work: &Work, cluster: &dyn Cluster) -> Result<PersistentVolumeClaim, NotYet> {
    let original = match work {
        Work::Clone(origin) => Some(Original::look(dv, origin, cluster)?),
        Work::Import(_) | Work::Upload | Work::External => None,
    };
    let mut spec = match (&dv.spec.pvc, &dv.spec.storage) {
        (Some(pvc), _) => pvc.clone(),
        (None, Some(storage)) => from_storage(dv, storage, original.as_ref(), cluster)
            .map_err(|why| NotYet::new(reasons::CLAIM_NOT_VALID, why))?,
        (None, None) => {
            return Err(NotYet::new(reasons::CLAIM_NOT_VALID, "datavolume one of {pvc, storage} field is required"));
        }
    };
    if let (Work::Clone(origin), Some(original)) = (work, &original) {
        original.admit(content_type(dv), &spec).map_err(|why| {
            let message = format!("The clone doesn't meet the validation requirements: {why}");
            NotYet::new(reasons::CLONE_VALIDATION_FAILED, message)
        })?;
        original.round_up(&mut spec);
        let (data_source, reference) = data_source(origin);
        (spec.data_source, spec.data_source_ref) = (Some(data_source), Some(reference));
    }
    Ok(PersistentVolumeClaim { metadata: metadata(dv, work, &spec), spec: Some(spec), status: None })
}

fn metadata(dv: &DataVolume, work: &Work, spec: &PersistentVolumeClaimSpec) -> ObjectMeta {
    let mut labels: BTreeMap<String, String> = [(keys::APP.to_owned(), keys::APP_VALUE.to_owned())].into();
    if mode(spec) == FILESYSTEM {
        // A disk fills its file system on purpose.
        labels.insert("alerts.k8s.io/KubePersistentVolumeFillingUp".to_owned(), "disabled".to_owned());
    }
    labels.extend(dv.metadata.labels.clone().unwrap_or_default());
    let mut annotations = dv.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(cdi::POPULATED_FOR); // only once it is true
    let own = [
        (keys::RESTARTS, "0".to_owned()),
        (cdi::CONTENT_TYPE, content_type(dv).to_owned()),
        (keys::PREALLOCATION_REQUESTED, dv.spec.preallocation.unwrap_or(false).to_string()),
        (keys::CREATED_FOR, dv.metadata.uid.clone().unwrap_or_default()),
        (keys::USE_POPULATOR, "false".to_owned()),
    ];
    annotations.extend(own.map(|(key, value)| (key.to_owned(), value)));
    if let Some(class) = dv.spec.priority_class_name.as_deref().filter(|class| !class.is_empty()) {
        annotations.insert(keys::PRIORITY_CLASS.to_owned(), class.to_owned());
    }
    let more = match work {
        Work::Import(import) => vec![(keys::SOURCE, import.name()), (keys::PHASE, phases::PENDING)],
        Work::Upload => vec![(keys::UPLOAD, ""), (keys::PHASE, phases::PENDING)],
        Work::Clone(_) | Work::External => vec![],
    };
    annotations.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
    ObjectMeta {
        name: dv.metadata.name.clone(),
        namespace: dv.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: meta::controller_ref(dv).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// What the claim holds.
pub(crate) fn content_type(dv: &DataVolume) -> &str {
    dv.spec.content_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(content::KUBEVIRT)
}

/// The volume mode of a claim.
pub(crate) fn mode(spec: &PersistentVolumeClaimSpec) -> &str {
    spec.volume_mode.as_deref().filter(|mode| !mode.is_empty()).unwrap_or(FILESYSTEM)
}

fn data_source(origin: &Origin) -> (TypedLocalObjectReference, TypedObjectReference) {
    let (group, kind) = match origin.kind {
        OriginKind::Claim => (None, "PersistentVolumeClaim"),
        OriginKind::Snapshot => (Some(api::volumesnapshot::GROUP.to_owned()), "VolumeSnapshot"),
    };
    let local =
        TypedLocalObjectReference { api_group: group.clone(), kind: kind.to_owned(), name: origin.name.clone() };
    let reference =
        TypedObjectReference { api_group: group, kind: kind.to_owned(), name: origin.name.clone(), namespace: None };
    (local, reference)
}

/// What a clone is made of.
struct Original {
    size: Option<i64>,
    mode: Option<String>,
    /// What the claim asked for.
    requested: Option<i64>,
    content: String,
}

impl Original {
    fn look(dv: &DataVolume, origin: &Origin, cluster: &dyn Cluster) -> Result<Self, NotYet> {
        let Origin { kind, namespace, name } = origin;
        let own = dv.metadata.namespace.as_deref().unwrap_or_default();
        if namespace != own {
            return Err(NotYet::new(
                reasons::CLONE_VALIDATION_FAILED,
                format!(
                    "The clone doesn't meet the validation requirements: the source is in namespace {namespace}, and \
                     this cluster clones within a namespace only; make a DataVolume of the source in namespace {own} \
                     first, by an import or an upload"
                ),
            ));
        }
        let missing = || {
            let message = format!("The source {} {name} doesn't exist", origin.word());
            NotYet::new(reasons::CLONE_WITHOUT_SOURCE, message)
        };
        match kind {
            OriginKind::Claim => {
                let claim = cluster.claim(namespace, name).ok_or_else(missing)?;
                let is_filled = is_filled(&claim);
                let of_volume = cluster.data_volume(namespace, name);
                let done = |dv: &DataVolume| {
                    dv.status.as_ref().and_then(|status| status.phase.as_ref())
                        == Some(&cdi::DataVolumePhase::Succeeded)
                };
                let ready = is_filled && of_volume.is_none_or(|volume| done(&volume) || !owns(&volume, &claim));
                let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
                if !ready || !bound {
                    return Err(NotYet::waiting(reasons::SOURCE_NOT_READY, "The source PVC is not fully imported"));
                }
                Ok(Self::of_claim(&claim))
            }
            OriginKind::Snapshot => {
                let snapshot = cluster.snapshot(namespace, name).ok_or_else(missing)?;
                let status = snapshot.status.clone().unwrap_or_default();
                if status.ready_to_use != Some(true) {
                    return Err(NotYet::waiting(
                        reasons::SNAPSHOT_NOT_READY,
                        format!("The source snapshot {name} is not ready to use"),
                    ));
                }
                let of = snapshot.spec.source.persistent_volume_claim_name.as_deref();
                let source = of.and_then(|name| cluster.claim(namespace, name));
                let of_claim = source.map(|claim| Self::of_claim(&claim));
                let content = of_claim.as_ref().map(|claim| claim.content.clone());
                Ok(Self {
                    size: status.restore_size.as_ref().and_then(bytes),
                    mode: of_claim.and_then(|claim| claim.mode),
                    requested: None,
                    content: content.unwrap_or_else(|| content_type(dv).to_owned()),
                })
            }
        }
    }

    fn of_claim(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(STORAGE));
        let held = meta::annotation(&claim.metadata, cdi::CONTENT_TYPE).filter(|kind| !kind.is_empty());
        Self {
            size: capacity.and_then(bytes),
            mode: Some(mode(&spec).to_owned()),
            requested: requested(&spec),
            content: held.unwrap_or(content::KUBEVIRT).to_owned(),
        }
    }

    /// The size of a clone that names none.
    fn size_for(&self) -> Option<i64> {
        self.size.max(self.requested)
    }

    /// A clone as large as its source was asked to be becomes as large as the source is: storage rounds sizes up, and makes no
    /// clone that is smaller.
    fn round_up(&self, spec: &mut PersistentVolumeClaimSpec) {
        let (Some(wanted), Some(size)) = (requested(spec), self.size) else { return };
        if wanted < size && self.requested.is_none_or(|requested| wanted >= requested) {
            let requests = spec.resources.get_or_insert_default().requests.get_or_insert_default();
            requests.insert(STORAGE.to_owned(), Wire(size.to_string()));
        }
    }

    /// Why the storage could not make such a clone.
    fn admit(&self, wanted: &str, spec: &PersistentVolumeClaimSpec) -> Result<(), String> {
        if self.content != wanted {
            return Err(format!(
                "source contentType ({}) and target contentType ({wanted}) do not match",
                self.content
            ));
        }
        if let Some(source) = self.mode.as_deref().filter(|source| *source != mode(spec)) {
            return Err(format!(
                "the source has volumeMode {source} and the target {}: this cluster clones within a mode only",
                mode(spec)
            ));
        }
        let least = self.requested.or(self.size).unwrap_or(0);
        match requested(spec) {
            Some(size) if size < least => {
                Err("target resources requests storage size is smaller than the source".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn owns(dv: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    dv.metadata.uid.as_deref().is_some_and(|uid| meta::is_controlled_by(&claim.metadata, uid))
}

/// Whether a claim is not about to be filled, or has been.
fn is_filled(claim: &PersistentVolumeClaim) -> bool {
    meta::annotation(&claim.metadata, keys::PHASE).is_none_or(|phase| phase == phases::SUCCEEDED)
}

pub(crate) fn requested(spec: &PersistentVolumeClaimSpec) -> Option<i64> {
    bytes(spec.resources.as_ref()?.requests.as_ref()?.get(STORAGE)?)
}

pub(crate) fn bytes(quantity: &Wire) -> Option<i64> {
    quantity.0.parse::<Quantity>().ok().map(Quantity::value)
}

fn from_storage(
    dv: &DataVolume,
    storage: &StorageSpec,
    original: Option<&Original>,
    cluster: &dyn Cluster,
) -> Result<PersistentVolumeClaimSpec, String> {
    let StorageSpec {
        access_modes,
        data_source,
        data_source_ref,
        resources,
        selector,
        storage_class_name,
        volume_mode,
        volume_name,
    } = storage;
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut spec = PersistentVolumeClaimSpec {
        access_modes: Some(access_modes.clone()).filter(|modes| !modes.is_empty()),
        data_source: data_source.clone(),
        data_source_ref: data_source_ref.clone(),
        resources: resources.clone(),
        selector: selector.clone(),
        storage_class_name: storage_class_name.clone(),
        volume_mode: set(volume_mode).filter(|mode| mode != FROM_PROFILE),
        volume_name: set(volume_name),
        volume_attributes_class_name: None,
    };
    if content_type(dv) == content::ARCHIVE {
        if spec.volume_mode.as_deref() == Some(BLOCK) {
            return Err("ContentType Archive cannot have block volumeMode".to_owned());
        }
        spec.volume_mode = Some(FILESYSTEM.to_owned());
    }
    // A clone is made within a mode.
    if spec.volume_mode.is_none() {
        spec.volume_mode = original.and_then(|original| original.mode.clone());
    }
    let for_disks = content_type(dv) == content::KUBEVIRT;
    match class_of(cluster, spec.storage_class_name.as_deref(), for_disks) {
        Some(class) => fill_in(&mut spec, &class, cluster)?,
        None if spec.access_modes.is_none() => {
            return Err("PVC spec is missing accessMode and no storageClass to choose profile".to_owned());
        }
        None => {}
    }
    let size = disk_size(&spec, original, cluster)?;
    let requests: BTreeMap<String, Wire> = [(STORAGE.to_owned(), Wire(size.to_string()))].into();
    let resources = spec.resources.take().unwrap_or_default();
    spec.resources = Some(VolumeResourceRequirements { requests: Some(requests), ..resources });
    Ok(spec)
}

/// The modes that the DataVolume leaves to the class.
fn fill_in(spec: &mut PersistentVolumeClaimSpec, class: &StorageClass, cluster: &dyn Cluster) -> Result<(), String> {
    let name = class.metadata.name.clone().unwrap_or_default();
    spec.storage_class_name = Some(name.clone());
    let sets =
        cluster.profile(&name).and_then(|profile| profile.status.clone()).unwrap_or_default().claim_property_sets;
    let usable = |set: &&ClaimPropertySet| !set.access_modes.is_empty();
    match (&spec.access_modes, &spec.volume_mode) {
        (Some(_), Some(_)) => {}
        (None, None) => {
            let first = sets.iter().find(usable);
            let first = first.ok_or_else(|| format!("no accessMode specified in StorageProfile {name}"))?;
            (spec.access_modes, spec.volume_mode) = (Some(first.access_modes.clone()), first.volume_mode.clone());
        }
        (None, Some(mode)) => {
            let fits = sets.iter().filter(usable).find(|set| set.volume_mode.as_ref() == Some(mode));
            let fits = fits.ok_or_else(|| format!("no matching accessMode specified in StorageProfile {name}"))?;
            spec.access_modes = Some(fits.access_modes.clone());
        }
        (Some(modes), None) => {
            let fits = sets.iter().find(|set| set.access_modes.iter().any(|mode| modes.contains(mode)));
            spec.volume_mode = fits.and_then(|set| set.volume_mode.clone());
        }
    }
    Ok(())
}

fn disk_size(
    spec: &PersistentVolumeClaimSpec,
    original: Option<&Original>,
    cluster: &dyn Cluster,
) -> Result<i64, String> {
    const MISSING: &str = "PVC Spec is not valid - missing storage size";
    let Some(size) = requested(spec).filter(|size| *size > 0) else {
        // That of a claim has its overhead in it already.
        return original.and_then(Original::size_for).ok_or_else(|| MISSING.to_owned());
    };
    if size < size::LEAST {
        return Err("PVC Spec is not valid - storage size should be at least 1MiB".to_owned());
    }
    if mode(spec) == BLOCK {
        return Ok(size);
    }
    Ok(size::required(overhead_of(cluster, spec.storage_class_name.as_deref()), size))
}

/// The share of a claim that its file system takes.
pub(crate) fn overhead_of(cluster: &dyn Cluster, class: Option<&str>) -> f64 {
    let overhead = cluster.overhead();
    let of_class = class.and_then(|class| overhead.storage_class.get(class));
    let text = of_class.or(overhead.global.as_ref()).map_or(cdi::DEFAULT_FILESYSTEM_OVERHEAD, String::as_str);
    size::share(text.parse().unwrap_or(0.0))
}

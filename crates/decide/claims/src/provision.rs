//! The request for a new volume, and the PersistentVolume that comes of it.

use api::volumesnapshot;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
    TypedObjectReference,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::quantity::Quantity;

use crate::action::{Content, Note, Provision, Seen, Voice};
use crate::claim::World;
use crate::read::{self, Phase};
use crate::{DRIVER, STORAGE_FINALIZER};

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The volume of a claim: derived, so that a second attempt finds what the first has made.
pub(crate) fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

/// What a claim is to be filled from, as it says.
pub enum DataSource<'a> {
    Claim(&'a str),
    Snapshot(&'a str),
    /// Something that only its own controller understands.
    Other(&'a TypedObjectReference),
}

/// What a claim is to be filled from.
pub fn data_source(claim: &PersistentVolumeClaim) -> Option<DataSource<'_>> {
    let reference = claim.spec.as_ref()?.data_source_ref.as_ref()?;
    let group = reference.api_group.as_deref().unwrap_or_default();
    Some(match (group, reference.kind.as_str()) {
        ("", "PersistentVolumeClaim") => DataSource::Claim(&reference.name),
        (volumesnapshot::GROUP, "VolumeSnapshot") => DataSource::Snapshot(&reference.name),
        _ => DataSource::Other(reference),
    })
}

/// The source that somebody else fills a volume from.
pub(crate) fn populator(claim: &PersistentVolumeClaim) -> Option<String> {
    match data_source(claim)? {
        DataSource::Claim(_) | DataSource::Snapshot(_) => None,
        DataSource::Other(reference) => Some(format!("{} {}", reference.kind, reference.name)),
    }
}

/// The event about a claim whose volume cannot be made.
pub(crate) fn failed(about: &Seen, class: &str, why: &str) -> Note {
    let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
    Note { about: about.clone(), from: Voice::Provisioner, warning: true, reason: "ProvisioningFailed", message }
}

/// The event about a volume that the storage has refused.
pub fn provisioning_failed(request: &Provision, why: &str) -> Note {
    failed(&request.claim, &request.class, why)
}

/// The event about a volume that is there.
pub fn provisioning_succeeded(request: &Provision) -> Note {
    let message = format!("Successfully provisioned volume {}", request.name);
    let (reason, from) = ("ProvisioningSucceeded", Voice::Provisioner);
    Note { about: request.claim.clone(), from, warning: false, reason, message }
}

/// The request for a claim's volume, or why it cannot be made yet.
pub(crate) fn request(w: &World<'_>, class: &StorageClass) -> Result<Provision, String> {
    let spec = w.claim.spec.as_ref().ok_or("the claim has no spec")?;
    let block = read::mode(spec.volume_mode.as_deref()) == "Block";
    let required = read::request(w.claim).value();
    let source = match data_source(w.claim) {
        None => None,
        Some(DataSource::Claim(name)) => Some(Content::Volume(from_claim(w, name)?)),
        Some(DataSource::Snapshot(name)) => Some(Content::Snapshot(from_snapshot(w, name, required)?)),
        Some(DataSource::Other(_)) => return Err("a volume populator has to fill the volume".to_owned()),
    };
    let name = volume_name(w.uid());
    Ok(Provision {
        claim: w.seen(),
        required,
        limit: read::limit(w.claim).map_or(0, Quantity::value),
        access_modes: spec.access_modes.clone().unwrap_or_default(),
        block,
        mount_options: class.mount_options.clone().unwrap_or_default(),
        parameters: class.parameters.clone().unwrap_or_default(),
        source,
        volume: volume(w, class, &name),
        class: class.metadata.name.clone().unwrap_or_default(),
        name,
    })
}

fn from_claim(w: &World<'_>, name: &str) -> Result<String, String> {
    let about =
        |why: String| format!("error getting handle for DataSource Type PersistentVolumeClaim by Name {name}: {why}");
    let Some(source) = w.source.claim else {
        let namespace = w.claim.metadata.namespace.as_deref().unwrap_or_default();
        return Err(about(format!(
            "error getting PVC {name} (namespace {namespace:?}) from api server: persistentvolumeclaims {name:?} not found"
        )));
    };
    if source.metadata.deletion_timestamp.is_some() {
        return Err(about(format!("the PVC DataSource {name} is currently being deleted")));
    }
    if read::claim_phase(source) != Phase::Bound {
        return Err(about(format!(
            "the PVC DataSource {name} must have a status of Bound. Got {}",
            read::claim_phase(source).as_str()
        )));
    }
    let volume = read::volume_name(source)
        .and_then(|volume| w.volumes.iter().find(|found| found.metadata.name.as_deref() == Some(volume)));
    let Some(volume) = volume else {
        return Err(about(format!("the PersistentVolume of PVC {name} does not exist")));
    };
    let Some(handle) = read::handle(volume) else {
        return Err(about(format!("the source volume of PVC {name} is not one of driver {DRIVER}")));
    };
    same_mode(w, volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref())).map_err(about)?;
    let (asked, there) = (read::request(w.claim), read::capacity(volume));
    if asked < there {
        return Err(about(format!(
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {} \
             but source is {}",
            asked.value(),
            there.value()
        )));
    }
    Ok(handle.to_owned())
}

fn from_snapshot(w: &World<'_>, name: &str, required: i64) -> Result<String, String> {
    let about = |why: String| format!("error getting handle for DataSource Type VolumeSnapshot by Name {name}: {why}");
    let Some(snapshot) = w.source.snapshot else {
        return Err(about(format!(
            "error getting snapshot {name} from api server: volumesnapshots.snapshot.storage.k8s.io {name:?} not found"
        )));
    };
    if snapshot.metadata.deletion_timestamp.is_some() {
        return Err(about(format!("snapshot {name} is currently being deleted")));
    }
    let ready = snapshot.status.as_ref().and_then(|status| status.ready_to_use) == Some(true);
    let content = w.source.content.filter(|_| ready);
    let Some(content) = content else { return Err(about(format!("snapshot {name} is not Ready"))) };
    if content.spec.driver != DRIVER {
        return Err(about(format!("snapshot {name} is not one of driver {DRIVER}")));
    }
    if content.spec.volume_snapshot_ref.uid != snapshot.metadata.uid {
        return Err(about(format!("snapshot {name} and its content do not name each other")));
    }
    let status = content.status.as_ref();
    let Some(handle) = status.and_then(|status| status.snapshot_handle.as_deref()) else {
        return Err(about(format!("snapshot handle of {name} is not available")));
    };
    same_mode(w, content.spec.source_volume_mode.as_deref()).map_err(about)?;
    let size = status.and_then(|status| status.restore_size).unwrap_or_default();
    if required < size {
        return Err(about(format!(
            "requested volume size {required} is less than the size {size} for the source snapshot {name}"
        )));
    }
    Ok(handle.to_owned())
}

/// A directory is not copied to a block device, nor the other way round.
fn same_mode(w: &World<'_>, source: Option<&str>) -> Result<(), String> {
    let wanted = read::mode(w.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()));
    match source.map(|mode| read::mode(Some(mode))) {
        Some(mode) if mode != wanted => {
            Err(format!("requested volume {} modifies the mode of the source volume from {mode} to {wanted}", w.name()))
        }
        _ => Ok(()),
    }
}

fn volume(w: &World<'_>, class: &StorageClass, name: &str) -> PersistentVolume {
    let metadata = &w.claim.metadata;
    let spec = w.claim.spec.as_ref();
    let reference = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
    };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(PROVISIONED_BY.to_owned(), DRIVER.to_owned())].into()),
            finalizers: Some(vec![STORAGE_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.and_then(|spec| spec.access_modes.clone()),
            claim_ref: Some(reference),
            csi: Some(CSIPersistentVolumeSource { driver: DRIVER.to_owned(), ..CSIPersistentVolumeSource::default() }),
            mount_options: class.mount_options.clone().filter(|options| !options.is_empty()),
            persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some(read::mode(spec.and_then(|spec| spec.volume_mode.as_deref())).to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// The PersistentVolume of a volume that the storage has made.
pub fn complete(request: &Provision, handle: &str, capacity: u64) -> PersistentVolume {
    let mut volume = request.volume.clone();
    let spec = volume.spec.get_or_insert_default();
    if let Some(csi) = &mut spec.csi {
        csi.volume_handle = handle.to_owned();
    }
    spec.capacity = Some([("storage".to_owned(), bytes(capacity))].into());
    volume
}

pub(crate) fn bytes(count: u64) -> Wire {
    Wire(Quantity::bytes(i64::try_from(count).unwrap_or(i64::MAX)).to_string())
}

//! What claims and volumes say, without the nesting.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::quantity::Quantity;

use crate::DRIVER;

/// Phases of volumes and of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
    Lost,
}

impl Phase {
    fn parse(phase: Option<&str>) -> Self {
        match phase {
            Some("Available") => Self::Available,
            Some("Bound") => Self::Bound,
            Some("Released") => Self::Released,
            Some("Failed") => Self::Failed,
            Some("Lost") => Self::Lost,
            _ => Self::Pending,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Bound => "Bound",
            Self::Released => "Released",
            Self::Failed => "Failed",
            Self::Lost => "Lost",
        }
    }
}

pub fn volume_phase(volume: &PersistentVolume) -> Phase {
    Phase::parse(volume.status.as_ref().and_then(|status| status.phase.as_deref()))
}

pub fn claim_phase(claim: &PersistentVolumeClaim) -> Phase {
    Phase::parse(claim.status.as_ref().and_then(|status| status.phase.as_deref()))
}

/// A claim or a volume that says nothing is a file system.
pub(crate) fn mode(mode: Option<&str>) -> &str {
    mode.filter(|mode| !mode.is_empty()).unwrap_or("Filesystem")
}

pub(crate) fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The claim that a volume belongs to: namespace, name and UID, which is empty if the reference was made by hand.
pub fn claim_of(volume: &PersistentVolume) -> Option<(&str, &str, &str)> {
    let reference = claim_ref(volume)?;
    Some((reference.namespace.as_deref()?, reference.name.as_deref()?, reference.uid.as_deref().unwrap_or_default()))
}

/// The volume that a claim names.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

pub(crate) fn volume_class(volume: &PersistentVolume) -> &str {
    let old = volume.metadata.annotations.as_ref().and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let named = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    old.or(named).map(String::as_str).unwrap_or_default()
}

/// The handle of a volume that our driver has made.
pub fn handle(volume: &PersistentVolume) -> Option<&str> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    (csi.driver == DRIVER).then_some(csi.volume_handle.as_str())
}

fn amount(quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Option<Quantity> {
    quantity?.0.parse().ok()
}

/// What a claim asks for; nothing if that cannot be read.
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    request(claim)
}

pub(crate) fn request(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    amount(requests.and_then(|requests| requests.get("storage"))).unwrap_or(Quantity::ZERO)
}

/// The most a claim may get.
pub(crate) fn limit(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    amount(resources.and_then(|resources| resources.limits.as_ref()).and_then(|limits| limits.get("storage")))
}

/// What a claim has.
pub(crate) fn size(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    amount(claim.status.as_ref().and_then(|status| status.capacity.as_ref()).and_then(|all| all.get("storage")))
}

pub(crate) fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    amount(capacity.and_then(|capacity| capacity.get("storage"))).unwrap_or(Quantity::ZERO)
}

pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|other| other == finalizer)
}

/// All finalizers but this one.
pub(crate) fn finalizers_without(metadata: &ObjectMeta, finalizer: &str) -> Vec<String> {
    metadata.finalizers.iter().flatten().filter(|other| *other != finalizer).cloned().collect()
}

/// All finalizers and this one.
pub(crate) fn finalizers_with(metadata: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let others = finalizers_without(metadata, finalizer);
    others.into_iter().chain([finalizer.to_owned()]).collect()
}

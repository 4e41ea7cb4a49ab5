//! The kinds in group `snapshot.storage.k8s.io`: snapshots of claims, and what of them is in the storage.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::{expect, resource};

/// The group of this module's kinds.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// On VolumeSnapshots: a volume is being made from them.
pub const AS_SOURCE_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// On VolumeSnapshots: their content is there.
pub const BOUND_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// On VolumeSnapshotContents: they have a VolumeSnapshot.
pub const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// On claims: a snapshot of them is being taken.
pub const CLAIM_FINALIZER: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

resource! {
    /// A user's snapshot of a claim.
    VolumeSnapshot, "snapshot.storage.k8s.io" / "v1" / "volumesnapshots",
    spec: VolumeSnapshotSpec, status: VolumeSnapshotStatus
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    pub source: VolumeSnapshotSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// Exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    /// The claim to take a snapshot of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// The content that exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_name: Option<String>,
}

/// Why a snapshot is not there yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

resource! {
    /// A snapshot in the storage.
    VolumeSnapshotContent, cluster "snapshot.storage.k8s.io" / "v1" / "volumesnapshotcontents",
    spec: VolumeSnapshotContentSpec, status: VolumeSnapshotContentStatus
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// `Delete` or `Retain`: what happens to the snapshot in the storage when the VolumeSnapshot goes.
    pub deletion_policy: String,
    pub driver: String,
    pub source: VolumeSnapshotContentSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    pub volume_snapshot_ref: ObjectReference,
}

/// Exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotContentSource {
    /// The storage's name of a snapshot that exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The storage's name of the volume to take a snapshot of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    /// In nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

/// How snapshots are taken. It has no spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeSnapshotClass {
    pub metadata: ObjectMeta,
    pub driver: String,
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    pub parameters: Option<BTreeMap<String, String>>,
}

impl k8s_openapi::Resource for VolumeSnapshotClass {
    const API_VERSION: &'static str = "snapshot.storage.k8s.io/v1";
    const GROUP: &'static str = GROUP;
    const KIND: &'static str = "VolumeSnapshotClass";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "volumesnapshotclasses";
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::ListableResource for VolumeSnapshotClass {
    const LIST_KIND: &'static str = "VolumeSnapshotClassList";
}

impl k8s_openapi::Metadata for VolumeSnapshotClass {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A class as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<ObjectMeta>,
    #[serde(default)]
    driver: String,
    #[serde(default)]
    deletion_policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BTreeMap<String, String>>,
}

impl Serialize for VolumeSnapshotClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire {
            api_version: Some(<Self as k8s_openapi::Resource>::API_VERSION.to_owned()),
            kind: Some(<Self as k8s_openapi::Resource>::KIND.to_owned()),
            metadata: Some(self.metadata.clone()),
            driver: self.driver.clone(),
            deletion_policy: self.deletion_policy.clone(),
            parameters: self.parameters.clone(),
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for VolumeSnapshotClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { api_version, kind, metadata, driver, deletion_policy, parameters } =
            Wire::deserialize(deserializer)?;
        expect::<Self, D::Error>(api_version.as_deref(), kind.as_deref())?;
        Ok(Self { metadata: metadata.unwrap_or_default(), driver, deletion_policy, parameters })
    }
}

//! The parts of the kinds in group `cdi.kubevirt.io`, served by the Containerized Data Importer, that our controllers
//! read.
//!
//! A virtual machine's DataVolumes are the only objects of this group that we create. Nothing here is ever written back
//! as a whole, so fields that we do not use are left out and lost when an object is read. Without an installed importer
//! there are no such objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::{ConditionStatus, DataVolumeSourcePVC, DataVolumeSourceSnapshot, DataVolumeSpec, Empty};

/// The group of this module's kinds.
pub const GROUP: &str = "cdi.kubevirt.io";

/// The group of requests for upload tokens.
pub const UPLOAD_GROUP: &str = "upload.cdi.kubevirt.io";

/// On DataVolumes: a claim of the same name that already exists is taken over.
pub const ALLOW_CLAIM_ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";
/// On claims, as a label: missing access and volume modes are filled in from the storage class's profile.
pub const APPLY_STORAGE_PROFILE: &str = "cdi.kubevirt.io/applyStorageProfile";
/// On DataVolumes: the named claim already holds the data.
pub const PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
/// On claims: the DataVolume that the claim was filled for.
pub const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// On claims: whether they hold a disk (`kubevirt`) or a directory (`archive`).
pub const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// On claims: the content is bound at once, even where the class waits for a first consumer.
pub const IMMEDIATE_BINDING: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
/// Part of an annotation on claims that says that all space was written once.
pub const PREALLOCATION_SUFFIX: &str = "/storage.preallocation";
/// Part of an annotation on claims that says that the storage reserves all space.
pub const THICK_PROVISIONED_SUFFIX: &str = "/storage.thick-provisioned";

/// Condition of DataVolumes and DataSources: the content is there.
pub const CONDITION_READY: &str = "Ready";
/// Condition of DataVolumes: the claim is bound.
pub const CONDITION_BOUND: &str = "Bound";
/// Condition of DataVolumes: the transfer runs.
pub const CONDITION_RUNNING: &str = "Running";

/// Reason of the condition `Bound`: the namespace's quota has no room for the claim.
pub const REASON_EXCEEDED_QUOTA: &str = "ErrExceededQuota";
/// Reason of the condition `Running`: the transfer failed.
pub const REASON_ERROR: &str = "Error";
/// Reason of the condition `Running`: the image of the transfer could not be pulled.
pub const REASON_IMAGE_PULL_FAILED: &str = "ImagePullFailed";

resource! {
    /// A claim and where its content comes from.
    DataVolume, "cdi.kubevirt.io" / "v1beta1" / "datavolumes",
    spec: DataVolumeSpec, status: DataVolumeStatus
}

/// How far a DataVolume got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// The claim, if it is not called like the DataVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<DataVolumePhase>,
    /// The progress, such as `42.0%`; `N/A` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
}

/// A condition of the importer's kinds, which tell the time of the last sign of life instead of that of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub status: ConditionStatus,
    #[serde(rename = "type")]
    pub type_: String,
}

open_enum! {
    /// Where a DataVolume stands.
    DataVolumePhase {
        /// Nothing has happened yet.
        Pending,
        /// The claim is bound.
        PVCBound,
        /// An import is about to start.
        ImportScheduled,
        /// An import runs.
        ImportInProgress,
        /// A clone is about to start.
        CloneScheduled,
        /// A clone runs by copying.
        CloneInProgress,
        /// A clone runs: its source is being snapshotted.
        SnapshotForSmartCloneInProgress,
        /// A clone runs: it is being made from a snapshot.
        CloneFromSnapshotSourceInProgress,
        /// A clone runs: its claim is being made.
        SmartClonePVCInProgress,
        /// A clone runs inside the storage.
        CSICloneInProgress,
        /// The volume is being enlarged.
        ExpansionInProgress,
        /// The claim is on its way into another namespace.
        NamespaceTransferInProgress,
        /// A claim is being prepared for a clone.
        PrepClaimInProgress,
        /// A volume is being handed to its final claim.
        RebindInProgress,
        /// An upload is about to be possible.
        UploadScheduled,
        /// An upload can begin.
        UploadReady,
        /// The storage waits for a Pod to use the claim.
        WaitForFirstConsumer,
        /// The claim exists and is filled once a Pod uses it.
        PendingPopulation,
        /// The content is there.
        Succeeded,
        /// The content will not come.
        Failed,
        /// The state is unknown.
        Unknown,
        /// A transfer in stages waits for its next stage.
        Paused,
    }
}

resource! {
    /// A named source of disks that others can follow without knowing which volume is the current one.
    DataSource, "cdi.kubevirt.io" / "v1beta1" / "datasources",
    spec: DataSourceSpec, status: DataSourceStatus
}

/// What a DataSource points to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataSourceSpec {
    pub source: DataSourceSource,
}

/// What a DataSource points to; one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataSourceSource {
    /// Another DataSource to follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSourceReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<DataVolumeSourcePVC>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DataVolumeSourceSnapshot>,
}

/// Another DataSource by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataSourceReference {
    pub name: String,
    pub namespace: String,
}

/// Where following a DataSource ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataSourceStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    /// The claim or snapshot at the end of the chain.
    pub source: DataSourceSource,
}

resource! {
    /// What the importer knows about a storage class, under the class's name.
    StorageProfile, cluster "cdi.kubevirt.io" / "v1beta1" / "storageprofiles",
    spec: StorageProfileSpec, status: StorageProfileStatus
}

/// What an administrator says about a storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageProfileSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub claim_property_sets: Vec<ClaimPropertySet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
}

/// What holds for a storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageProfileStatus {
    /// The combinations of modes that the class can serve, best first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub claim_property_sets: Vec<ClaimPropertySet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// The class for snapshots of this class's volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// Modes that go together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimPropertySet {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub access_modes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

resource! {
    /// The importer's settings in force. There is one, called [`CONFIG_NAME`].
    CDIConfig, cluster "cdi.kubevirt.io" / "v1beta1" / "cdiconfigs",
    spec: Empty, status: CDIConfigStatus
}

/// The name of the one CDIConfig.
pub const CONFIG_NAME: &str = "config";

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CDIConfigStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// Where uploads from outside the cluster go.
    #[serde(rename = "uploadProxyURL", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url: Option<String>,
}

/// The fraction of a volume that its file system takes, as numbers from 0 to 1 in text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FilesystemOverhead {
    /// The fraction for classes that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<String>,
    /// The fraction by storage class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub storage_class: BTreeMap<String, String>,
}

/// The default file system overhead.
pub const DEFAULT_FILESYSTEM_OVERHEAD: &str = "0.055";

resource! {
    /// The importer's installation. Its presence says that the settings in [`CDIConfig`] are alive.
    CDI, cluster "cdi.kubevirt.io" / "v1beta1" / "cdis",
    spec: Empty, status: CDIStatus
}

/// Where the importer's installation stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CDIStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

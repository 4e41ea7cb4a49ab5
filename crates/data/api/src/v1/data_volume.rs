//! DataVolume templates of a virtual machine.

use super::Empty;
use crate::kind::null_as_empty;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

/// A DataVolume that is created with the virtual machine and belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    pub spec: DataVolumeSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Empty>,
}

/// How a DataVolume's claim looks and where its content comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub checkpoints: Vec<DataVolumeCheckpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PersistentVolumeClaimSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DataVolumeSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<DataVolumeSourceRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
}

/// One stage of a multi-stage import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeCheckpoint {
    pub current: String,
    pub previous: String,
}

/// Where a DataVolume's content comes from; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blank: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs: Option<DataVolumeSourceGCS>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<DataVolumeSourceHTTP>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imageio: Option<DataVolumeSourceImageIO>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<DataVolumeSourcePVC>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<DataVolumeSourceRegistry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<DataVolumeSourceS3>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DataVolumeSourceSnapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vddk: Option<DataVolumeSourceVDDK>,
}

/// An object in Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceGCS {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    pub url: String,
}

/// A file behind an HTTP or HTTPS address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceHTTP {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// `md5:…`, `sha1:…`, `sha256:…` or `sha512:…`. DataVolumes have it; the schema of templates does not have it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub extra_headers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub secret_extra_headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    pub url: String,
}

/// A disk served by oVirt's imageio.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceImageIO {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    pub disk_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    pub url: String,
}

/// An existing claim to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourcePVC {
    pub name: String,
    pub namespace: String,
}

/// A disk inside a container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceRegistry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Which platform of a multi-platform image to import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PlatformOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// An object in an S3 store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceS3 {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    pub url: String,
}

/// An existing volume snapshot to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceSnapshot {
    pub name: String,
    pub namespace: String,
}

/// A disk of a VMware virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceVDDK {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<String>,
    #[serde(rename = "initImageURL", skip_serializing_if = "Option::is_none")]
    pub init_image_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// A DataSource object that names the real source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataVolumeSourceRef {
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A claim whose missing fields come from the storage profile of its class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub access_modes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<TypedLocalObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<TypedObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<VolumeResourceRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
}

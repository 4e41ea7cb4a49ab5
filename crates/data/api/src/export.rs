//! The group `export.kubevirt.io`: disks and manifests offered for download.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::Condition;

/// The group of this module's kinds.
pub const GROUP: &str = "export.kubevirt.io";

resource! {
    /// Volumes of a virtual machine, a snapshot, a backup or a claim, offered for download for a while.
    VirtualMachineExport, "export.kubevirt.io" / "v1" / "virtualmachineexports",
    spec: VirtualMachineExportSpec, status: VirtualMachineExportStatus
}

/// What to export and for how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportSpec {
    pub source: TypedLocalObjectReference,
    /// The secret whose token readers must show; made if it is not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    /// How long the export stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_duration: Option<String>,
}

/// How far an export got and where it can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<VirtualMachineExportLinks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineExportPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_expiration_time: Option<Time>,
    /// The virtual machine that the exported volumes belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_name: Option<String>,
}

open_enum! {
    /// Where an export stands.
    VirtualMachineExportPhase {
        /// It is being prepared.
        Pending,
        /// It can be read.
        Ready,
        /// It has ended.
        Terminated,
        /// The source has nothing to export.
        Skipped,
    }
}

/// Where an export can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportLinks {
    /// Addresses for readers outside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<VirtualMachineExportLink>,
    /// Addresses for readers inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<VirtualMachineExportLink>,
}

/// Addresses of one network, with the authority to verify them by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportLink {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub backups: Vec<VirtualMachineExportBackup>,
    pub cert: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub manifests: Vec<VirtualMachineExportManifest>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volumes: Vec<VirtualMachineExportVolume>,
}

/// A volume and the forms it is offered in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportVolume {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub formats: Vec<VirtualMachineExportVolumeFormat>,
    pub name: String,
}

/// One form of a volume and its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportVolumeFormat {
    pub format: ExportVolumeFormat,
    pub url: String,
}

open_enum! {
    /// A form that a volume is offered in.
    ExportVolumeFormat {
        /// The disk as it is.
        KubeVirtRaw = "raw",
        /// The disk, compressed.
        KubeVirtGz = "gzip",
        /// A directory, file by file.
        Dir = "dir",
        /// A directory as a compressed archive.
        ArchiveGz = "tar.gz",
    }
}

/// A backed up volume and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportBackup {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub endpoints: Vec<VirtualMachineExportBackupEndpoint>,
    pub name: String,
}

/// One view of a backed up volume and its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportBackupEndpoint {
    pub endpoint: ExportBackupEndpoint,
    pub url: String,
}

open_enum! {
    /// A view of a backed up volume.
    ExportBackupEndpoint {
        /// Which blocks hold data.
        Map = "map",
        /// The blocks.
        Data = "data",
    }
}

/// A set of manifests and its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineExportManifest {
    #[serde(rename = "type")]
    pub type_: ExportManifestType,
    pub url: String,
}

open_enum! {
    /// A set of manifests.
    ExportManifestType {
        /// Everything needed to make the virtual machine again.
        AllManifests = "all",
        /// The secret with the token for importing.
        AuthHeader = "auth-header-secret",
        /// The index of the OCI artifact.
        Oci = "oci",
    }
}

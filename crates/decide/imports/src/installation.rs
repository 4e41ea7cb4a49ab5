//! The objects by which clients and controllers find an importer: the installation, its settings, and a profile for each
//! storage class.

use api::cdi::{
    self, CDI, CDIConfig, CDIConfigStatus, CDIStatus, ClaimPropertySet, FilesystemOverhead, StorageProfile,
    StorageProfileStatus,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::claim::{BLOCK, FILESYSTEM};
use crate::decide::DRIVER;

/// The name of the one installation.
pub const INSTALLATION: &str = "cdi";

/// The installation, as one that has been deployed.
pub fn installation() -> CDI {
    let metadata = ObjectMeta { name: Some(INSTALLATION.to_owned()), ..ObjectMeta::default() };
    CDI { metadata, spec: Default::default(), status: Some(CDIStatus { phase: Some("Deployed".to_owned()) }) }
}

/// The settings.
pub fn config() -> CDIConfig {
    let metadata = ObjectMeta { name: Some(cdi::CONFIG_NAME.to_owned()), ..ObjectMeta::default() };
    CDIConfig { metadata, ..CDIConfig::default() }
}

/// What the settings say: where uploads go, and how much of a claim its file system takes.
pub fn config_status(upload_proxy_url: Option<String>, scratch: Option<String>) -> CDIConfigStatus {
    CDIConfigStatus {
        filesystem_overhead: Some(FilesystemOverhead {
            global: Some(cdi::DEFAULT_FILESYSTEM_OVERHEAD.to_owned()),
            storage_class: Default::default(),
        }),
        scratch_space_storage_class: scratch,
        upload_proxy_url,
    }
}

/// The profile of a class that has none.
pub fn profile(class: &StorageClass) -> StorageProfile {
    let metadata = ObjectMeta { name: class.metadata.name.clone(), ..ObjectMeta::default() };
    StorageProfile { metadata, ..StorageProfile::default() }
}

/// What holds for a class: what the administrator says in the profile, or what its storage can do.
///
/// Of the modes that our driver can serve, ReadWriteMany comes first, since guests on it can be migrated without a copy, and
/// every node sees the pool. Filesystem comes before Block: a volume is a directory of the pool then, and its disk a sparse
/// file, which needs no loop device on the node. Upstream knows no modes for a driver that it does not know.
pub fn profile_status(profile: &StorageProfile, class: &StorageClass) -> StorageProfileStatus {
    let set = |access: &str, mode: &str| ClaimPropertySet {
        access_modes: vec![access.to_owned()],
        volume_mode: Some(mode.to_owned()),
    };
    let said = &profile.spec.claim_property_sets;
    let ours = class.provisioner == DRIVER;
    let claim_property_sets = match (said.is_empty(), ours) {
        (false, _) => said.clone(),
        (true, true) => vec![
            set("ReadWriteMany", FILESYSTEM),
            set("ReadWriteMany", BLOCK),
            set("ReadWriteOnce", FILESYSTEM),
            set("ReadWriteOnce", BLOCK),
        ],
        (true, false) => vec![],
    };
    StorageProfileStatus {
        claim_property_sets,
        provisioner: Some(class.provisioner.clone()),
        snapshot_class: profile.spec.snapshot_class.clone(),
        storage_class: class.metadata.name.clone(),
    }
}

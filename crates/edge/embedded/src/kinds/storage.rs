//! PersistentVolumes, their claims and storage classes. This server has no provisioner: whoever creates a volume binds
//! its claim.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Plain, list_at, text_at};
use crate::table::{AGE, Column, NAME};

pub(super) fn plain() -> Vec<Plain> {
    vec![
        Plain {
            definition: CLAIM,
            columns: CLAIM_COLUMNS,
            warning: Some("no provisioner runs in this server: the claim waits until a volume is bound to it by hand"),
        },
        Plain { definition: VOLUME, columns: VOLUME_COLUMNS, warning: None },
        Plain {
            definition: CLASS,
            columns: CLASS_COLUMNS,
            warning: Some("no provisioner runs in this server: the class is kept and provisions nothing"),
        },
    ]
}

const CLAIM: Definition = Definition {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    namespaced: true,
    status: true,
    fields: Fields::of::<PersistentVolumeClaim>(),
    ..KIND
};

const VOLUME: Definition = Definition {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    namespaced: false,
    status: true,
    fields: Fields::of::<PersistentVolume>(),
    ..KIND
};

const CLASS: Definition = Definition {
    group: "storage.k8s.io",
    version: "v1",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    namespaced: false,
    fields: Fields::of::<StorageClass>(),
    ..KIND
};

const CLAIM_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Status", |claim, _| json!(phase(claim))),
    Column::text("Volume", ".spec.volumeName"),
    Column::text("Capacity", ".status.capacity.storage"),
    Column::with("Access Modes", |claim, _| json!(access_modes(claim, "status.accessModes"))),
    Column::text("StorageClass", ".spec.storageClassName"),
    AGE,
    Column::text("VolumeMode", ".spec.volumeMode").wide(),
];

const VOLUME_COLUMNS: &[Column] = &[
    NAME,
    Column::text("Capacity", ".spec.capacity.storage"),
    Column::with("Access Modes", |volume, _| json!(access_modes(volume, "spec.accessModes"))),
    Column::text("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
    Column::with("Status", |volume, _| json!(phase(volume))),
    Column::with("Claim", |volume, _| json!(claim(volume))),
    Column::text("StorageClass", ".spec.storageClassName"),
    Column::text("Reason", ".status.reason"),
    AGE,
    Column::text("VolumeMode", ".spec.volumeMode").wide(),
];

const CLASS_COLUMNS: &[Column] = &[
    NAME,
    Column::text("Provisioner", ".provisioner"),
    Column::text("ReclaimPolicy", ".reclaimPolicy"),
    Column::text("VolumeBindingMode", ".volumeBindingMode"),
    Column::with("AllowVolumeExpansion", |class, _| json!(class["allowVolumeExpansion"] == Value::Bool(true))),
    AGE,
];

fn phase(object: &Value) -> &str {
    if object["metadata"].get("deletionTimestamp").is_some() { "Terminating" } else { text_at(object, "status.phase") }
}

fn claim(volume: &Value) -> String {
    match text_at(volume, "spec.claimRef.name") {
        "" => String::new(),
        name => format!("{}/{name}", text_at(volume, "spec.claimRef.namespace")),
    }
}

fn access_modes(object: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    list_at(object, path).iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

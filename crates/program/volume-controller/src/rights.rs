//! RBAC of the volume controller.

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use informer::Recorder;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::rights::Verb::{Create, Delete, Get, List, Patch, Watch};
use machinery::rights::{Identity, Program, Right};

const RIGHTS: &[Right] = &[
    Right::on::<PersistentVolumeClaim>(&[Get, List, Watch, Patch]),
    Right::on_status::<PersistentVolumeClaim>(&[Patch]),
    Right::on::<PersistentVolume>(&[Get, List, Watch, Create, Patch, Delete]),
    Right::on_status::<PersistentVolume>(&[Patch]),
    Right::on::<VolumeSnapshot>(&[Get, List, Watch, Patch]),
    Right::on_status::<VolumeSnapshot>(&[Patch]),
    Right::on::<VolumeSnapshotContent>(&[Get, List, Watch, Create, Patch, Delete]),
    Right::on_status::<VolumeSnapshotContent>(&[Patch]),
    Right::watch::<VolumeSnapshotClass>(),
    Right::watch::<StorageClass>(),
    Right::watch::<Pod>(),
    Right::watch::<Node>(),
    Recorder::RIGHT,
];

/// The program with its rights.
pub fn program() -> Program {
    Program { name: "volume-controller", identity: Identity::Account, rights: RIGHTS.to_vec() }
}

//! RBAC of a node's Pod runner.

use informer::Recorder;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use machinery::rights::Verb::{Create, Delete, Get, Patch, Update};
use machinery::rights::{Identity, Program, Right};

const RIGHTS: &[Right] = &[
    Right::on::<Node>(&[Get, Create, Patch]),
    Right::on_status::<Node>(&[Patch]),
    Right::watch::<Pod>(),
    Right::on::<Pod>(&[Get, Delete]),
    Right::on_status::<Pod>(&[Update]),
    Right::on::<ConfigMap>(&[Get]),
    Right::on::<Secret>(&[Get]),
    Right::on::<PersistentVolumeClaim>(&[Get]),
    Right::watch::<PersistentVolume>(),
    Right::on::<PersistentVolume>(&[Get]),
    Recorder::RIGHT,
];

/// The program with its rights, granted to everyone with a node's certificate.
pub fn program() -> Program {
    Program { name: "system:node", identity: Identity::Group("system:nodes"), rights: RIGHTS.to_vec() }
}

//! RBAC of virt-handler.

use api::rights::Verb::{Get, Patch, Update};
use api::rights::{Identity, Program, Right};
use api::v1::{KubeVirt, VirtualMachineInstance};
use informer::Recorder;
use k8s_openapi::api::core::v1::Node;

const RIGHTS: &[Right] = &[
    Right::watch::<VirtualMachineInstance>(),
    Right::on::<VirtualMachineInstance>(&[Get, Update]),
    Right::watch::<KubeVirt>(),
    Right::on::<Node>(&[Get, Patch]),
    Recorder::RIGHT,
];

/// The program with its rights.
pub fn program() -> Program {
    Program { name: "kubevirt-handler", identity: Identity::Account, rights: RIGHTS.to_vec() }
}

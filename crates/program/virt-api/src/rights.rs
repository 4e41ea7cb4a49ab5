//! What virt-api may do with the API in its own name. What users may do through it is for their own roles to say.

use api::rights::Verb::{Create, Get, List, Patch};
use api::rights::{Identity, Program, Right};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use k8s_openapi::api::core::v1::{Node, Pod};

const RIGHTS: &[Right] = &[
    Right::on::<VirtualMachine>(&[Get, Patch]),
    Right::on_status::<VirtualMachine>(&[Patch]),
    Right::on::<VirtualMachineInstance>(&[Get, Patch]),
    Right::on::<VirtualMachineInstanceMigration>(&[Create]),
    Right::on::<Node>(&[Get]),
    // Where node agents are Pods.
    Right::on::<Pod>(&[List]).in_installation(),
    // The configuration, which admission follows as well.
    Right::watch::<KubeVirt>().in_installation(),
    Right::on::<KubeVirt>(&[Get]).in_installation(),
];

/// The program with all it may do.
pub fn program() -> Program {
    Program { name: "kubevirt-apiserver", identity: Identity::Account, rights: RIGHTS.to_vec() }
}

//! RBAC of virt-api's own account. What users may do through it is up to their own roles.

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
    // Where virt-handler runs in Pods.
    Right::on::<Pod>(&[List]).in_installation(),
    // The cluster configuration, which admission follows too.
    Right::watch::<KubeVirt>().in_installation(),
    Right::on::<KubeVirt>(&[Get]).in_installation(),
];

/// The program with its rights.
pub fn program() -> Program {
    Program { name: "kubevirt-apiserver", identity: Identity::Account, rights: RIGHTS.to_vec() }
}

//! RBAC of virt-api's own account. What users may do through it is up to their own roles.

use api::backup::VirtualMachineBackup;
use api::cdi::CDIConfig;
use api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineClusterPreference, VirtualMachineInstancetype,
    VirtualMachinePreference,
};
use api::rights::Verb::{Create, Get, List, Patch};
use api::rights::{Identity, Program, Right};
use api::snapshot::{VirtualMachineRestore, VirtualMachineSnapshot, VirtualMachineSnapshotContent};
use api::v1::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstancePreset,
    VirtualMachineInstanceReplicaSet,
};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};

use crate::server::READ_KINDS;

const RIGHTS: &[Right] = &[
    Right::on::<VirtualMachine>(&[Get, Patch]),
    Right::on_status::<VirtualMachine>(&[Patch]),
    Right::on::<VirtualMachineInstance>(&[Get, Patch]),
    Right::on::<VirtualMachineInstanceMigration>(&[Create]),
    Right::on::<Node>(&[Get]),
    // The claim of a memory dump, and what its file system needs for itself.
    Right::on::<PersistentVolumeClaim>(&[Get]),
    Right::on::<CDIConfig>(&[Get]),
    // Where virt-handler runs in Pods.
    Right::on::<Pod>(&[List]).in_installation(),
    // The cluster configuration, which admission follows too.
    Right::watch::<KubeVirt>().in_installation(),
];

/// What the webhooks need in addition, where they are called over HTTP: in the embedded shape they are part of the API
/// server.
const WEBHOOKS: &[Right] = &[
    Right::on::<SubjectAccessReview>(&[Create]),
    Right::on::<VirtualMachine>(&[Get, List]),
    Right::on::<VirtualMachineInstance>(&[Get, List]),
    Right::on::<VirtualMachineInstanceMigration>(&[List]),
    Right::on::<VirtualMachineInstanceReplicaSet>(&[List]),
    Right::on::<VirtualMachineInstancePreset>(&[List]),
    Right::on::<KubeVirt>(&[List]),
    Right::on::<VirtualMachineInstancetype>(&[Get]),
    Right::on::<VirtualMachineClusterInstancetype>(&[Get]),
    Right::on::<VirtualMachinePreference>(&[Get]),
    Right::on::<VirtualMachineClusterPreference>(&[Get]),
    Right::on::<VirtualMachineSnapshot>(&[Get]),
    Right::on::<VirtualMachineSnapshotContent>(&[Get]),
    Right::on::<VirtualMachineRestore>(&[List]),
    Right::on::<VirtualMachineBackup>(&[List]),
];

/// The program with its rights on Kubernetes.
pub fn program_on_kubernetes() -> Program {
    let read = READ_KINDS.iter().map(|kind| Right::named(kind.group, kind.plural, &[Get]));
    let rights = RIGHTS.iter().chain(WEBHOOKS).copied().chain(read).collect();
    Program { rights, ..program() }
}

/// The program with its rights in the embedded shape.
pub fn program() -> Program {
    Program { name: "kubevirt-apiserver", identity: Identity::Account, rights: RIGHTS.to_vec() }
}

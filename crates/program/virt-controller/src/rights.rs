//! What virt-controller may do: what its caches watch, what each controller reads live and writes, and what the program
//! itself needs.
//!
//! Whoever creates an object reads it as well: one of the same name may be there already.

use api::cdi::DataVolume;
use api::rights::Verb::{Create, Delete, Get, List, Patch, Update};
use api::rights::{Identity, Program, Right};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use informer::{Recorder, leader};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::Stores;

/// Our account and the roles it has.
const ACCOUNT: &str = "kubevirt-controller";

const VM: &[Right] = &[
    Right::on::<VirtualMachine>(&[Get, Patch]),
    Right::on_status::<VirtualMachine>(&[Update]),
    Right::own_by::<VirtualMachine>(),
    Right::on::<VirtualMachineInstance>(&[Get, Create, Patch, Delete]),
    Right::on::<ControllerRevision>(&[Get, Create, Delete]),
    // To take one over is to change its owners, which some clusters allow only to those who may delete it.
    Right::on::<DataVolume>(&[Get, Create, Patch, Delete]),
    // The importer asks whether whoever makes a DataVolume may read what it copies.
    Right::on::<DataVolume>(&[Create]).of("source"),
    Right::on::<PersistentVolumeClaim>(&[Patch]),
    Right::on::<SubjectAccessReview>(&[Create]),
];

const VMI: &[Right] = &[
    Right::on::<VirtualMachineInstance>(&[Get, Update, Patch]),
    Right::own_by::<VirtualMachineInstance>(),
    Right::on::<Pod>(&[Get, List, Create, Patch, Delete]),
    Right::on_status::<Pod>(&[Patch]),
    Right::own_by::<Pod>(),
    Right::on::<PersistentVolumeClaim>(&[Get, List, Create, Patch, Delete]),
    Right::on::<VirtualMachineInstanceMigration>(&[List]),
];

const NODE: &[Right] = &[
    Right::on::<Node>(&[Get, Patch]),
    Right::on::<VirtualMachineInstance>(&[List, Patch]),
    Right::on::<Pod>(&[List]),
    Right::on::<DaemonSet>(&[List]),
];

const MIGRATION: &[Right] = &[
    Right::on::<VirtualMachineInstanceMigration>(&[Get, List, Patch, Delete]),
    Right::on_status::<VirtualMachineInstanceMigration>(&[Update]),
    Right::own_by::<VirtualMachineInstanceMigration>(),
    Right::on::<VirtualMachineInstance>(&[Get, Patch]),
    Right::own_by::<VirtualMachineInstance>(),
    Right::on::<Pod>(&[Get, List, Create, Patch, Delete]),
    Right::own_by::<Pod>(),
    Right::on::<PersistentVolumeClaim>(&[Get, Create, Patch, Delete]),
    Right::on::<Job>(&[Get, Create, Delete]),
];

const SYNCHRONIZATION: &[Right] = &[
    Right::on::<VirtualMachineInstanceMigration>(&[Get, Patch, Delete]),
    Right::on::<VirtualMachineInstance>(&[Patch]),
];

const EVACUATION: &[Right] = &[Right::on::<VirtualMachineInstanceMigration>(&[Get, List, Create])];

const DISRUPTION_BUDGET: &[Right] = &[Right::on::<PodDisruptionBudget>(&[Delete])];

const WORKLOAD_UPDATE: &[Right] = &[
    Right::on_status::<KubeVirt>(&[Patch]),
    Right::on::<VirtualMachineInstanceMigration>(&[Get, List, Create, Delete]),
    Right::on::<Pod>(&[Create]).of("eviction"),
];

const TOPOLOGY: &[Right] = &[Right::on::<Node>(&[Patch])];

/// What the program needs whatever its controllers are.
const PROGRAM: &[Right] = &[leader::RIGHT, Recorder::RIGHT];

/// The program with all it may do.
pub fn program() -> Program {
    let tables = [VM, VMI, NODE, MIGRATION, SYNCHRONIZATION, EVACUATION, DISRUPTION_BUDGET, WORKLOAD_UPDATE, TOPOLOGY];
    let declared = tables.into_iter().chain([PROGRAM]).flatten().copied();
    Program {
        name: ACCOUNT,
        identity: Identity::Account,
        rights: Stores::rights().into_iter().chain(declared).collect(),
    }
}

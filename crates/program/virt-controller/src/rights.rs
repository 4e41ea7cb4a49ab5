//! What virt-controller may do: what its caches watch, what each controller declares, and what the program itself needs.

use api::rights::{Identity, Program, Right, Verb};
use informer::{Recorder, leader};
use k8s_openapi::api::core::v1::Node;

use crate::{Controller, Stores};

/// Our account and the roles it has.
const ACCOUNT: &str = "kubevirt-controller";

/// What the program needs whatever its controllers are. The labels of nodes' TSC frequencies are kept by no controller.
const PROGRAM: &[Right] = &[leader::RIGHT, Recorder::RIGHT, Right::on::<Node>(&[Verb::Patch])];

/// The program with all that these controllers may do.
pub fn program(controllers: &[&'static Controller]) -> Program {
    let declared = controllers.iter().flat_map(|controller| controller.rights()).chain(PROGRAM).copied();
    Program {
        name: ACCOUNT,
        identity: Identity::Account,
        rights: Stores::rights().into_iter().chain(declared).collect(),
    }
}

//! RBAC of virt-controller: the watches of its caches, the rights its controllers declare, and those of the program
//! itself.

use api::rights::{Identity, Program, Right};
use informer::{Recorder, leader};

use crate::{Controller, Stores};

/// Name of the service account and of its roles.
const ACCOUNT: &str = "kubevirt-controller";

/// Rights of the program itself.
const PROGRAM: &[Right] = &[leader::RIGHT, Recorder::RIGHT];

/// The program with the rights of these controllers.
pub fn program(controllers: &[&'static Controller]) -> Program {
    let declared = controllers.iter().flat_map(|controller| controller.rights()).chain(PROGRAM).copied();
    Program {
        name: ACCOUNT,
        identity: Identity::Account,
        rights: Stores::rights().into_iter().chain(declared).collect(),
    }
}

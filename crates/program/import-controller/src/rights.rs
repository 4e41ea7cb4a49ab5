//! RBAC of the importer.

use api::cdi::{CDI, CDIConfig, DataSource, DataVolume, StorageProfile};
use api::rights::{Identity, Program, Right, Verb};
use informer::Recorder;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};

use crate::stores::Stores;

/// Name of the service account and of its roles.
const ACCOUNT: &str = "ferrovirt-importer";

const OWN: &[Right] = &[
    Recorder::RIGHT,
    Right::on::<PersistentVolumeClaim>(&[Verb::Get, Verb::Create, Verb::Patch]),
    Right::on_status::<DataVolume>(&[Verb::Patch]),
    Right::own_by::<DataVolume>(),
    Right::on::<DataSource>(&[Verb::Patch]),
    Right::on_status::<DataSource>(&[Verb::Patch]),
    Right::on::<StorageProfile>(&[Verb::Create, Verb::Delete]),
    Right::on_status::<StorageProfile>(&[Verb::Patch]),
    Right::on::<CDIConfig>(&[Verb::Create, Verb::Get]),
    Right::on_status::<CDIConfig>(&[Verb::Patch]),
    Right::on::<CDI>(&[Verb::Create, Verb::Get]),
    Right::on_status::<CDI>(&[Verb::Patch]),
    // Passwords and certificates that sources name.
    Right::on::<Secret>(&[Verb::Get]),
    Right::on::<ConfigMap>(&[Verb::Get]),
];

/// The program with its rights.
pub fn program() -> Program {
    let rights = Stores::rights().into_iter().chain(OWN.iter().copied()).collect();
    Program { name: ACCOUNT, identity: Identity::Account, rights }
}

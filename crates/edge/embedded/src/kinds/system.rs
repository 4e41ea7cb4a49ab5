//! Small kinds that controllers keep their own state in: leases, revisions, service accounts.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use super::{Definition, Plain, list_at, round_trip, text_at};
use crate::table::{AGE, Column, NAME, or_none};

pub(super) fn plain() -> Vec<Plain> {
    let kind = |definition, columns| Plain { definition, columns, warning: None };
    vec![
        kind(LEASE, const { &[NAME, Column::text("Holder", ".spec.holderIdentity"), AGE] }),
        kind(REVISION, REVISION_COLUMNS),
        kind(ACCOUNT, ACCOUNT_COLUMNS),
    ]
}

const LEASE: Definition = Definition {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    unconditional_update: false,
    round_trip: round_trip::<Lease>,
};

const REVISION: Definition = Definition {
    group: "apps",
    version: "v1",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    unconditional_update: true,
    round_trip: round_trip::<ControllerRevision>,
};

const REVISION_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Controller", |revision, _| or_none(&controller(revision))),
    Column::text("Revision", ".revision"),
    AGE,
];

/// `virtualmachine.kubevirt.io/name` of the owner that controls the object.
fn controller(object: &Value) -> String {
    let owners = list_at(object, "metadata.ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == Value::Bool(true)) else {
        return String::new();
    };
    let kind = text_at(owner, "kind").to_lowercase();
    match text_at(owner, "apiVersion").rsplit_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text_at(owner, "name")),
        None => format!("{kind}/{}", text_at(owner, "name")),
    }
}

const ACCOUNT: Definition = Definition {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    unconditional_update: true,
    round_trip: round_trip::<ServiceAccount>,
};

const ACCOUNT_COLUMNS: &[Column] =
    &[NAME, Column::with("Secrets", |account, _| json!(list_at(account, "secrets").len())), AGE];

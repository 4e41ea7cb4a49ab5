//! Small kinds in which controllers keep their own state: leases, revisions, service accounts.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Plain, list_at, text_at};
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
    namespaced: true,
    unconditional_update: false,
    fields: Fields::of::<Lease>(),
    ..KIND
};

const REVISION: Definition = Definition {
    group: "apps",
    version: "v1",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    namespaced: true,
    fields: Fields::of::<ControllerRevision>(),
    ..KIND
};

const REVISION_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Controller", |revision, _| or_none(&controller(revision))),
    Column::text("Revision", ".revision"),
    AGE,
];

/// The controller owner as `deployment.apps/name`.
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
    namespaced: true,
    fields: Fields::of::<ServiceAccount>(),
    ..KIND
};

const ACCOUNT_COLUMNS: &[Column] =
    &[NAME, Column::with("Secrets", |account, _| json!(list_at(account, "secrets").len())), AGE];

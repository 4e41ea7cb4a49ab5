//! Roles and their bindings. They are evaluated in [`crate::auth`].

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Plain, list_at, text_at};
use crate::table::{AGE, CREATED_AT, Column, NAME};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

const ROLE_COLUMNS: &[Column] = &[NAME, CREATED_AT];

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Role", |binding, _| json!(role(binding))),
    AGE,
    Column::with("Users", |binding, _| json!(subjects(binding, "User"))).wide(),
    Column::with("Groups", |binding, _| json!(subjects(binding, "Group"))).wide(),
    Column::with("ServiceAccounts", |binding, _| json!(subjects(binding, "ServiceAccount"))).wide(),
];

fn role(binding: &Value) -> String {
    format!("{}/{}", text_at(binding, "roleRef.kind"), text_at(binding, "roleRef.name"))
}

fn subjects(binding: &Value, kind: &str) -> String {
    let names = list_at(binding, "subjects").iter().filter(|subject| text_at(subject, "kind") == kind).map(|subject| {
        match text_at(subject, "namespace") {
            "" => text_at(subject, "name").to_owned(),
            namespace => format!("{namespace}/{}", text_at(subject, "name")),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

const fn definition(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    namespaced: bool,
    fields: Fields,
) -> Definition {
    Definition { group: GROUP, version: "v1", kind, plural, singular, namespaced, fields, ..KIND }
}

pub(super) fn plain() -> Vec<Plain> {
    let kind = |definition, columns| Plain { definition, columns, warning: None };
    vec![
        kind(definition("Role", "roles", "role", true, Fields::of::<Role>()), ROLE_COLUMNS),
        kind(
            definition("RoleBinding", "rolebindings", "rolebinding", true, Fields::of::<RoleBinding>()),
            BINDING_COLUMNS,
        ),
        kind(
            definition("ClusterRole", "clusterroles", "clusterrole", false, Fields::of::<ClusterRole>()),
            ROLE_COLUMNS,
        ),
        kind(
            definition(
                "ClusterRoleBinding",
                "clusterrolebindings",
                "clusterrolebinding",
                false,
                Fields::of::<ClusterRoleBinding>(),
            ),
            BINDING_COLUMNS,
        ),
    ]
}

//! Quotas, limits, disruption budgets and priorities.

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use placement::quota;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Plain, Strategy, at, default_member, list_at, text_at};
use crate::errors::{FieldError, forbidden};
use crate::table::{AGE, CREATED_AT, Column, NAME};

pub(super) fn plain() -> Vec<Plain> {
    vec![
        Plain {
            definition: LIMITS,
            columns: const { &[NAME, CREATED_AT] },
            warning: Some("this server keeps limit ranges and does not apply them to Pods"),
        },
        Plain { definition: BUDGET, columns: BUDGET_COLUMNS, warning: None },
    ]
}

pub(super) struct Quotas;

impl Strategy for Quotas {
    fn definition(&self) -> &Definition {
        &QUOTA
    }

    fn columns(&self) -> &[Column] {
        QUOTA_COLUMNS
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let hard = at(object, "spec.hard").as_object().into_iter().flatten().map(|(name, _)| name);
        let ignored = hard.filter(|name| !quota::is_counted(name));
        let ignored = ignored
            .map(|name| format!("this server keeps quotas for Pods and claims only: spec.hard[{name}] has no effect"));
        let expressions = list_at(object, "spec.scopeSelector.matchExpressions").iter();
        let scopes = list_at(object, "spec.scopes").iter().filter_map(Value::as_str);
        let scopes = scopes.chain(expressions.map(|expression| text_at(expression, "scopeName")));
        let unknown = scopes.filter(|scope| !quota::is_known_scope(scope));
        let unknown =
            unknown.map(|scope| format!("this server does not know the scope {scope}: the quota has no effect"));
        ignored.chain(unknown).collect()
    }
}

const QUOTA: Definition = Definition {
    group: "",
    version: "v1",
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    namespaced: true,
    status: true,
    fields: Fields::of::<ResourceQuota>(),
    ..KIND
};

const QUOTA_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Request", |quota, _| json!(usage(quota, false))),
    Column::with("Limit", |quota, _| json!(usage(quota, true))),
    AGE,
];

/// `name: used/hard` of the entries that are limits, or of those that are not.
fn usage(quota: &Value, limits: bool) -> String {
    let hard = at(quota, "status.hard").as_object().into_iter().flatten();
    let shown = hard.filter(|(name, _)| name.starts_with("limits.") == limits).map(|(name, hard)| {
        let used = quota["status"]["used"][name].as_str().unwrap_or("0");
        format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
    });
    shown.collect::<Vec<_>>().join(", ")
}

const LIMITS: Definition = Definition {
    group: "",
    version: "v1",
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    namespaced: true,
    fields: Fields::of::<LimitRange>(),
    ..KIND
};

const BUDGET: Definition = Definition {
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    namespaced: true,
    status: true,
    generation: true,
    unconditional_update: false,
    fields: Fields::of::<PodDisruptionBudget>(),
    ..KIND
};

const BUDGET_COLUMNS: &[Column] = &[
    NAME,
    Column::with("Min Available", |budget, _| number_or(budget, "spec.minAvailable")),
    Column::with("Max Unavailable", |budget, _| number_or(budget, "spec.maxUnavailable")),
    Column::with("Allowed Disruptions", |budget, _| {
        json!(at(budget, "status.disruptionsAllowed").as_i64().unwrap_or(0))
    }),
    AGE,
];

fn number_or(object: &Value, path: &str) -> Value {
    match at(object, path) {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

pub(super) struct PriorityClasses;

const PRIORITY_CLASS: Definition = Definition {
    group: "scheduling.k8s.io",
    version: "v1",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    namespaced: false,
    generation: true,
    fields: Fields::of::<PriorityClass>(),
    ..KIND
};

const PRIORITY_CLASS_COLUMNS: &[Column] = &[
    NAME,
    Column::text("Value", ".value"),
    Column::with("Global-Default", |class, _| json!(class["globalDefault"] == Value::Bool(true))),
    AGE,
    Column::text("PreemptionPolicy", ".preemptionPolicy"),
];

impl Strategy for PriorityClasses {
    fn definition(&self) -> &Definition {
        &PRIORITY_CLASS
    }

    fn columns(&self) -> &[Column] {
        PRIORITY_CLASS_COLUMNS
    }

    fn default(&self, object: &mut Value) {
        default_member(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let changed = ["value", "preemptionPolicy"].into_iter().filter(|field| object[*field] != old[*field]);
        changed.map(|field| forbidden(field, "may not be changed in an update.")).collect()
    }
}

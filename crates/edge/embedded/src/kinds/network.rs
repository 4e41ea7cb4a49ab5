//! Services and Endpoints. Nothing in this server implements them; they are only stored for clients that refer to them.

use k8s_openapi::api::core::v1::{Endpoints, Service};
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Plain, Strategy, default_member, list_at, text_at};
use crate::errors::{FieldError, invalid, required};
use crate::table::{AGE, Column, NAME, or_none, pairs};

pub(super) struct Services;

const SERVICE: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    namespaced: true,
    status: true,
    fields: Fields::of::<Service>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Type", ".spec.type"),
    Column::with("Cluster-IP", |service, _| or_none(text_at(service, "spec.clusterIP"))),
    Column::with("External-IP", |service, _| or_none(text_at(service, "spec.externalName"))),
    Column::with("Port(s)", |service, _| or_none(&ports(service))),
    AGE,
    Column::with("Selector", |service, _| pairs(service, "spec.selector")).wide(),
];

impl Strategy for Services {
    fn definition(&self) -> &Definition {
        &SERVICE
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn default(&self, object: &mut Value) {
        default_member(object, "spec", json!({}));
        default_member(object, "status", json!({"loadBalancer": {}}));
        let spec = &mut object["spec"];
        default_member(spec, "type", "ClusterIP");
        default_member(spec, "sessionAffinity", "None");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            default_member(port, "protocol", "TCP");
            let number = port["port"].clone();
            default_member(port, "targetPort", number);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = vec![];
        for (index, port) in list_at(object, "spec.ports").iter().enumerate() {
            let path = format!("spec.ports[{index}].port");
            match port["port"].as_i64() {
                None => errors.push(required(&path, "")),
                Some(1..=65535) => {}
                Some(_) => errors.push(invalid(&path, &port["port"], "must be between 1 and 65535, inclusive")),
            }
        }
        errors
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        if text_at(object, "spec.clusterIP") == "None" || text_at(object, "spec.type") == "ExternalName" {
            return vec![];
        }
        vec!["this server gives Services no address and forwards nothing to them".into()]
    }
}

fn ports(service: &Value) -> String {
    let shown =
        list_at(service, "spec.ports").iter().map(|port| format!("{}/{}", port["port"], text_at(port, "protocol")));
    shown.collect::<Vec<_>>().join(",")
}

pub(super) fn plain() -> Vec<Plain> {
    vec![Plain {
        definition: Definition {
            group: "",
            version: "v1",
            kind: "Endpoints",
            plural: "endpoints",
            singular: "endpoints",
            short_names: &["ep"],
            namespaced: true,
            fields: Fields::of::<Endpoints>(),
            ..KIND
        },
        columns: const { &[NAME, Column::with("Endpoints", |object, _| or_none(&endpoints(object))), AGE] },
        warning: None,
    }]
}

fn endpoints(object: &Value) -> String {
    let mut shown = vec![];
    for subset in list_at(object, "subsets") {
        for address in list_at(subset, "addresses") {
            for port in list_at(subset, "ports") {
                shown.push(format!("{}:{}", text_at(address, "ip"), port["port"]));
            }
        }
    }
    shown.join(",")
}

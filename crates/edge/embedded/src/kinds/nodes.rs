//! Nodes.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, at, default_member, list_at, text_at};
use crate::table::{AGE, Column, NAME, or_none};

pub(super) struct Nodes;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    namespaced: false,
    status: true,
    fields: Fields::of::<Node>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    Column::with("Status", |node, _| json!(status(node))),
    Column::with("Roles", |node, _| or_none(&roles(node))),
    AGE,
    Column::text("Version", ".status.nodeInfo.kubeletVersion"),
    Column::with("Internal-IP", |node, _| or_none(address(node, "InternalIP"))).wide(),
    Column::with("External-IP", |node, _| or_none(address(node, "ExternalIP"))).wide(),
    Column::text("OS-Image", ".status.nodeInfo.osImage").wide(),
    Column::text("Kernel-Version", ".status.nodeInfo.kernelVersion").wide(),
    Column::text("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion").wide(),
];

impl Strategy for Nodes {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let unschedulable = at(object, "spec.unschedulable").as_bool().unwrap_or(false);
        vec![("spec.unschedulable", unschedulable.to_string())]
    }

    /// A node registers itself together with its status.
    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        default_member(object, "spec", json!({}));
        default_member(object, "status", json!({}));
    }
}

fn status(node: &Value) -> String {
    let ready = list_at(node, "status.conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut text = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(node, "spec.unschedulable") == &Value::Bool(true) {
        text.push_str(",SchedulingDisabled");
    }
    text
}

fn roles(node: &Value) -> String {
    let labels = at(node, "metadata.labels").as_object().into_iter().flatten();
    let roles = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"));
    roles.filter(|role| !role.is_empty()).collect::<Vec<_>>().join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = list_at(node, "status.addresses").iter().find(|address| address["type"] == kind);
    found.map_or("", |address| text_at(address, "address"))
}

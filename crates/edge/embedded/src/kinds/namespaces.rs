//! Namespaces.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, default_member, list_at, text_at};
use crate::table::{AGE, Column, NAME};

/// In `spec.finalizers`: the contents of the namespace have not been removed yet.
pub(crate) const CONTENTS: &str = "kubernetes";

pub(super) struct Namespaces;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    status: true,
    fields: Fields::of::<Namespace>(),
    ..KIND
};

impl Strategy for Namespaces {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        const { &[NAME, Column::text("Status", ".status.phase"), AGE] }
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.phase", text_at(object, "status.phase").to_owned())]
    }

    /// Labels every namespace with its name.
    fn default(&self, object: &mut Value) {
        let name = text_at(object, "metadata.name").to_owned();
        default_member(&mut object["metadata"], "labels", json!({}));
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        object["spec"] = json!({"finalizers": [CONTENTS]});
        object["status"] = json!({"phase": "Active"});
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        object["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        machinery::names::check_dns1123_label(name)
    }

    fn prepare_for_delete(&self, object: &mut Value) {
        object["status"]["phase"] = json!("Terminating");
    }

    /// Until its contents are removed.
    fn holds(&self, object: &Value) -> bool {
        !list_at(object, "spec.finalizers").is_empty()
    }
}

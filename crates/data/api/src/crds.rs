//! The CustomResourceDefinitions of our kinds.

use serde_json::{Value, json};

use crate::resources::{Column, RESOURCES, Resource, Version};
use crate::schema;

/// The CRDs of all kinds.
///
/// They are JSON rather than typed objects because the typed form stores integral bounds as floating-point numbers and
/// formats them as such.
pub fn crds() -> Vec<Value> {
    RESOURCES.iter().map(definition).collect()
}

fn definition(resource: &Resource) -> Value {
    let mut names = json!({ "kind": resource.kind, "plural": resource.plural, "singular": resource.singular });
    put_list(&mut names, "shortNames", resource.short_names);
    put_list(&mut names, "categories", resource.categories);
    let schema = schema::openapi(resource.kind);
    let versions: Vec<Value> = resource.versions.iter().map(|version| of_version(resource, version, &schema)).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": resource.full_name(), "labels": { resource.label: "" } },
        "spec": {
            "group": resource.group,
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "names": names,
            "versions": versions,
        },
    })
}

fn of_version(resource: &Resource, version: &Version, schema: &Option<Value>) -> Value {
    let mut definition = json!({
        "name": version.name,
        "served": true,
        "storage": version.storage,
        "schema": { "openAPIV3Schema": schema },
    });
    if let Some(warning) = version.deprecated {
        definition["deprecated"] = json!(true);
        definition["deprecationWarning"] = json!(warning);
    }
    if !resource.columns.is_empty() {
        definition["additionalPrinterColumns"] = resource.columns.iter().map(column).collect();
    }
    if !resource.selectable_fields.is_empty() {
        let fields = resource.selectable_fields.iter().map(|path| json!({ "jsonPath": path }));
        definition["selectableFields"] = fields.collect();
    }
    if resource.status {
        definition["subresources"]["status"] = json!({});
    }
    if let Some(scale) = &resource.scale {
        definition["subresources"]["scale"] = json!({
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
            "labelSelectorPath": scale.label_selector,
        });
    }
    definition
}

fn column(column: &Column) -> Value {
    let mut value = json!({ "name": column.name, "type": column.type_, "jsonPath": column.path });
    if column.wide {
        value["priority"] = json!(1);
    }
    value
}

fn put_list(names: &mut Value, key: &str, list: &[&str]) {
    if !list.is_empty() {
        names[key] = json!(list);
    }
}

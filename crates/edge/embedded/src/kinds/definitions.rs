//! The read-only CustomResourceDefinitions of our own kinds, from which clients find out what is installed.
//!
//! They are not stored and cannot be written: the server has these kinds in any case.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Definition, KIND, Strategy};
use crate::cache::Object;
use crate::table::{CREATED_AT, Column, NAME};

pub(super) struct Definitions;

const DEFINITION: Definition = Definition {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    status: true,
    generation: true,
    writable: false,
    ..KIND
};

impl Strategy for Definitions {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        const { &[NAME, CREATED_AT] }
    }
}

/// The definitions as cached objects, created when the server starts.
pub(crate) fn definitions(revision: u64, now: Timestamp) -> Vec<Object> {
    let now = crate::registry::time(now);
    api::crds()
        .into_iter()
        .map(|definition| Object::encode(&Definitions, established(definition, &now), revision))
        .collect()
}

fn established(mut definition: Value, now: &str) -> Value {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    // Identical in every cluster and after every start: it belongs to the build.
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes()).to_string();
    definition["metadata"]["uid"] = json!(uid);
    definition["metadata"]["creationTimestamp"] = json!(now);
    definition["metadata"]["generation"] = json!(1);
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> =
        versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    definition["status"] = json!({
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the kind is part of the server"),
        ],
    });
    definition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Kinds, text_at};

    #[test]
    fn every_kind_of_ours_is_defined_and_established() {
        let objects = definitions(7, Timestamp::UNIX_EPOCH);
        assert_eq!(objects.len(), api::resources::RESOURCES.len());
        assert!(Kinds::get().find("apiextensions.k8s.io", "customresourcedefinitions").is_some());
        for object in objects {
            let value = object.value();
            assert_eq!(value["status"]["conditions"][1]["type"], "Established");
            assert_eq!(value["status"]["storedVersions"].as_array().map(Vec::len), Some(1), "{}", object.name);
            assert!(!text_at(&value, "status.acceptedNames.kind").is_empty());
            assert_eq!(value["metadata"]["resourceVersion"], "7");
        }
    }
}

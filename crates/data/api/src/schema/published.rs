//! The published schemas of our kinds, including the schema of object metadata, which a CustomResourceDefinition must
//! leave to the API server.

use serde_json::{Map, Value, json};

/// Name of the schema of object metadata.
pub const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

const API_VERSION: &str = "Group and version of the schema that this object follows.";
const KIND: &str = "The kind of the object, in camel case.";
const NAMED: &str = "How the object is called and labelled, and whom it belongs to.";

/// Name, type and description of the fields of object metadata.
const FIELDS: &[(&str, &str, &str)] = &[
    ("annotations", "{string}", "Anything that tools and people note about the object, by key."),
    ("creationTimestamp", "time", "When the server stored the object first."),
    ("deletionGracePeriodSeconds", "int64", "How long the object is given to end by itself once its deletion began."),
    ("deletionTimestamp", "time", "When the object is to be gone; set by the server when its deletion is asked for."),
    ("finalizers", "[string]", "Who has work left to do before the object may go."),
    ("generateName", "string", "The beginning of a name that the server completes if no name is given."),
    ("generation", "int64", "Counts the changes of the desired state."),
    ("labels", "{string}", "Short values by key, to select objects by."),
    ("managedFields", "[object]", "Which client set which fields; kept by servers that apply on their side."),
    ("name", "string", "The name of the object, unique among its kind in its namespace."),
    ("namespace", "string", "The namespace the object lives in; empty for an object of the whole cluster."),
    ("ownerReferences", "[owner]", "Objects that this one belongs to: it goes when all of them are gone."),
    ("resourceVersion", "string", "The version of the object, to be compared for equality only."),
    ("selfLink", "string", "No longer filled in."),
    ("uid", "string", "What tells the object from all that had or will have its name."),
];

/// The same for owner references.
const OWNER: &[(&str, &str, &str)] = &[
    ("apiVersion", "string", "Group and version of the owner."),
    ("blockOwnerDeletion", "boolean", "Whether the owner waits for this object when it is deleted in the foreground."),
    ("controller", "boolean", "Whether the owner manages this object."),
    ("kind", "string", "The kind of the owner."),
    ("name", "string", "The name of the owner."),
    ("uid", "string", "The UID of the owner."),
];

/// The schema of one of our kinds with the descriptions shared by all objects; `None` for any other kind. Its metadata
/// refers to [`METADATA`] in the document's `schemas`.
pub fn published(kind: &str, schemas: &str) -> Option<Value> {
    let mut schema = super::openapi(kind)?;
    let properties = schema["properties"].as_object_mut()?;
    for (field, text) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        if let Some(property) = properties.get_mut(field) {
            property["description"] = json!(text);
        }
    }
    let metadata = json!({"description": NAMED, "allOf": [{"$ref": format!("{schemas}{METADATA}")}]});
    properties.insert("metadata".to_owned(), metadata);
    Some(schema)
}

/// The schema of object metadata.
pub fn metadata() -> Value {
    object(FIELDS, &[], "What every object has besides the fields of its kind.")
}

fn object(fields: &[(&str, &str, &str)], required: &[&str], description: &str) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|&(name, type_, description)| {
            let mut schema = of_type(type_);
            schema["description"] = json!(description);
            (name.to_owned(), schema)
        })
        .collect();
    let mut schema = json!({"type": "object", "description": description, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn of_type(type_: &str) -> Value {
    match type_ {
        "time" => json!({"type": "string", "format": "date-time"}),
        "int64" => json!({"type": "integer", "format": "int64"}),
        "owner" => object(OWNER, &["apiVersion", "kind", "name", "uid"], "A reference to an owner."),
        _ => {
            if let Some(item) = type_.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                json!({"type": "array", "items": of_type(item)})
            } else if let Some(entry) = type_.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                json!({"type": "object", "additionalProperties": of_type(entry)})
            } else {
                json!({"type": type_})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_metadata_has_the_fields_of_its_type() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
        let filled = json!({
            "annotations": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "generateName": "g", "generation": 1,
            "labels": {"a": "b"}, "managedFields": [{}], "name": "n", "namespace": "ns", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true,
                "blockOwnerDeletion": true}],
            "selfLink": "/", "uid": "u",
        });
        let meta: ObjectMeta = serde_json::from_value(filled.clone()).unwrap();
        assert_eq!(serde_json::to_value(meta).unwrap(), filled, "every field is one of the type");
        let schema = metadata();
        let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(fields(&schema["properties"]), fields(&filled));
        let owner = &schema["properties"]["ownerReferences"]["items"];
        assert_eq!(fields(&owner["properties"]), fields(&filled["ownerReferences"][0]));
    }
}

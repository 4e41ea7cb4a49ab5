//! One version of an object, encoded once, with what lists, watches and garbage collection need.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use crate::kinds::{KindId, Strategy};

/// Namespace and name; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectName {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// The key of an object among all kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: KindId,
    pub(crate) name: ObjectName,
}

/// An entry of `metadata.ownerReferences`, as far as garbage collection needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) block_owner_deletion: bool,
}

/// An object at one revision. Clients get the JSON text; the other fields are extracted once, so that selectors and
/// ownership need no parsing.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) revision: u64,
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Values of the kind's selectable fields, besides name and namespace.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) owners: Vec<Owner>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deleting: bool,
    pub(crate) json: Bytes,
}

impl Object {
    /// Sets the revision in the object and encodes it.
    pub(crate) fn encode(strategy: &dyn Strategy, mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let json = Bytes::from(value.to_string());
        Self::index(strategy, &value, json, revision)
    }

    /// Decodes an object from the store.
    pub(crate) fn decode(strategy: &dyn Strategy, json: &[u8]) -> Result<Self, DecodeError> {
        let value: Value = serde_json::from_slice(json).map_err(DecodeError::Json)?;
        let revision = text(&value["metadata"]["resourceVersion"]).parse().map_err(|_| DecodeError::Revision)?;
        Ok(Self::index(strategy, &value, Bytes::copy_from_slice(json), revision))
    }

    fn index(strategy: &dyn Strategy, value: &Value, json: Bytes, revision: u64) -> Self {
        let metadata = &value["metadata"];
        Self {
            revision,
            name: ObjectName::new(text(&metadata["namespace"]), text(&metadata["name"])),
            uid: text(&metadata["uid"]).to_owned(),
            labels: string_map(&metadata["labels"]),
            fields: strategy.selectable_fields(value),
            owners: items(&metadata["ownerReferences"]).map(owner).collect(),
            finalizers: items(&metadata["finalizers"]).map(|name| text(name).to_owned()).collect(),
            deleting: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            json,
        }
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("an object in the cache was encoded from a JSON value")
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// Why stored bytes are not an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("stored object is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("stored object has no resourceVersion")]
    Revision,
}

fn owner(reference: &Value) -> Owner {
    Owner {
        api_version: text(&reference["apiVersion"]).to_owned(),
        kind: text(&reference["kind"]).to_owned(),
        name: text(&reference["name"]).to_owned(),
        uid: text(&reference["uid"]).to_owned(),
        block_owner_deletion: reference["blockOwnerDeletion"].as_bool().unwrap_or(false),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

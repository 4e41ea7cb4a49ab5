//! The kinds this server knows: one strategy each, and the table of them all.
//!
//! A strategy is pure: it defaults, prepares and validates values and says how they are shown. Storing, watching and
//! deleting are the same for all kinds and live in [`crate::registry`]. A new kind of Kubernetes is a strategy and one
//! line in [`Kinds::new`]; our own kinds come from the table in `api::resources`.

mod configuration;
mod custom;
mod definitions;
mod events;
mod foreign;
mod namespaces;
mod network;
mod nodes;
mod pod_defaults;
mod pods;
mod policy;
mod rbac;
mod storage;
mod system;

use std::sync::LazyLock;

use api::resources::Scale;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use custom::other_versions;
pub(crate) use definitions::definitions;
pub(crate) use events::{EVENTS_V1, last_time};
pub(crate) use namespaces::CONTENTS;

use crate::cache::Key;
use crate::errors::FieldError;
use crate::table::Column;

/// Position of a kind in the table.
pub(crate) type KindId = usize;

/// Names, scope and shape of a kind: what discovery tells about it.
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// Whether `/status` exists: then the main endpoint leaves the status alone, and `/status` everything else.
    pub(crate) status: bool,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub(crate) generation: bool,
    /// Whether an update may leave `resourceVersion` out.
    pub(crate) unconditional_update: bool,
    /// Whether clients may write it.
    pub(crate) writable: bool,
    /// Where `/scale` finds its numbers, if it exists.
    pub(crate) scale: Option<&'static Scale>,
    /// What whoever uses this version is told.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) fields: Fields,
}

/// What most kinds of Kubernetes are; a definition says the rest.
const KIND: Definition = Definition {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    unconditional_update: true,
    writable: true,
    scale: None,
    deprecated: None,
    fields: Fields::Kept(as_it_is),
};

const RETURNED_WHEN_DELETED: &[&str] = &[
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses",
];

/// Reads a value as a type and writes it back: the result has the fields that the type knows.
pub(crate) type RoundTrip = fn(&Value) -> Result<Value, serde_json::Error>;

/// How it is known which fields a kind has.
#[derive(Clone, Copy)]
pub(crate) enum Fields {
    /// A type of Kubernetes itself. Reading a value as the type and writing it back leaves the fields that it has.
    Typed(RoundTrip),
    /// The schema of a kind in `api::resources`.
    Ours,
    /// Somebody else's custom resource: all fields are kept, those that we read have to be readable.
    Kept(RoundTrip),
}

impl Fields {
    /// Those of a type of Kubernetes.
    const fn of<T: DeserializeOwned + Serialize>() -> Self {
        Self::Typed(round_trip::<T>)
    }

    /// All, with those that a type knows in the form it wants.
    const fn kept<T: DeserializeOwned + Serialize>() -> Self {
        Self::Kept(round_trip::<T>)
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(value)?)
}

fn as_it_is(value: &Value) -> Result<Value, serde_json::Error> {
    Ok(value.clone())
}

impl Definition {
    /// `v1` or `group/v1`.
    pub(crate) fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// Whether it would be a custom resource in Kubernetes; such kinds take no strategic merge patches.
    pub(crate) fn is_custom(&self) -> bool {
        !matches!(self.fields, Fields::Typed(_))
    }

    /// Whether a deletion is answered with the object that went. Most are answered with a `Status`.
    pub(crate) fn returns_deleted(&self) -> bool {
        !self.is_custom() && RETURNED_WHEN_DELETED.contains(&self.plural)
    }

    /// Whether its schema is in `api::resources`.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.fields, Fields::Ours)
    }

    /// `pods` or `deployments.apps`: how messages name the resource.
    pub(crate) fn resource_name(&self) -> String {
        qualified(self.plural, self.group)
    }
}

/// `group/version`, without the slash for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// What is particular to a kind. All of it is a function of values.
pub(crate) trait Strategy: Send + Sync {
    fn definition(&self) -> &Definition;

    /// Columns of `kubectl get`, after the name.
    fn columns(&self) -> &[Column];

    /// Values of the fields that a field selector may name, besides name and namespace. Every object of the kind gives
    /// the same names.
    fn selectable_fields(&self, _object: &Value) -> Vec<(&'static str, String)> {
        vec![]
    }

    /// Fills in what the user left out; applied to every write.
    fn default(&self, _object: &mut Value) {}

    /// Whether the status sent with a creation counts, although `/status` exists.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Sets what a new object must start with, whatever was sent.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Restores what an update must not touch.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        vec![]
    }

    /// Rules about the step from one version to the next.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        vec![]
    }

    /// What the schema of a kind finds wrong with any part of an object, its status included.
    fn validate_schema(&self, _object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        vec![]
    }

    /// What the user should know about an object that is accepted.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        vec![]
    }

    /// What is wrong with a name, if anything.
    fn validate_name(&self, name: &str) -> Vec<String> {
        machinery::names::check_dns1123_subdomain(name)
    }

    /// Whether something besides finalizers keeps a deleted object.
    fn holds(&self, _object: &Value) -> bool {
        false
    }

    /// Marks an object whose deletion begins.
    fn prepare_for_delete(&self, _object: &mut Value) {}

    /// How long a deletion waits before the object goes; `None` when it goes at once.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }
}

/// A kind without rules of its own.
struct Plain {
    definition: Definition,
    columns: &'static [Column],
    /// Shown to whoever creates one, if the server keeps the kind without acting on it.
    warning: Option<&'static str>,
}

impl Strategy for Plain {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    /// Roles have names like `system:node`: anything that fits into a path will do.
    fn validate_name(&self, name: &str) -> Vec<String> {
        if self.definition.group != rbac::GROUP {
            return machinery::names::check_dns1123_subdomain(name);
        }
        let bad = matches!(name, "." | "..") || name.contains(['/', '%']);
        bad.then(|| "must not be '.' or '..' and must not contain '/' or '%'".to_owned()).into_iter().collect()
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        self.warning.iter().map(|&text| text.to_owned()).collect()
    }
}

/// Every kind the server serves.
pub(crate) struct Kinds {
    strategies: Vec<Box<dyn Strategy>>,
    namespaces: KindId,
}

impl Kinds {
    /// The table; it is the same for every server.
    pub(crate) fn get() -> &'static Self {
        static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::new);
        &KINDS
    }

    fn new() -> Self {
        let mut strategies: Vec<Box<dyn Strategy>> = vec![
            Box::new(namespaces::Namespaces),
            Box::new(pods::Pods),
            Box::new(nodes::Nodes),
            Box::new(events::Events),
            Box::new(configuration::ConfigMaps),
            Box::new(configuration::Secrets),
            Box::new(network::Services),
            Box::new(policy::PriorityClasses),
            Box::new(policy::Quotas),
            Box::new(definitions::Definitions),
        ];
        let plain = network::plain()
            .into_iter()
            .chain(storage::plain())
            .chain(policy::plain())
            .chain(rbac::plain())
            .chain(system::plain())
            .chain(foreign::plain());
        strategies.extend(plain.map(|kind| Box::new(kind) as Box<dyn Strategy>));
        strategies.extend(custom::all());
        Self { strategies, namespaces: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.strategies.len()
    }

    pub(crate) fn strategy(&'static self, kind: KindId) -> &'static dyn Strategy {
        self.strategies[kind].as_ref()
    }

    pub(crate) fn definition(&'static self, kind: KindId) -> &'static Definition {
        self.strategies[kind].definition()
    }

    pub(crate) fn ids(&self) -> std::ops::Range<KindId> {
        0..self.strategies.len()
    }

    pub(crate) fn find(&'static self, group: &str, plural: &str) -> Option<KindId> {
        self.ids().find(|&id| {
            let definition = self.definition(id);
            definition.group == group && definition.plural == plural
        })
    }

    /// The kind an owner reference speaks of.
    pub(crate) fn find_kind(&'static self, api_version: &str, kind: &str) -> Option<KindId> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.ids().find(|&id| {
            let definition = self.definition(id);
            definition.group == group && definition.kind == kind
        })
    }

    pub(crate) fn namespaces(&self) -> KindId {
        self.namespaces
    }

    /// `/registry/<group>/<plural>/[<namespace>/]<name>`.
    pub(crate) fn storage_key(&'static self, key: &Key) -> String {
        let definition = self.definition(key.kind);
        let group = if definition.group.is_empty() { "core" } else { definition.group };
        format!("/registry/{group}/{}/{}", definition.plural, key.name)
    }

    /// The kind of a stored key; `None` for a kind this build does not know.
    pub(crate) fn of_storage_key(&'static self, key: &str) -> Option<KindId> {
        let mut parts = key.strip_prefix("/registry/")?.split('/');
        let group = parts.next()?;
        self.find(if group == "core" { "" } else { group }, parts.next()?)
    }
}

/// The value at a dotted path, or null.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, step| &value[step])
}

/// The string at a dotted path, or the empty string.
pub(crate) fn text_at<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The elements of the list at a dotted path.
pub(crate) fn list_at<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Sets a member that is not there. The object must be a map; nothing happens to anything else.
fn default_member(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.entry(name).or_insert_with(|| value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_is_there_once_and_found_by_its_storage_key() {
        let kinds = Kinds::get();
        assert_eq!(kinds.definition(kinds.namespaces()).kind, "Namespace");
        let mut seen = HashSet::new();
        for id in kinds.ids() {
            let definition = kinds.definition(id);
            assert!(seen.insert(definition.resource_name()), "{} is there twice", definition.kind);
            let namespace = if definition.namespaced { "ns" } else { "" };
            let key = Key { kind: id, name: crate::cache::ObjectName::new(namespace, "x") };
            assert_eq!(kinds.of_storage_key(&kinds.storage_key(&key)), Some(id));
            assert_eq!(kinds.find_kind(&definition.api_version(), definition.kind), Some(id));
        }
    }
}

//! The kinds this server serves: one strategy each, and the table of all of them.
//!
//! A strategy is pure: it defaults, prepares and validates objects and defines their columns. Storing, watching and
//! deleting are the same for all kinds and live in [`crate::registry`]. To add a Kubernetes kind, write a strategy and
//! add a line to [`Kinds::new`]; our own kinds come from the table in `api::resources`.

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

/// Index of a kind in the table.
pub(crate) type KindId = usize;

/// Names, scope and features of a kind, as shown in discovery.
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// Whether `/status` exists. If so, the main endpoint ignores the status, and `/status` everything else.
    pub(crate) status: bool,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub(crate) generation: bool,
    /// Whether an update may omit `resourceVersion`.
    pub(crate) unconditional_update: bool,
    /// Whether clients may write it.
    pub(crate) writable: bool,
    /// Whether objects are kept. If not, a request to create one is answered by hooks, and that is all.
    pub(crate) stored: bool,
    /// Paths of the replica counts for `/scale`, if it exists.
    pub(crate) scale: Option<&'static Scale>,
    /// Deprecation warning of this version.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) fields: Fields,
}

/// Defaults that fit most Kubernetes kinds.
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
    stored: true,
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

/// Decodes a value into a type and encodes it again, which leaves only the fields that the type knows.
pub(crate) type RoundTrip = fn(&Value) -> Result<Value, serde_json::Error>;

/// How the fields of a kind are determined.
#[derive(Clone, Copy)]
pub(crate) enum Fields {
    /// By a Kubernetes type. A round trip through the type leaves the known fields.
    Typed(RoundTrip),
    /// By the schema of a kind in `api::resources`.
    Ours,
    /// A custom resource of another project: all fields are kept, and those that we read must decode.
    Kept(RoundTrip),
}

impl Fields {
    /// By a Kubernetes type.
    const fn of<T: DeserializeOwned + Serialize>() -> Self {
        Self::Typed(round_trip::<T>)
    }

    /// All fields, with those that the type knows normalized.
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

    /// Whether it would be a custom resource in Kubernetes; such kinds do not support strategic merge patches.
    pub(crate) fn is_custom(&self) -> bool {
        !matches!(self.fields, Fields::Typed(_))
    }

    /// Whether a deletion returns the deleted object. Most return a `Status`.
    pub(crate) fn returns_deleted(&self) -> bool {
        !self.is_custom() && RETURNED_WHEN_DELETED.contains(&self.plural)
    }

    /// Whether its schema is in `api::resources`.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.fields, Fields::Ours)
    }

    /// `pods` or `deployments.apps`: the resource in messages.
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

/// The specifics of a kind, as pure functions of values.
pub(crate) trait Strategy: Send + Sync {
    fn definition(&self) -> &Definition;

    /// Columns of `kubectl get`, after the name.
    fn columns(&self) -> &[Column];

    /// Values of the fields that field selectors support, besides name and namespace. All objects of the kind return
    /// the same names.
    fn selectable_fields(&self, _object: &Value) -> Vec<(&'static str, String)> {
        vec![]
    }

    /// Sets defaults; applied on every write.
    fn default(&self, _object: &mut Value) {}

    /// Whether the status in a create request is kept, although `/status` exists.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Sets the initial state of a new object, overriding what was sent.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Restores fields that an update must not change.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        vec![]
    }

    /// Validates the transition from the old to the new version.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        vec![]
    }

    /// Validates any part of an object against the kind's schema, including its status.
    fn validate_schema(&self, _object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        vec![]
    }

    /// Warnings about an accepted object.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        vec![]
    }

    /// Validates a name.
    fn validate_name(&self, name: &str) -> Vec<String> {
        machinery::names::check_dns1123_subdomain(name)
    }

    /// Whether something besides finalizers blocks the removal of a deleted object.
    fn holds(&self, _object: &Value) -> bool {
        false
    }

    /// Updates an object when its deletion begins.
    fn prepare_for_delete(&self, _object: &mut Value) {}

    /// The grace period of a deletion; `None` to remove the object at once.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }
}

/// A kind without special rules.
struct Plain {
    definition: Definition,
    columns: &'static [Column],
    /// Warning on creation, for kinds that the server stores but does not act on.
    warning: Option<&'static str>,
}

impl Strategy for Plain {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    /// Roles have names like `system:node`: anything that fits into a path is valid.
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

/// All kinds of the server.
pub(crate) struct Kinds {
    strategies: Vec<Box<dyn Strategy>>,
    namespaces: KindId,
}

impl Kinds {
    /// The table, which is the same for every server.
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
            .chain(policy::plain())
            .chain(rbac::plain())
            .chain(system::plain())
            .chain(foreign::plain());
        strategies.extend(plain.map(|kind| Box::new(kind) as Box<dyn Strategy>));
        strategies.extend(storage::all());
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

    /// The kind that an owner reference refers to.
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

    /// The kind of a storage key; `None` for a kind this build does not know.
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

/// Sets a missing member. No-op if the value is not an object.
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

//! The other objects that validation may use, as values.
//!
//! The caller fetches what [`crate::wanted`] returns and adds it to the world, until nothing more is wanted. A chain of
//! references takes as many rounds as it has links.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::decode::stored;

/// An object that validation needs, or all objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The namespace; empty for a cluster-scoped kind, and for all namespaces.
    pub namespace: String,
    /// The name, or `None` for all objects of the namespace.
    pub name: Option<String>,
}

impl Wanted {
    /// One object.
    pub fn one(group: &'static str, kind: &'static str, namespace: &str, name: &str) -> Self {
        Wanted { group, kind, namespace: namespace.to_owned(), name: Some(name.to_owned()) }
    }

    /// Every object of a kind in a namespace, or in all of them if the namespace is empty.
    pub fn all(group: &'static str, kind: &'static str, namespace: &str) -> Self {
        Wanted { group, kind, namespace: namespace.to_owned(), name: None }
    }
}

/// The known objects, and the completed lookups.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// By kind, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    answered: BTreeSet<Wanted>,
    complete: bool,
}

impl World {
    /// A world that consists of these objects.
    pub fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut world = World { complete: true, ..World::default() };
        objects.into_iter().for_each(|object| world.add(object));
        world
    }

    /// Records the result of a lookup, which may be empty.
    pub fn learn(&mut self, wanted: Wanted, found: impl IntoIterator<Item = Value>) {
        for mut object in found {
            // Items of a list have no kind.
            object["kind"] = wanted.kind.into();
            self.add(object);
        }
        self.answered.insert(wanted);
    }

    fn add(&mut self, object: Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        self.objects.insert(key, object);
    }

    /// Whether the lookup has already been done.
    pub fn knows(&self, wanted: &Wanted) -> bool {
        self.complete || self.answered.contains(wanted)
    }

    /// One object, if it exists and can be decoded.
    pub fn get<T: DeserializeOwned>(&self, kind: &str, namespace: &str, name: &str) -> Option<T> {
        stored(self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))?)
    }

    /// Every decodable object of a kind in a namespace, or in all of them if the namespace is empty, sorted by name.
    pub(crate) fn all<T: DeserializeOwned>(&self, kind: &str, namespace: &str) -> Vec<T> {
        let from = (kind.to_owned(), namespace.to_owned(), String::new());
        let of_kind = self.objects.range(from..).take_while(|(key, _)| key.0 == kind);
        let wanted = of_kind.take_while(|(key, _)| namespace.is_empty() || key.1 == namespace);
        wanted.filter_map(|(_, object)| stored(object)).collect()
    }
}

//! A kind served a second time: in another version, or in another group with different field names.

use std::sync::LazyLock;

use serde_json::Value;

use crate::kinds::{Definition, KindId, Kinds};

/// A stored kind as seen from another group or version.
pub(crate) struct View {
    pub(crate) definition: Definition,
    /// The group it is stored in; the plural is the same.
    pub(crate) stored_group: &'static str,
    /// Stored and served name of each top-level field that differs.
    pub(crate) renames: &'static [(&'static str, &'static str)],
}

/// A kind as served at one path.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    pub(crate) kind: KindId,
    pub(crate) definition: &'static Definition,
    view: Option<&'static View>,
    stored: &'static Definition,
}

static VIEWS: LazyLock<Vec<View>> = LazyLock::new(|| {
    let mut views = crate::kinds::other_versions();
    views.push(crate::kinds::EVENTS_V1);
    views
});

static ALL: LazyLock<Vec<Served>> = LazyLock::new(|| {
    let kinds = Kinds::get();
    let stored = kinds.ids().map(Served::stored);
    let views = VIEWS.iter().filter_map(|view| {
        let kind = kinds.find(view.stored_group, view.definition.plural)?;
        Some(Served { kind, definition: &view.definition, view: Some(view), stored: kinds.definition(kind) })
    });
    stored.chain(views).collect()
});

impl Served {
    /// The kind in its stored form.
    pub(crate) fn stored(kind: KindId) -> Self {
        let definition = Kinds::get().definition(kind);
        Self { kind, definition, view: None, stored: definition }
    }

    /// Everything that is served, stored kinds first.
    pub(crate) fn all() -> &'static [Self] {
        &ALL
    }

    /// Resolves group, version and resource.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        let found = ALL.iter().find(|served| {
            let definition = served.definition;
            definition.group == group && definition.version == version && definition.plural == plural
        });
        found.copied()
    }

    /// Whether stored bytes can be sent as they are.
    pub(crate) fn is_stored_form(&self) -> bool {
        self.view.is_none()
    }

    /// Converts from the stored to the served form.
    pub(crate) fn serve(&self, mut object: Value) -> Value {
        if let Some(view) = self.view {
            rename(&mut object, view.renames.iter().map(|&(stored, served)| (stored, served)));
            object["apiVersion"] = self.definition.api_version().into();
        }
        object
    }

    /// Converts from the served to the stored form.
    pub(crate) fn store(&self, mut object: Value) -> Value {
        if let Some(view) = self.view {
            rename(&mut object, view.renames.iter().map(|&(stored, served)| (served, stored)));
            object["apiVersion"] = self.stored.api_version().into();
        }
        object
    }
}

fn rename(object: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_the_same_through_both_groups() {
        let served = Served::find("events.k8s.io", "v1", "events").unwrap();
        let stored =
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "x"}, "message": "m", "count": 2});
        let shown = served.serve(stored.clone());
        let expected = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "x"}, "note": "m", "deprecatedCount": 2,
        });
        assert_eq!(shown, expected);
        assert_eq!(served.store(shown), stored);
    }
}

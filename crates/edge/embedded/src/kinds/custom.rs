//! Custom resources from the table in `api::resources`: names, columns and schema validation. All other rules are
//! implemented by hooks.

use api::resources::{RESOURCES, Resource, Version};
use serde_json::Value;

use super::{Definition, Fields, KIND, Strategy, at};
use crate::errors::FieldError;
use crate::table::{Cell, Column, NAME};
use crate::views::View;

/// Default column of a custom resource: a date, instead of the built-in age.
pub(super) const AGE: Column =
    Column { name: "Age", kind: "date", wide: false, cell: Cell::Path(".metadata.creationTimestamp") };

struct Ours {
    definition: Definition,
    columns: Vec<Column>,
    resource: &'static Resource,
}

/// One strategy per kind, for its stored version.
pub(super) fn all() -> Vec<Box<dyn Strategy>> {
    let strategies = RESOURCES.iter().filter_map(|resource| {
        let stored = resource.versions.iter().find(|version| version.storage)?;
        let ours = Ours { definition: definition(resource, stored), columns: columns(resource), resource };
        Some(Box::new(ours) as Box<dyn Strategy>)
    });
    strategies.collect()
}

/// Versions that are served but not stored. All versions of a kind have the same fields.
pub(crate) fn other_versions() -> Vec<View> {
    let versions = RESOURCES.iter().flat_map(|resource| {
        let others = resource.versions.iter().filter(|version| !version.storage);
        others.map(|version| View {
            definition: definition(resource, version),
            stored_group: resource.group,
            renames: &[],
        })
    });
    versions.collect()
}

fn definition(resource: &'static Resource, version: &'static Version) -> Definition {
    Definition {
        group: resource.group,
        version: version.name,
        kind: resource.kind,
        plural: resource.plural,
        singular: resource.singular,
        short_names: resource.short_names,
        categories: resource.categories,
        namespaced: resource.namespaced,
        status: resource.status,
        generation: true,
        unconditional_update: false,
        scale: resource.scale.as_ref(),
        deprecated: version.deprecated,
        fields: Fields::Ours,
        ..KIND
    }
}

fn columns(resource: &'static Resource) -> Vec<Column> {
    let own = resource.columns.iter().map(|column| Column {
        name: column.name,
        kind: column.type_,
        wide: column.wide,
        cell: Cell::Path(column.path),
    });
    let age = resource.columns.is_empty().then_some(AGE);
    std::iter::once(NAME).chain(own).chain(age).collect()
}

impl Strategy for Ours {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let fields = self.resource.selectable_fields.iter().map(|path| path.trim_start_matches('.'));
        let value = |path| match at(object, path) {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        fields.map(|path| (path, value(path))).collect()
    }

    fn default(&self, object: &mut Value) {
        api::schema::apply_defaults(self.resource.kind, object);
    }

    fn validate_schema(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        api::schema::validate(self.resource.kind, object, old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use crate::views::Served;
    use serde_json::json;

    fn strategy(plural: &str) -> &'static dyn Strategy {
        let kinds = Kinds::get();
        let resource = RESOURCES.iter().find(|resource| resource.plural == plural).unwrap();
        kinds.strategy(kinds.find(resource.group, plural).unwrap())
    }

    #[test]
    fn every_version_of_every_kind_is_served() {
        for resource in RESOURCES {
            for version in resource.versions {
                let served = Served::find(resource.group, version.name, resource.plural).unwrap();
                assert_eq!(served.definition.deprecated, version.deprecated);
                assert_eq!(served.is_stored_form(), version.storage, "{} {}", resource.plural, version.name);
                let object = json!({"apiVersion": resource.api_version(), "kind": resource.kind});
                let shown = served.serve(object.clone());
                assert_eq!(shown["apiVersion"], format!("{}/{}", resource.group, version.name));
                assert_eq!(served.store(shown), object);
            }
        }
    }

    #[test]
    fn a_kind_without_columns_shows_its_age() {
        let names = |plural| strategy(plural).columns().iter().map(|column| column.name).collect::<Vec<_>>();
        assert_eq!(names("virtualmachineinstancetypes"), ["Name", "Age"]);
        assert_eq!(names("virtualmachines"), ["Name", "Age", "Status", "Ready"]);
    }

    #[test]
    fn the_schema_fills_in_judges_and_holds_against_an_update_only_what_it_made_worse() {
        let vms = strategy("virtualmachines");
        let mut wrong = json!({"metadata": {"name": "v"}, "status": {}, "spec": {
            "running": "yes", "runStrategy": null, "template": {"spec": {"domain": {"devices": {}}}},
        }});
        vms.default(&mut wrong);
        assert_eq!(wrong["status"]["printableStatus"], "Stopped");
        assert!(wrong["spec"].get("runStrategy").is_none(), "null is no value here");
        let fields = |errors: Vec<FieldError>| {
            errors.iter().map(|error| error.field.to_string()).filter(|field| field != "<nil>").collect::<Vec<_>>()
        };
        assert_eq!(fields(vms.validate_schema(&wrong, None)), ["spec.running"]);
        let mut labelled = wrong.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(fields(vms.validate_schema(&labelled, Some(&wrong))), Vec::<String>::new());
        labelled["spec"]["runStrategy"] = json!(7);
        assert_eq!(fields(vms.validate_schema(&labelled, Some(&wrong))), ["spec.runStrategy"]);
    }
}

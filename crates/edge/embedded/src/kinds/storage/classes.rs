//! StorageClasses.

use k8s_openapi::api::storage::v1::StorageClass;

use super::*;
use crate::errors::forbidden;

pub(in crate::kinds) struct Classes;

const DEFINITION: Definition = Definition {
    group: "storage.k8s.io",
    version: "v1",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    namespaced: false,
    fields: Fields::of::<StorageClass>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    Column::with("Name", |class, _| json!(name(class))),
    Column::text("Provisioner", ".provisioner"),
    Column::text("ReclaimPolicy", ".reclaimPolicy"),
    Column::text("VolumeBindingMode", ".volumeBindingMode"),
    Column::with("AllowVolumeExpansion", |class, _| json!(class["allowVolumeExpansion"] == Value::Bool(true))),
    AGE,
];

/// The default class is marked in the list.
fn name(class: &Value) -> String {
    let name = text_at(class, "metadata.name");
    let default = class["metadata"]["annotations"][::claims::DEFAULT_CLASS] == "true";
    if default { format!("{name} (default)") } else { name.to_owned() }
}

const POLICIES: &[&str] = &["Delete", "Retain"];
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];

impl Strategy for Classes {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn default(&self, class: &mut Value) {
        default_member(class, "reclaimPolicy", "Delete");
        default_member(class, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if text_at(class, "provisioner").is_empty() {
            errors.push(FieldError::required("provisioner".into(), ""));
        }
        for (field, known) in [("reclaimPolicy", POLICIES), ("volumeBindingMode", BINDING_MODES)] {
            let value = text_at(class, field);
            if !known.contains(&value) {
                errors.push(FieldError::not_supported(field.into(), value, known));
            }
        }
        errors
    }

    fn validate_update(&self, class: &Value, old: &Value) -> Vec<FieldError> {
        let changed = |field: &&str| {
            let empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
            class[*field] != old[*field] && !(*field == "parameters" && empty(&class[*field]) && empty(&old[*field]))
        };
        let fixed = ["parameters", "provisioner", "reclaimPolicy"].into_iter().filter(changed);
        let mut errors: Vec<FieldError> =
            fixed.map(|field| forbidden(field, &format!("updates to {field} are forbidden."))).collect();
        errors.extend(immutable(class, old, &["volumeBindingMode"]));
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_deletes_and_binds_at_once_unless_it_says_otherwise() {
        let mut class = json!({"metadata": {"name": "c"}, "provisioner": "p"});
        Classes.default(&mut class);
        assert_eq!((&class["reclaimPolicy"], &class["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
        assert!(Classes.validate(&class).is_empty());
        assert_eq!(name(&class), "c");
        class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        assert_eq!(name(&class), "c (default)");
    }

    #[test]
    fn how_a_class_provisions_is_fixed() {
        let mut old = json!({"metadata": {"name": "c"}, "provisioner": "p"});
        Classes.default(&mut old);
        for (change, errors) in [
            (json!({"allowVolumeExpansion": true}), 0),
            (json!({"parameters": {}}), 0),
            (json!({"parameters": {"a": "b"}}), 1),
            (json!({"provisioner": "q", "reclaimPolicy": "Retain"}), 2),
            (json!({"volumeBindingMode": "WaitForFirstConsumer"}), 1),
        ] {
            let mut new = old.clone();
            machinery::patch::merge(&mut new, &change);
            assert_eq!(Classes.validate_update(&new, &old).len(), errors, "{change}");
        }
        let bad = json!({"reclaimPolicy": "Recycle", "volumeBindingMode": "Later"});
        assert_eq!(Classes.validate(&bad).len(), 3);
    }
}

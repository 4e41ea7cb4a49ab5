//! VolumeSnapshots, what of them is in the storage, and their classes: custom resources of the external snapshotter.

use api::volumesnapshot::{GROUP, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};

use super::*;
use crate::kinds::custom::AGE;

pub(in crate::kinds) struct Snapshots;
pub(in crate::kinds) struct Contents;
pub(in crate::kinds) struct SnapshotClasses;

const SNAPSHOT: Definition = Definition {
    group: GROUP,
    kind: "VolumeSnapshot",
    plural: "volumesnapshots",
    singular: "volumesnapshot",
    short_names: &["vs"],
    namespaced: true,
    status: true,
    generation: true,
    unconditional_update: false,
    fields: Fields::kept::<VolumeSnapshot>(),
    ..KIND
};

const SNAPSHOT_COLUMNS: &[Column] = &[
    NAME,
    boolean("ReadyToUse", ".status.readyToUse"),
    Column::text("SourcePVC", ".spec.source.persistentVolumeClaimName"),
    Column::text("SourceSnapshotContent", ".spec.source.volumeSnapshotContentName"),
    Column::text("RestoreSize", ".status.restoreSize"),
    Column::text("SnapshotClass", ".spec.volumeSnapshotClassName"),
    Column::text("SnapshotContent", ".status.boundVolumeSnapshotContentName"),
    Column { kind: "date", ..Column::text("CreationTime", ".status.creationTime") },
    AGE,
];

const fn boolean(name: &'static str, path: &'static str) -> Column {
    Column { kind: "boolean", ..Column::text(name, path) }
}

impl Strategy for Snapshots {
    fn definition(&self) -> &Definition {
        &SNAPSHOT
    }

    fn columns(&self) -> &[Column] {
        SNAPSHOT_COLUMNS
    }

    fn validate(&self, snapshot: &Value) -> Vec<FieldError> {
        let mut errors = one_source(snapshot, ["volumeSnapshotContentName", "persistentVolumeClaimName"]);
        if at(snapshot, "spec.volumeSnapshotClassName") == "" {
            let text = "volumeSnapshotClassName must not be the empty string when set";
            errors.push(rule("spec.volumeSnapshotClassName", text));
        }
        errors
    }

    fn validate_update(&self, snapshot: &Value, old: &Value) -> Vec<FieldError> {
        fixed_sources(snapshot, old, ["persistentVolumeClaimName", "volumeSnapshotContentName"])
    }
}

const CONTENT: Definition = Definition {
    kind: "VolumeSnapshotContent",
    plural: "volumesnapshotcontents",
    singular: "volumesnapshotcontent",
    short_names: &["vsc", "vscs"],
    namespaced: false,
    fields: Fields::kept::<VolumeSnapshotContent>(),
    ..SNAPSHOT
};

const CONTENT_COLUMNS: &[Column] = &[
    NAME,
    boolean("ReadyToUse", ".status.readyToUse"),
    Column { kind: "integer", ..Column::text("RestoreSize", ".status.restoreSize") },
    Column::text("DeletionPolicy", ".spec.deletionPolicy"),
    Column::text("Driver", ".spec.driver"),
    Column::text("VolumeSnapshotClass", ".spec.volumeSnapshotClassName"),
    Column::text("VolumeSnapshot", ".spec.volumeSnapshotRef.name"),
    Column::text("VolumeSnapshotNamespace", ".spec.volumeSnapshotRef.namespace"),
    AGE,
];

impl Strategy for Contents {
    fn definition(&self) -> &Definition {
        &CONTENT
    }

    fn columns(&self) -> &[Column] {
        CONTENT_COLUMNS
    }

    fn validate(&self, content: &Value) -> Vec<FieldError> {
        let mut errors = validate_policy(content, "spec.deletionPolicy");
        errors.extend(required(content, &["spec.driver"]));
        errors.extend(one_source(content, ["volumeHandle", "snapshotHandle"]));
        let reference = at(content, "spec.volumeSnapshotRef");
        if text_at(reference, "name").is_empty() || text_at(reference, "namespace").is_empty() {
            let text = "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set";
            errors.push(rule("spec.volumeSnapshotRef", text));
        }
        errors
    }

    fn validate_update(&self, content: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = fixed_sources(content, old, ["volumeHandle", "snapshotHandle"]);
        if at(content, "spec.sourceVolumeMode") != at(old, "spec.sourceVolumeMode")
            && !at(old, "spec.sourceVolumeMode").is_null()
        {
            errors.push(rule("spec", "sourceVolumeMode is immutable once set"));
        }
        errors
    }
}

const CLASS: Definition = Definition {
    kind: "VolumeSnapshotClass",
    plural: "volumesnapshotclasses",
    singular: "volumesnapshotclass",
    short_names: &["vsclass", "vsclasses"],
    namespaced: false,
    status: false,
    fields: Fields::kept::<VolumeSnapshotClass>(),
    ..SNAPSHOT
};

const CLASS_COLUMNS: &[Column] =
    &[NAME, Column::text("Driver", ".driver"), Column::text("DeletionPolicy", ".deletionPolicy"), AGE];

impl Strategy for SnapshotClasses {
    fn definition(&self) -> &Definition {
        &CLASS
    }

    fn columns(&self) -> &[Column] {
        CLASS_COLUMNS
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = validate_policy(class, "deletionPolicy");
        errors.extend(required(class, &["driver"]));
        errors
    }
}

fn required(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let missing = fields.iter().filter(|field| text_at(object, field).is_empty());
    missing.map(|field| FieldError::required((*field).into(), "")).collect()
}

fn validate_policy(object: &Value, path: &str) -> Vec<FieldError> {
    const POLICIES: &[&str] = &["Delete", "Retain"];
    match text_at(object, path) {
        "" => vec![FieldError::required(path.into(), "")],
        policy if POLICIES.contains(&policy) => vec![],
        policy => vec![FieldError::not_supported(path.into(), policy, POLICIES)],
    }
}

fn one_source(object: &Value, [one, other]: [&str; 2]) -> Vec<FieldError> {
    let source = at(object, "spec.source");
    if [one, other].iter().filter(|field| !text_at(source, field).is_empty()).count() == 1 {
        return vec![];
    }
    vec![rule("spec.source", &format!("exactly one of {one} and {other} must be set"))]
}

fn fixed_sources(object: &Value, old: &Value, fields: [&str; 2]) -> Vec<FieldError> {
    let (source, before) = (at(object, "spec.source"), at(old, "spec.source"));
    let mut errors = Vec::new();
    for field in fields.into_iter().filter(|field| source[*field] != before[*field]) {
        let verb = match (before[field].is_null(), source[field].is_null()) {
            (false, false) => rule(&format!("spec.source.{field}"), &format!("{field} is immutable")),
            _ => rule("spec.source", &format!("{field} is required once set")),
        };
        errors.push(verb);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_snapshot_has_one_source_for_good() {
        let of = |source: Value| json!({"spec": {"source": source}});
        let claim = of(json!({"persistentVolumeClaimName": "c"}));
        assert!(Snapshots.validate(&claim).is_empty());
        let neither = "spec.source: Invalid value: exactly one of volumeSnapshotContentName and \
                       persistentVolumeClaimName must be set";
        assert_eq!(told(Snapshots.validate(&of(json!({})))), [neither]);
        let both = of(json!({"persistentVolumeClaimName": "c", "volumeSnapshotContentName": "d"}));
        assert_eq!(told(Snapshots.validate(&both)), [neither]);
        let other = of(json!({"persistentVolumeClaimName": "d"}));
        assert_eq!(
            told(Snapshots.validate_update(&other, &claim)),
            ["spec.source.persistentVolumeClaimName: Invalid value: persistentVolumeClaimName is immutable"]
        );
    }

    #[test]
    fn contents_and_classes_name_a_driver_and_a_policy() {
        let content = json!({"spec": {
            "deletionPolicy": "Delete", "driver": "d", "source": {"volumeHandle": "h"},
            "volumeSnapshotRef": {"name": "s", "namespace": "n"},
        }});
        assert!(Contents.validate(&content).is_empty());
        assert_eq!(Contents.validate(&json!({"spec": {}})).len(), 4);
        assert!(SnapshotClasses.validate(&json!({"driver": "d", "deletionPolicy": "Retain"})).is_empty());
        assert_eq!(told(SnapshotClasses.validate(&json!({"driver": "d", "deletionPolicy": "Burn"}))).len(), 1);
    }
}

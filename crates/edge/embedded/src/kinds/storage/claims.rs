//! PersistentVolumeClaims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::*;

pub(in crate::kinds) struct Claims;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    namespaced: true,
    status: true,
    fields: Fields::of::<PersistentVolumeClaim>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    Column::with("Status", |claim, _| json!(phase(claim))),
    Column::text("Volume", ".spec.volumeName"),
    Column::with("Capacity", |claim, _| json!(if_bound(claim, text_at(claim, "status.capacity.storage")))),
    Column::with("Access Modes", |claim, _| json!(if_bound(claim, &access_modes(claim, "status.accessModes")))),
    Column::with("StorageClass", |claim, _| json!(class(claim))),
    Column::with("VolumeAttributesClass", |claim, _| match text_at(claim, "spec.volumeAttributesClassName") {
        "" => json!("<unset>"),
        class => json!(class),
    }),
    AGE,
    Column::with("VolumeMode", |claim, _| json!(mode_or_unset(claim))).wide(),
];

/// What `kubectl get` shows only of a claim that has a volume.
fn if_bound(claim: &Value, text: &str) -> String {
    if text_at(claim, "spec.volumeName").is_empty() { String::new() } else { text.to_owned() }
}

impl Strategy for Claims {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn default(&self, claim: &mut Value) {
        default_member(&mut claim["spec"], "volumeMode", "Filesystem");
        default_member(claim, "status", json!({}));
        default_member(&mut claim["status"], "phase", "Pending");
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        claim["status"] = json!({"phase": "Pending"});
        if !is_claim_or_snapshot(&claim["spec"]["dataSource"])
            && let Some(spec) = claim["spec"].as_object_mut()
        {
            spec.remove("dataSource");
        }
        mirror_data_source(&mut claim["spec"]);
        add_finalizer(claim, ::claims::CLAIM_FINALIZER);
    }

    fn prepare_for_update(&self, claim: &mut Value, _old: &Value) {
        mirror_data_source(&mut claim["spec"]);
    }

    fn validate(&self, claim: &Value) -> Vec<FieldError> {
        let mut errors = validate_access_modes(claim);
        let requests = at(claim, "spec.resources.requests");
        errors.extend(validate_size(requests, "spec.resources[storage]"));
        errors.extend(validate_class_and_mode(claim));
        for field in ["dataSource", "dataSourceRef"] {
            errors.extend(validate_source(&claim["spec"][field], &format!("spec.{field}")));
        }
        let [source, reference] = ["dataSource", "dataSourceRef"].map(|field| &claim["spec"][field]);
        if source.is_object() && reference.is_object() {
            let same = ["kind", "name"].iter().all(|field| text_at(source, field) == text_at(reference, field))
                && text_at(source, "apiGroup") == text_at(reference, "apiGroup");
            if !text_at(reference, "namespace").is_empty() {
                let text = "may not be specified when dataSourceRef.namespace is specified";
                errors.push(FieldError::invalid("spec".into(), "dataSource", text));
            } else if !same {
                errors.push(FieldError::invalid("spec".into(), "dataSource", "must match dataSourceRef"));
            }
        }
        if !text_at(reference, "namespace").is_empty() {
            let text = "a source in another namespace is not supported by this server";
            errors.push(FieldError::forbidden("spec.dataSourceRef.namespace".into(), text));
        }
        errors
    }

    fn validate_update(&self, claim: &Value, old: &Value) -> Vec<FieldError> {
        const SIZE: &str = "spec.resources.requests.storage";
        let mut fixed = claim["spec"].clone();
        let before = &old["spec"];
        let keep = |spec: &mut Value, field: &str| match before.get(field) {
            Some(value) => spec[field] = value.clone(),
            None => drop(spec.as_object_mut().and_then(|spec| spec.remove(field))),
        };
        if text_at(before, "volumeName").is_empty() {
            keep(&mut fixed, "volumeName");
        }
        // A default class that comes later is filled in.
        if before.get("storageClassName").is_none() {
            keep(&mut fixed, "storageClassName");
        }
        let bound = text_at(old, "status.phase") == "Bound";
        let (size, size_before) = (at(claim, SIZE), at(old, SIZE));
        if bound && size != size_before && fixed["resources"]["requests"].is_object() {
            fixed["resources"]["requests"]["storage"] = size_before.clone();
        }
        if fixed != *before {
            let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            return vec![FieldError::forbidden("spec".into(), text)];
        }
        let read = |value: &Value| value.as_str().unwrap_or_default().parse::<Quantity>().unwrap_or(Quantity::ZERO);
        if read(size) < read(size_before) && read(size) <= read(at(old, "status.capacity.storage")) {
            return vec![FieldError::forbidden(SIZE.into(), "field can not be less than status.capacity")];
        }
        vec![]
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    match (text_at(source, "apiGroup"), text_at(source, "kind")) {
        ("", "PersistentVolumeClaim") => true,
        (group, "VolumeSnapshot") => group == api::volumesnapshot::GROUP,
        _ => false,
    }
}

/// `dataSource` and `dataSourceRef` say the same where one of them can.
fn mirror_data_source(spec: &mut Value) {
    match (spec["dataSource"].is_object(), spec["dataSourceRef"].is_object()) {
        (true, false) => spec["dataSourceRef"] = spec["dataSource"].clone(),
        (false, true) if text_at(spec, "dataSourceRef.namespace").is_empty() => {
            let source = spec["dataSourceRef"].clone();
            if is_claim_or_snapshot(&source) {
                spec["dataSource"] = source;
            }
        }
        _ => {}
    }
    if let Some(spec) = spec.as_object_mut() {
        // Looking for a field has made it.
        spec.retain(|_, value| !value.is_null());
    }
}

fn validate_source(source: &Value, path: &str) -> Vec<FieldError> {
    if !source.is_object() {
        return vec![];
    }
    let missing = ["name", "kind"].into_iter().filter(|field| text_at(source, field).is_empty());
    let mut errors: Vec<FieldError> =
        missing.map(|field| FieldError::required(format!("{path}.{field}").as_str().into(), "")).collect();
    if text_at(source, "apiGroup").is_empty() && text_at(source, "kind") != "PersistentVolumeClaim" {
        let text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path.into(), text_at(source, "kind"), text));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(change: Value) -> Value {
        let mut claim = json!({
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        machinery::patch::merge(&mut claim, &change);
        Claims.default(&mut claim);
        claim
    }

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_new_claim_is_protected_and_pending_and_its_sources_agree() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"});
        let other = json!({"apiGroup": "x.io", "kind": "Populator", "name": "a"});
        for (spec, data_source, reference) in [
            (json!({}), Value::Null, Value::Null),
            (json!({"dataSource": source}), source.clone(), source.clone()),
            (json!({"dataSourceRef": source}), source.clone(), source.clone()),
            (json!({"dataSourceRef": snapshot}), snapshot.clone(), snapshot.clone()),
            (json!({"dataSourceRef": other}), Value::Null, other.clone()),
            (json!({"dataSource": other}), Value::Null, Value::Null),
        ] {
            let mut claim = claim(json!({"spec": spec, "status": {"phase": "Bound"}}));
            Claims.prepare_for_create(&mut claim);
            assert_eq!(claim["status"], json!({"phase": "Pending"}));
            assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
            assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
            assert_eq!((&claim["spec"]["dataSource"], &claim["spec"]["dataSourceRef"]), (&data_source, &reference));
            assert_eq!(told(Claims.validate(&claim)), Vec::<String>::new());
        }
    }

    #[test]
    fn a_wrong_claim_is_refused_field_by_field() {
        for (spec, expected) in [
            (json!({"accessModes": null}), "spec.accessModes: Required value: at least 1 access mode is required"),
            (
                json!({"accessModes": ["Often"]}),
                "spec.accessModes: Unsupported value: \"Often\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \
                 \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            ),
            (
                json!({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}),
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            ),
            (json!({"resources": null}), "spec.resources[storage]: Required value"),
            (
                json!({"resources": {"requests": {"storage": "0"}}}),
                "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            (
                json!({"volumeMode": "Tape"}),
                "spec.volumeMode: Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\"",
            ),
            (json!({"dataSource": {"kind": "PersistentVolumeClaim"}}), "spec.dataSource.name: Required value"),
            (
                json!({"dataSourceRef": {"kind": "Pod", "name": "a"}}),
                "spec.dataSourceRef: Invalid value: \"Pod\": must be 'PersistentVolumeClaim' when referencing the default \
                 apiGroup",
            ),
            (
                json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                       "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}),
                "spec: Invalid value: \"dataSource\": must match dataSourceRef",
            ),
        ] {
            assert_eq!(told(Claims.validate(&claim(json!({"spec": spec})))), [expected]);
        }
    }

    #[test]
    fn a_claim_changes_in_few_ways() {
        let pending = claim(json!({}));
        let bound = claim(json!({
            "spec": {"volumeName": "v", "storageClassName": "local"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        }));
        let growing = claim(json!({
            "spec": {"volumeName": "v", "resources": {"requests": {"storage": "5Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        }));
        let size = |size: &str| json!({"resources": {"requests": {"storage": size}}});
        const SPEC: &str = "spec: Forbidden: spec is immutable after creation except resources.requests and \
                            volumeAttributesClassName for bound claims";
        const SMALL: &str = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
        for (old, change, expected) in [
            (&pending, json!({"volumeName": "v"}), None),
            (&pending, json!({"storageClassName": "local"}), None),
            (&pending, size("2Gi"), Some(SPEC)),
            (&pending, json!({"volumeMode": "Block"}), Some(SPEC)),
            (&bound, json!({"volumeName": "w"}), Some(SPEC)),
            (&bound, json!({"volumeName": null}), Some(SPEC)),
            (&bound, json!({"storageClassName": "other"}), Some(SPEC)),
            (&bound, json!({"accessModes": ["ReadWriteMany"]}), Some(SPEC)),
            (&bound, size("2Gi"), None),
            (&bound, size("1Gi"), None),
            (&bound, size("512Mi"), Some(SMALL)),
            (&growing, size("3Gi"), None),
            (&growing, size("1Gi"), Some(SMALL)),
        ] {
            let mut new = old.clone();
            machinery::patch::merge(&mut new["spec"], &change);
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(told(Claims.validate_update(&new, old)), expected, "{change}");
        }
    }
}

//! PersistentVolumes.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::*;

pub(in crate::kinds) struct Volumes;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    namespaced: false,
    status: true,
    fields: Fields::of::<PersistentVolume>(),
    ..KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Capacity", ".spec.capacity.storage"),
    Column::with("Access Modes", |volume, _| json!(access_modes(volume, "spec.accessModes"))),
    Column::text("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
    Column::with("Status", |volume, _| json!(phase(volume))),
    Column::with("Claim", |volume, _| json!(claim(volume))),
    Column::with("StorageClass", |volume, _| json!(class(volume))),
    Column::with("VolumeAttributesClass", |volume, _| match text_at(volume, "spec.volumeAttributesClassName") {
        "" => json!("<unset>"),
        class => json!(class),
    }),
    Column::text("Reason", ".status.reason"),
    AGE,
    Column::with("VolumeMode", |volume, _| json!(mode_or_unset(volume))).wide(),
];

/// Of a volume's spec: everything that is not one of these says what the volume is.
const GENERAL: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
const POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];

impl Strategy for Volumes {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn default(&self, volume: &mut Value) {
        default_member(&mut volume["spec"], "persistentVolumeReclaimPolicy", "Retain");
        default_member(&mut volume["spec"], "volumeMode", "Filesystem");
        default_member(volume, "status", json!({}));
        default_member(&mut volume["status"], "phase", "Pending");
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": crate::registry::now()});
        add_finalizer(volume, ::claims::VOLUME_FINALIZER);
    }

    fn validate(&self, volume: &Value) -> Vec<FieldError> {
        let mut errors = validate_access_modes(volume);
        errors.extend(validate_size(at(volume, "spec.capacity"), "spec.capacity[storage]"));
        errors.extend(validate_class_and_mode(volume));
        let policy = text_at(volume, "spec.persistentVolumeReclaimPolicy");
        if !POLICIES.contains(&policy) {
            errors.push(FieldError::not_supported("spec.persistentVolumeReclaimPolicy".into(), policy, POLICIES));
        }
        match sources(volume).len() {
            0 => errors.push(FieldError::required("spec".into(), "must specify a volume type")),
            1 => {}
            _ => errors.push(FieldError::forbidden("spec".into(), "may not specify more than 1 volume type")),
        }
        if volume["spec"]["csi"].is_object() {
            let missing = ["driver", "volumeHandle"]
                .into_iter()
                .filter(|field| text_at(&volume["spec"]["csi"], field).is_empty());
            errors.extend(missing.map(|field| FieldError::required(format!("spec.csi.{field}").as_str().into(), "")));
        }
        errors
    }

    fn validate_update(&self, volume: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if sources(volume) != sources(old) {
            let text = "spec.persistentvolumesource is immutable after creation";
            errors.push(FieldError::forbidden("spec.persistentvolumesource".into(), text));
        }
        errors.extend(immutable(volume, old, &["spec.volumeMode"]));
        if !at(old, "spec.nodeAffinity").is_null() {
            errors.extend(immutable(volume, old, &["spec.nodeAffinity"]));
        }
        errors
    }
}

/// What the volume is: exactly one member.
fn sources(volume: &Value) -> Vec<(&String, &Value)> {
    let all = at(volume, "spec").as_object().into_iter().flatten();
    all.filter(|(name, _)| !GENERAL.contains(&name.as_str())).collect()
}

fn claim(volume: &Value) -> String {
    match text_at(volume, "spec.claimRef.name") {
        "" => String::new(),
        name => format!("{}/{name}", text_at(volume, "spec.claimRef.namespace")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: Value) -> Value {
        let mut volume = json!({"metadata": {"name": "v"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        }});
        machinery::patch::merge(&mut volume["spec"], &spec);
        Volumes.default(&mut volume);
        volume
    }

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_new_volume_is_kept_by_default_and_protected() {
        let mut volume = volume(json!({}));
        Volumes.prepare_for_create(&mut volume);
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(volume["spec"]["volumeMode"], "Filesystem");
        assert_eq!(volume["status"]["phase"], "Pending");
        assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
        assert!(Volumes.validate(&volume).is_empty());
    }

    #[test]
    fn a_wrong_volume_is_refused_field_by_field() {
        for (spec, expected) in [
            (json!({"csi": null}), "spec: Required value: must specify a volume type"),
            (json!({"hostPath": {"path": "/x"}}), "spec: Forbidden: may not specify more than 1 volume type"),
            (json!({"csi": {"driver": null}}), "spec.csi.driver: Required value"),
            (json!({"capacity": null}), "spec.capacity[storage]: Required value"),
            (
                json!({"persistentVolumeReclaimPolicy": "Burn"}),
                "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Burn\": supported values: \"Delete\", \
                 \"Recycle\", \"Retain\"",
            ),
        ] {
            assert_eq!(told(Volumes.validate(&volume(spec))), [expected]);
        }
    }

    #[test]
    fn what_a_volume_is_does_not_change() {
        let old = volume(json!({}));
        for (change, expected) in [
            (json!({"claimRef": {"name": "c"}}), None),
            (json!({"capacity": {"storage": "2Gi"}}), None),
            (json!({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}), None),
            (
                json!({"csi": {"volumeHandle": "other"}}),
                Some("spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"),
            ),
            (json!({"volumeMode": "Block"}), Some("spec.volumeMode: Invalid value: \"Block\": field is immutable")),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(told(Volumes.validate_update(&volume(change), &old)), expected);
        }
    }
}

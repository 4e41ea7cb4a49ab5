//! ConfigMaps and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, at, default_member, text_at};
use crate::errors::{FieldError, forbidden, invalid, required};
use crate::table::{AGE, Column, NAME};

/// Size limit of both kinds, in bytes.
const MAX_BYTES: usize = 1 << 20;

const DATA: Column = Column::with("Data", |object, _| {
    let count = |path| at(object, path).as_object().map_or(0, serde_json::Map::len);
    json!(count("data") + count("binaryData"))
});

pub(super) struct ConfigMaps;

const CONFIG_MAP: Definition = Definition {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    namespaced: true,
    fields: Fields::of::<ConfigMap>(),
    ..KIND
};

impl Strategy for ConfigMaps {
    fn definition(&self) -> &Definition {
        &CONFIG_MAP
    }

    fn columns(&self) -> &[Column] {
        const { &[NAME, DATA, AGE] }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_keys(object, "data");
        errors.extend(validate_keys(object, "binaryData"));
        errors.extend(validate_size(object, &["data", "binaryData"]));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_immutable(object, old, &["data", "binaryData"])
    }
}

pub(super) struct Secrets;

const SECRET: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    namespaced: true,
    fields: Fields::of::<Secret>(),
    ..KIND
};

impl Strategy for Secrets {
    fn definition(&self) -> &Definition {
        &SECRET
    }

    fn columns(&self) -> &[Column] {
        const { &[NAME, Column::text("Type", ".type"), DATA, AGE] }
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("type", text_at(object, "type").to_owned())]
    }

    /// `stringData` is write-only: it becomes `data`.
    fn default(&self, object: &mut Value) {
        default_member(object, "type", "Opaque");
        let Some(Value::Object(strings)) = object.as_object_mut().and_then(|map| map.remove("stringData")) else {
            return;
        };
        default_member(object, "data", json!({}));
        for (key, value) in strings {
            object["data"][key] = json!(BASE64.encode(value.as_str().unwrap_or_default()));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_keys(object, "data");
        errors.extend(validate_size(object, &["data"]));
        let needed: &[&str] = match text_at(object, "type") {
            "kubernetes.io/tls" => &["tls.crt", "tls.key"],
            "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
            "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
            _ => &[],
        };
        for key in needed {
            if object["data"].get(key).is_none() {
                errors.push(required(&format!("data[{key}]"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_immutable(object, old, &["data"]);
        if object["type"] != old["type"] {
            errors.push(invalid("type", &object["type"], "field is immutable"));
        }
        errors
    }
}

/// Keys become file names when mounted.
fn validate_keys(object: &Value, field: &str) -> Vec<FieldError> {
    let keys = object[field].as_object().into_iter().flatten().map(|(key, _)| key);
    let usable = |key: &str| {
        !key.is_empty()
            && key.len() <= 253
            && key != "."
            && !key.starts_with("..")
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    keys.filter(|key| !usable(key))
        .map(|key| {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            invalid(&format!("{field}[{key}]"), &json!(key), detail)
        })
        .collect()
}

fn validate_size(object: &Value, fields: &[&str]) -> Option<FieldError> {
    let values = fields.iter().flat_map(|field| object[*field].as_object().into_iter().flatten());
    let bytes: usize = values.map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    (bytes > MAX_BYTES).then(|| invalid("data", &json!("…"), &format!("may not be more than {MAX_BYTES} bytes")))
}

fn validate_immutable(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != Value::Bool(true) {
        return vec![];
    }
    let changed = std::iter::once(&"immutable").chain(fields).filter(|field| object[**field] != old[**field]);
    changed.map(|field| forbidden(field, "field is immutable when `immutable` is set")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_of_a_secret_becomes_data() {
        let mut secret = json!({"data": {"a": "YQ=="}, "stringData": {"b": "b", "a": "c"}});
        Secrets.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "Yw==", "b": "Yg=="}}));
    }

    #[test]
    fn an_immutable_config_map_stays_as_it_is() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert!(ConfigMaps.validate_update(&old, &old).is_empty());
        assert_eq!(ConfigMaps.validate_update(&json!({"immutable": true, "data": {"a": "2"}}), &old).len(), 1);
        assert_eq!(ConfigMaps.validate_update(&json!({"data": {"a": "1"}}), &old).len(), 1);
        assert!(ConfigMaps.validate_update(&json!({"data": {}}), &json!({"data": {"a": "1"}})).is_empty());
    }

    #[test]
    fn keys_must_be_usable_as_file_names() {
        let table = [("a.b-c_D", true), ("..", false), ("../x", false), ("a/b", false), (".", false), ("", false)];
        for (key, ok) in table {
            let errors = ConfigMaps.validate(&json!({"data": {key: "x"}}));
            assert_eq!(errors.is_empty(), ok, "{key}");
        }
    }
}

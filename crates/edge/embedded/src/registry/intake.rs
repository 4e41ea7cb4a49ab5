//! Turns a request body into an object of its kind: type-checked, without nulls and unknown fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::errors::ApiError;
use crate::kinds::{Definition, Fields, RoundTrip};
use crate::views::Served;

/// How to handle unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Checks a body against its kind and converts it to the stored form. Unknown fields are dropped and reported as
/// warnings or an error.
pub(super) fn intake(
    served: &Served,
    mut body: Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let definition = served.definition;
    check_type(definition, &mut body)?;
    let (object, unknown) = match definition.fields {
        Fields::Ours => by_schema(definition, body)?,
        Fields::Typed(round_trip) => by_type(definition, body, round_trip)?,
        Fields::Kept(read) => (kept(definition, body, read)?, Vec::new()),
    };
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            let list: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
            return Err(refuse(definition, &format!("strict decoding error: {}", list.join(", "))));
        }
        FieldValidation::Warn => warnings.extend(unknown.iter().map(|path| format!("unknown field {path:?}"))),
        _ => {}
    }
    Ok(served.store(object))
}

/// The schemas of our kinds know every field. Violations by values are reported after defaulting and rules.
fn by_schema(definition: &Definition, mut object: Value) -> Result<(Value, Vec<String>), ApiError> {
    drop_nulls(&mut object["metadata"]); // elsewhere the schema knows where null is a valid value
    check_metadata(definition, &object)?;
    let unknown = api::schema::prune(definition.kind, &mut object);
    Ok((object, unknown.iter().map(ToString::to_string).collect()))
}

fn kept(definition: &Definition, mut object: Value, read: RoundTrip) -> Result<Value, ApiError> {
    drop_nulls(&mut object);
    check_metadata(definition, &object)?;
    read(&object).map_err(|err| refuse(definition, &err.to_string()))?;
    Ok(object)
}

/// Checks the part that all kinds share and the server depends on.
fn check_metadata(definition: &Definition, object: &Value) -> Result<(), ApiError> {
    let metadata = ObjectMeta::deserialize(&object["metadata"]);
    metadata.map(drop).map_err(|err| refuse(definition, &format!("metadata: {err}")))
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// For Kubernetes kinds the type itself determines the fields.
fn by_type(definition: &Definition, body: Value, round_trip: RoundTrip) -> Result<(Value, Vec<String>), ApiError> {
    let known = round_trip(&body).map_err(|err| refuse(definition, &err.to_string()))?;
    let mut unknown = Vec::new();
    let object = restrict(body, &known, &mut String::new(), &mut unknown);
    Ok((object, unknown))
}

fn refuse(definition: &Definition, detail: &str) -> ApiError {
    let (kind, version) = (definition.kind, definition.version);
    ApiError::BadRequest(format!("{kind} in version {version:?} cannot be handled as a {kind}: {detail}"))
}

/// A body may omit its type, but not state another one.
fn check_type(definition: &Definition, body: &mut Value) -> Result<(), ApiError> {
    let Some(map) = body.as_object_mut() else {
        return Err(refuse(definition, "the body is not an object"));
    };
    let expected = definition.api_version();
    let claims = |map: &Map<String, Value>, name: &str, expected: &str| {
        map.get(name).and_then(Value::as_str).filter(|found| *found != expected).map(str::to_owned)
    };
    if let Some(found) = claims(map, "apiVersion", &expected) {
        let text =
            format!("the API version in the data ({found}) does not match the expected API version ({expected})");
        return Err(ApiError::BadRequest(text));
    }
    if let Some(found) = claims(map, "kind", definition.kind) {
        let text = format!("the kind in the data ({found}) does not match the expected kind ({})", definition.kind);
        return Err(ApiError::BadRequest(text));
    }
    map.insert("apiVersion".into(), expected.into());
    map.insert("kind".into(), definition.kind.into());
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".into(), Value::Object(Map::new()));
    }
    Ok(())
}

/// The part of `sent` that is in `known`, which is `sent` after a round trip through the kind's type. Paths of other
/// fields are collected. Empty values are kept even if the type omits them, so that an apply finds what it sent.
fn restrict(sent: Value, known: &Value, path: &mut String, unknown: &mut Vec<String>) -> Value {
    match (sent, known) {
        (Value::Object(map), Value::Object(known)) => {
            let mut kept = Map::new();
            for (name, value) in map {
                if value.is_null() {
                    continue;
                }
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&name);
                match known.get(&name) {
                    Some(known) => {
                        kept.insert(name, restrict(value, known, path, unknown));
                    }
                    None if is_zero(&value) => {
                        kept.insert(name, value);
                    }
                    None => unknown.push(path.clone()),
                }
                path.truncate(length);
            }
            Value::Object(kept)
        }
        (Value::Array(items), Value::Array(known)) if items.len() == known.len() => {
            let restricted = items.into_iter().zip(known).enumerate().map(|(index, (item, known))| {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                let item = restrict(item, known, path, unknown);
                path.truncate(length);
                item
            });
            Value::Array(restricted.collect())
        }
        // The type determines the form of a value: a quantity written as a number becomes a string.
        (sent, known) if std::mem::discriminant(&sent) != std::mem::discriminant(known) => known.clone(),
        (sent, _) => sent,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(body: Value, validation: FieldValidation) -> (Result<Value, ApiError>, Vec<String>) {
        let served = Served::find("", "v1", "pods").unwrap();
        let mut warnings = vec![];
        let result = intake(&served, body, validation, &mut warnings);
        (result, warnings)
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let body = json!({"spec": {"containers": [{"name": "a", "imagee": "x", "env": []}], "colour": {"x": 1}}});
        let (object, warnings) = take(body.clone(), FieldValidation::Warn);
        assert_eq!(object.unwrap()["spec"], json!({"containers": [{"name": "a", "env": []}]}));
        assert_eq!(warnings, [r#"unknown field "spec.colour""#, r#"unknown field "spec.containers[0].imagee""#]);
        let (object, warnings) = take(body.clone(), FieldValidation::Ignore);
        assert!(object.is_ok() && warnings.is_empty());
        let (object, _) = take(body, FieldValidation::Strict);
        let text = object.unwrap_err().to_string();
        assert!(text.contains(r#"strict decoding error: unknown field "spec.colour""#), "{text}");
    }

    #[test]
    fn nulls_go_and_quantities_become_text() {
        let body = json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}},
        ]}});
        let object = take(body, FieldValidation::Strict).0.unwrap();
        assert_eq!(object["metadata"], json!({}));
        assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    }

    #[test]
    fn a_body_of_another_type_is_refused() {
        let table = [
            (json!({"apiVersion": "v2", "kind": "Pod"}), "API version in the data (v2)"),
            (json!({"apiVersion": "v1", "kind": "Node"}), "kind in the data (Node)"),
            (json!({"spec": {"containers": "x"}}), "Pod in version \"v1\" cannot be handled as a Pod"),
            (json!([]), "not an object"),
        ];
        for (body, expected) in table {
            let text = take(body, FieldValidation::Warn).0.unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}

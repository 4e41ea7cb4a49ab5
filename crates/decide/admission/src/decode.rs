//! From JSON to our types: schema validation first, then deserialization.

use api::schema;
use machinery::field::{Cause, FieldError, FieldPath};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes an object, and reports schema violations.
///
/// Unknown fields are rejected: dropping them silently would mislead their owner. Our own components write back what
/// they have read, which may predate a field's removal; for them unknown fields are dropped.
pub(crate) fn decode<T>(kind: &str, object: &Value, lenient: bool) -> Result<T, Vec<FieldError>>
where
    T: DeserializeOwned,
{
    if schema::is_tidy(kind, object) {
        return read(kind, object, Vec::new());
    }
    let mut object = object.clone();
    let unknown = schema::prune(kind, &mut object);
    schema::apply_defaults(kind, &mut object);
    schema::respell_quantities(kind, &mut object);
    let unknown = if lenient { Vec::new() } else { unknown };
    read(kind, &object, unknown)
}

fn read<T: DeserializeOwned>(kind: &str, object: &Value, unknown: Vec<FieldPath>) -> Result<T, Vec<FieldError>> {
    let mut errors = schema::check(kind, object);
    if errors.is_empty() {
        // Schema rules expect values of the right types.
        errors = schema::validations(kind, object, None);
    }
    errors.extend(unknown.into_iter().map(|field| FieldError::new(Cause::Invalid, field, "unknown field")));
    if !errors.is_empty() {
        return Err(errors);
    }
    // The path of the invalid field is only determined if there is one.
    T::deserialize(object).or_else(|_| typed(object).map_err(|error| vec![error]))
}

/// Decodes a stored object, which was validated before.
pub(crate) fn stored<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

/// Encodes an object.
pub(crate) fn encode(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("API types have string keys and serialize")
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let field = FieldPath::new(error.path().to_string().trim_start_matches('.'));
        FieldError::new(Cause::TypeInvalid, field, error.into_inner().to_string())
    })
}

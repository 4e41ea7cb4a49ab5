//! From JSON to our types: the schema first, then the decoder.

use api::schema;
use machinery::field::{Cause, FieldError, FieldPath};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an object, and says what the schema finds wrong with it.
///
/// Fields the schema does not have are refused: silently dropped, they would be promises nobody keeps. Our own
/// components write what they have read, which may be older than a field's removal; for them such fields just go.
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
        // Rules expect values of the right types.
        errors = schema::validations(kind, object, None);
    }
    errors.extend(unknown.into_iter().map(|field| FieldError::new(Cause::Invalid, field, "unknown field")));
    if !errors.is_empty() {
        return Err(errors);
    }
    // Which field cannot be read is worth finding out only if one cannot.
    T::deserialize(object).or_else(|_| typed(object).map_err(|error| vec![error]))
}

/// Reads an object that was stored, and so was judged before.
pub(crate) fn stored<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

/// Writes an object.
pub(crate) fn encode(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("API types have string keys and serialize")
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let field = FieldPath::new(error.path().to_string().trim_start_matches('.'));
        FieldError::new(Cause::TypeInvalid, field, error.into_inner().to_string())
    })
}

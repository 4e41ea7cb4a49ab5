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
    let mut object = object.clone();
    let unknown = schema::prune(kind, &mut object);
    let mut errors = schema::check(kind, &object);
    if !lenient {
        errors.extend(unknown.into_iter().map(|field| FieldError::new(Cause::Invalid, field, "unknown field")));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    spell_out_quantities(kind, &mut object);
    typed(object).map_err(|error| vec![error])
}

/// Reads an object that was stored, and so was judged before.
pub(crate) fn stored<T: DeserializeOwned>(object: &Value) -> Option<T> {
    typed(object.clone()).ok()
}

/// Writes an object.
pub(crate) fn encode(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("API types have string keys and serialize")
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let field = FieldPath::new(error.path().to_string().trim_start_matches('.'));
        FieldError::new(Cause::TypeInvalid, field, error.into_inner().to_string())
    })
}

/// A quantity may be a bare number (`cpu: 2`); the types only know strings, as Kubernetes stores it.
fn spell_out_quantities(kind: &str, object: &mut Value) {
    let spec = match kind {
        "VirtualMachine" => "/spec/template/spec",
        "VirtualMachineInstance" => "/spec",
        "KubeVirt" => return spell_out_all(object, &["spec", "configuration"], KUBEVIRT_QUANTITIES),
        _ => return,
    };
    if let Some(spec) = object.pointer_mut(spec) {
        spell_out_all(spec, &[], VMI_QUANTITIES);
    }
}

/// Quantities of an instance; `*` stands for any entry of a list or map.
const VMI_QUANTITIES: &[&[&str]] = &[
    &["domain", "resources", "requests", "*"],
    &["domain", "resources", "limits", "*"],
    &["domain", "memory", "guest"],
    &["domain", "memory", "maxGuest"],
    &["domain", "memory", "reservedOverhead", "addedOverhead"],
    &["volumes", "*", "emptyDisk", "capacity"],
    &["volumes", "*", "hostDisk", "capacity"],
    &["volumes", "*", "downwardAPI", "fields", "*", "resourceFieldRef", "divisor"],
];

/// Quantities of the cluster's configuration.
const KUBEVIRT_QUANTITIES: &[&[&str]] = &[
    &["cpuRequest"],
    &["liveUpdateConfiguration", "maxGuest"],
    &["migrations", "bandwidthPerMigration"],
    &["developerConfiguration", "diskVerification", "memoryLimit"],
    &["network", "binding", "*", "computeResourceOverhead", "requests", "*"],
    &["network", "binding", "*", "computeResourceOverhead", "limits", "*"],
    &["supportContainerResources", "*", "resources", "requests", "*"],
    &["supportContainerResources", "*", "resources", "limits", "*"],
];

fn spell_out_all(object: &mut Value, below: &[&str], quantities: &[&[&str]]) {
    for quantity in quantities {
        let path: Vec<&str> = below.iter().chain(*quantity).copied().collect();
        spell_out(object, &path);
    }
}

fn spell_out(value: &mut Value, path: &[&str]) {
    match (path, value) {
        ([], number @ Value::Number(_)) => *number = Value::String(number.to_string()),
        (["*", rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| spell_out(item, rest)),
        (["*", rest @ ..], Value::Object(entries)) => entries.values_mut().for_each(|entry| spell_out(entry, rest)),
        ([name, rest @ ..], Value::Object(fields)) => {
            if let Some(field) = fields.get_mut(*name) {
                spell_out(field, rest);
            }
        }
        _ => {}
    }
}

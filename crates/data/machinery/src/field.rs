//! Paths to fields, and errors about them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::Value;

/// A path to a field, spelled the way Kubernetes does: `spec.template.spec.domain.devices.disks[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself; its children are top-level fields.
    pub fn root() -> Self {
        FieldPath::default()
    }

    /// A top-level field, or a path already spelled out.
    pub fn new(path: impl Into<String>) -> Self {
        FieldPath(path.into())
    }

    /// A field of this object.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { FieldPath(name.to_owned()) } else { FieldPath(format!("{}.{name}", self.0)) }
    }

    /// An item of this list.
    pub fn index(&self, index: usize) -> Self {
        FieldPath(format!("{}[{index}]", self.0))
    }

    /// An entry of this map.
    pub fn key(&self, key: &str) -> Self {
        FieldPath(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        FieldPath::new(path)
    }
}

/// The path to the current field, kept on the stack while walking an object. Most fields are valid, so it is formatted
/// as a [`FieldPath`] only for an error.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object, or a preformatted path; empty for the object itself.
    pub fn new(path: &'a str) -> Self {
        Path { parent: None, step: Step::Name(path) }
    }

    /// A field of this object. The name may be several, separated by dots.
    pub fn child(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// An item of this list.
    pub fn index(&'a self, index: usize) -> Self {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of this map.
    pub fn key(&'a self, key: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn write(&self, text: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(text);
        }
        match self.step {
            Step::Name(name) => {
                if !text.is_empty() && !name.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => {
                text.push('[');
                text.push_str(&index.to_string());
                text.push(']');
            }
            Step::Key(key) => {
                text.push('[');
                text.push_str(key);
                text.push(']');
            }
        }
    }
}

impl From<&Path<'_>> for FieldPath {
    fn from(path: &Path<'_>) -> Self {
        let mut text = String::new();
        path.write(&mut text);
        FieldPath(text)
    }
}

/// The type of an error about a field, as in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The value breaks a rule.
    Invalid,
    /// The value is missing.
    Required,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value occurs twice where it must be unique.
    Duplicate,
    /// The field must not be set here.
    Forbidden,
    /// The value names something that does not exist.
    NotFound,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The text is too long.
    TooLong,
    /// The list or map has too many items.
    TooMany,
    /// A valid request that this build does not support.
    Unsupported,
}

impl Cause {
    /// The cause as `details.causes[].reason` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Invalid => "FieldValueInvalid",
            Cause::Required => "FieldValueRequired",
            Cause::NotSupported => "FieldValueNotSupported",
            Cause::Duplicate => "FieldValueDuplicate",
            Cause::Forbidden => "FieldValueForbidden",
            Cause::NotFound => "FieldValueNotFound",
            Cause::TypeInvalid => "FieldValueTypeInvalid",
            Cause::TooLong => "FieldValueTooLong",
            Cause::TooMany => "FieldValueTooMany",
            Cause::Unsupported => "FieldNotSupportedByThisBuild",
        }
    }
}

/// One error about one field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    pub cause: Cause,
    pub field: FieldPath,
    pub message: String,
}

impl FieldError {
    /// An error with a custom message.
    pub fn new(cause: Cause, field: FieldPath, message: impl Into<String>) -> Self {
        FieldError { cause, field, message: message.into() }
    }

    /// The value violates the rule in `detail`.
    pub fn invalid(field: FieldPath, value: impl Into<Value>, detail: impl fmt::Display) -> Self {
        let message = format!("Invalid value: {}: {detail}", shown(&value.into()));
        FieldError { cause: Cause::Invalid, field, message }
    }

    /// The value is missing.
    pub fn required(field: FieldPath, detail: &str) -> Self {
        FieldError { cause: Cause::Required, field, message: with_detail("Required value", detail) }
    }

    /// The value is none of `supported`.
    pub fn not_supported(field: FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        let message = with_detail(&format!("Unsupported value: {}", shown(&value.into())), &detail);
        FieldError { cause: Cause::NotSupported, field, message }
    }

    /// The value occurs twice.
    pub fn duplicate(field: FieldPath, value: impl Into<Value>) -> Self {
        FieldError { cause: Cause::Duplicate, field, message: format!("Duplicate value: {}", shown(&value.into())) }
    }

    /// The field must not be set here.
    pub fn forbidden(field: FieldPath, detail: &str) -> Self {
        FieldError { cause: Cause::Forbidden, field, message: with_detail("Forbidden", detail) }
    }

    /// The value has the wrong JSON type, as `detail` states.
    pub fn type_invalid(field: FieldPath, value: impl Into<Value>, detail: impl fmt::Display) -> Self {
        FieldError { cause: Cause::TypeInvalid, ..FieldError::invalid(field, value, detail) }
    }

    /// The string has more than `max` bytes. The message omits it.
    pub fn too_long(field: FieldPath, max: usize) -> Self {
        let message = format!("Too long: may not be more than {max} bytes");
        FieldError { cause: Cause::TooLong, field, message }
    }

    /// There are more than `max` items.
    pub fn too_many(field: FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {max} {items}");
        FieldError { cause: Cause::TooMany, field, message }
    }

    /// The request is valid, but not supported by this build.
    pub fn unsupported(field: FieldPath, what: impl fmt::Display) -> Self {
        FieldError { cause: Cause::Unsupported, field, message: format!("{what} is not supported by this build") }
    }
}

impl From<FieldError> for StatusCause {
    fn from(error: FieldError) -> StatusCause {
        StatusCause {
            field: Some(error.field.0),
            message: Some(error.message),
            reason: Some(error.cause.as_str().to_owned()),
        }
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

/// A value as Kubernetes prints it in messages: strings in Go's quotes, plain numbers, all else as JSON.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        // Numbers that do not fit a signed 64-bit integer are floating-point numbers in Go.
        Value::Number(number) if number.as_i64().is_none() => number.as_f64().map(float).unwrap_or_default(),
        // Go's JSON encoder escapes HTML.
        composite @ (Value::Array(_) | Value::Object(_)) => composite
            .to_string()
            .replace('<', r"\u003c")
            .replace('>', r"\u003e")
            .replace('&', r"\u0026")
            .replace('\u{2028}', r"\u2028")
            .replace('\u{2029}', r"\u2029"),
        plain => plain.to_string(),
    }
}

/// A string quoted like in Go: non-printable characters are escaped.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\u{7}' => quoted.push_str(r"\a"),
            '\u{8}' => quoted.push_str(r"\b"),
            '\u{c}' => quoted.push_str(r"\f"),
            '\n' => quoted.push_str(r"\n"),
            '\r' => quoted.push_str(r"\r"),
            '\t' => quoted.push_str(r"\t"),
            '\u{b}' => quoted.push_str(r"\v"),
            // Rust also escapes quotes, which is not needed here.
            '\'' | ' '..='~' => quoted.push(character),
            _ if character.escape_debug().len() == 1 => quoted.push(character),
            _ => quoted.push_str(&match u32::from(character) {
                code @ 0..0x80 => format!("\\x{code:02x}"),
                code @ 0x80..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    quoted.push('"');
    quoted
}

/// A floating-point number as Go prints it: the shortest representation that round-trips, with an exponent if it is
/// very large or small.
fn float(number: f64) -> String {
    if number != 0.0 && !(1e-4..1e6).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}

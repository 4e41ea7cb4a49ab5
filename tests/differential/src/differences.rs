//! Where we differ from KubeVirt on purpose. One row is one decision; a difference without a row is a mistake, and so is
//! a row without a difference.

use serde_json::Value;

use crate::compare::Difference;
use crate::generate::Case;
use crate::verdict::Verdict;

/// A difference and where it comes from.
pub struct Evidence<'a> {
    /// The object and its cluster.
    pub case: &'a Case,
    /// What we make of it.
    pub ours: &'a Verdict,
    /// What KubeVirt makes of it.
    pub theirs: &'a Verdict,
    /// How these differ.
    pub difference: &'a Difference,
}

/// A deliberate difference.
pub struct Row {
    /// The difference's key; a `*` stands for any text.
    pub key: &'static str,
    /// Why we differ.
    pub reason: &'static str,
    /// When the row speaks for a difference that has the key.
    pub when: fn(&Evidence<'_>) -> bool,
}

/// All of them.
pub const ROWS: &[Row] = &[
    Row {
        key: "value ours *",
        reason: "What its owner wrote stays, also where it says what silence would say. KubeVirt passes the object \
                 through Go's encoder, which leaves out false, 0, the empty text and empty lists.",
        when: |evidence| given(evidence).is_some_and(says_nothing),
    },
    Row {
        key: "value theirs *",
        reason: "What nobody wrote is not there. Go's encoder cannot leave out an empty structure or quantity that is \
                 part of another.",
        when: |evidence| ["{}", "\"0\"", "0"].contains(&evidence.difference.theirs.as_str())
            && ALWAYS_THERE.iter().any(|field| evidence.difference.key.ends_with(field)),
    },
];

/// Fields that Go writes whether or not they say anything.
const ALWAYS_THERE: &[&str] = &[
    " status.guestOSInfo",
    " status.runtimeUser",
    " spec.template.metadata",
    ".domain.resources",
    ".domain.features.acpi",
    ".dataVolumeTemplates[].metadata",
    ".spec.pvc.resources",
    ".spec.storage.resources",
    ".hostDisk.capacity",
    ".resourceFieldRef.divisor",
];

/// What the owner wrote in the field that differs.
fn given<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let pointer = format!("/{}", evidence.difference.path.replace(['.', '['], "/").replace(']', ""));
    evidence.case.object.pointer(&pointer)
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

/// The row that speaks for a difference.
pub fn row(evidence: &Evidence<'_>) -> Option<usize> {
    ROWS.iter().position(|row| matches(row.key, &evidence.difference.key) && (row.when)(evidence))
}

/// Whether a text has the shape of a key with stars.
fn matches(key: &str, text: &str) -> bool {
    match key.split_once('*') {
        None => key == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|end| text.is_char_boundary(*end)).any(|end| matches(rest, &text[end..]))
        }),
    }
}

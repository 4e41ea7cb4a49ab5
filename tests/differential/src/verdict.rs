//! What one side makes of an object.

use serde::Deserialize;
use serde_json::{Value, json};

/// One reason for a refusal.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// Its type, as in `FieldValueInvalid`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The path of the field.
    #[serde(default)]
    pub field: String,
    /// What is said about it.
    #[serde(default)]
    pub message: String,
}

/// What one side makes of an object.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The object with its defaults, if it got that far.
    pub object: Option<Value>,
    /// What is wrong with it.
    pub causes: Vec<Cause>,
    /// What the schema says. Then nothing else was looked at.
    pub schema: Vec<String>,
    /// A refusal of the request as a whole.
    pub refusal: Option<String>,
    /// Whether this side failed to answer.
    pub panicked: bool,
}

const DRAWN: &str = "(drawn)";

impl Verdict {
    /// Whether the object may be stored.
    pub fn accepted(&self) -> bool {
        self.object.is_some() && self.causes.is_empty() && self.refusal.is_none()
    }

    /// The same with what is drawn, or taken from a clock, put to one value.
    pub(crate) fn without_chance(mut self, given: &Value) -> Self {
        let Some(object) = &mut self.object else { return self };
        for spec in ["/spec", "/spec/template/spec"] {
            // A virtual machine draws both, an instance draws the first; ours derives them from the name.
            for field in ["uuid", "serial"] {
                let path = format!("{spec}/domain/firmware/{field}");
                let chosen = given.pointer(&path).is_some_and(|given| given != "");
                if let Some(value) = object.pointer_mut(&path)
                    && !chosen
                {
                    *value = json!(DRAWN);
                }
            }
        }
        // The time of the request.
        for transition in
            object.pointer_mut("/status/phaseTransitionTimestamps").and_then(Value::as_array_mut).into_iter().flatten()
        {
            transition["phaseTransitionTimestamp"] = json!(DRAWN);
        }
        self
    }
}

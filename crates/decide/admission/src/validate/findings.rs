//! What the rules find, in the order they find it.

use std::fmt;

use machinery::field::{Cause, FieldError, FieldPath, Path};
use serde_json::Value;

/// Causes, collected over all rules. Paths are spelled out here and nowhere else: most fields are fine.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<FieldError>);

impl Findings {
    /// The value breaks a rule that `detail` states.
    pub(crate) fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, detail: impl fmt::Display) {
        self.0.push(FieldError::invalid(at.into(), value, detail));
    }

    /// The value is missing.
    pub(crate) fn required(&mut self, at: &Path<'_>, detail: &str) {
        self.0.push(FieldError::required(at.into(), detail));
    }

    /// The value is none of `supported`.
    pub(crate) fn not_supported(&mut self, at: &Path<'_>, value: &str, supported: &[&str]) {
        self.0.push(FieldError::not_supported(at.into(), value, supported));
    }

    /// The value occurs twice.
    pub(crate) fn duplicate(&mut self, at: &Path<'_>, value: &str) {
        self.0.push(FieldError::duplicate(at.into(), value));
    }

    /// Something else is wrong, in the rule's own words.
    pub(crate) fn refuse(&mut self, cause: Cause, at: &Path<'_>, message: impl Into<String>) {
        self.0.push(FieldError::new(cause, at.into(), message));
    }

    /// The value is legitimate, and no guest of this build could run with it.
    pub(crate) fn unsupported(&mut self, at: &Path<'_>, what: &str) {
        self.0.push(crate::unsupported::refusal(FieldPath::from(at), what));
    }

    /// A name with the problems Kubernetes has with it, if any.
    pub(crate) fn name(&mut self, at: &Path<'_>, value: &str, problems: &[String]) {
        if !problems.is_empty() {
            self.invalid(at, value, problems.join(", "));
        }
    }

    /// All of them.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }
}

/// A text that says something.
pub(super) fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// A text, empty if there is none.
pub(super) fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

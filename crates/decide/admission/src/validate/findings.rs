//! Errors found by the rules, in order.

use std::fmt;

use machinery::field::{Cause, FieldError, FieldPath, Path};
use serde_json::Value;

/// Causes, collected over all rules. Paths are formatted only here: most fields are valid.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<FieldError>);

impl Findings {
    /// The value violates the rule in `detail`.
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

    /// Any other error, with the rule's own message.
    pub(crate) fn refuse(&mut self, cause: Cause, at: &Path<'_>, message: impl Into<String>) {
        self.0.push(FieldError::new(cause, at.into(), message));
    }

    /// The value is valid, but not supported by this build.
    pub(crate) fn unsupported(&mut self, at: &Path<'_>, what: &str) {
        self.0.push(crate::unsupported::refusal(FieldPath::from(at), what));
    }

    /// Adds the problems that Kubernetes finds with a name, if any.
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

/// A non-empty string.
pub(super) fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// A string, empty if unset.
pub(super) fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

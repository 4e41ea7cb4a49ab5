//! Query parameters.

use axum::extract::Query;
use http::Uri;
use machinery::field::FieldError;
use machinery::selector::{FieldSelector, Selector};
use serde_json::{Value, json};

use crate::cache::Filter;
use crate::errors::{ApiError, forbidden};
use crate::kinds::{Kinds, Strategy};
use crate::registry::{DeleteOptions, FieldValidation, Propagation};
use crate::views::Served;

/// The decoded query of a request.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let parsed = Query::<Vec<(String, String)>>::try_from_uri(uri);
        parsed.map(|Query(pairs)| Self(pairs)).map_err(|err| ApiError::BadRequest(err.body_text()))
    }

    /// The parameter's value; `None` if it is empty or absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// True if present without a value or with a true one. `watch` and `watch=1` are equivalent.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && !matches!(value.as_str(), "false" | "0" | "F" | "f" | "False"))
    }

    pub(crate) fn tristate(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(value, "true" | "1" | "T" | "t" | "True"))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let parse = |value: &str| {
            value.parse().map_err(|_| ApiError::BadRequest(format!("{name}: {value:?} is not a number that fits")))
        };
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn limit(&self) -> Result<Option<usize>, ApiError> {
        Ok(self.number("limit")?.filter(|limit| *limit > 0))
    }

    pub(crate) fn timeout_seconds(&self) -> Result<Option<u64>, ApiError> {
        self.number("timeoutSeconds")
    }

    /// The requested resource version; `None` for "any" and "latest".
    pub(crate) fn revision(&self) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get("resourceVersion") else { return Ok(None) };
        match text.parse() {
            Ok(0) => Ok(None),
            Ok(revision) => Ok(Some(revision)),
            Err(_) => Err(ApiError::BadRequest(format!("Invalid value: {text:?}: resourceVersion is not a number"))),
        }
    }

    pub(crate) fn dry_run(&self, options: &'static str) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some(value) => dry_run(std::iter::once(value), options),
        }
    }

    pub(crate) fn field_validation(&self, options: &'static str) -> Result<FieldValidation, ApiError> {
        match self.get("fieldValidation") {
            None => Ok(FieldValidation::default()),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => Err(unsupported(options, "fieldValidation", other, &["Ignore", "Strict", "Warn"])),
        }
    }

    /// Namespace from the path, selectors from the query.
    pub(crate) fn filter(&self, served: Served, namespace: &str) -> Result<Filter, ApiError> {
        let labels = Selector::parse(self.get("labelSelector").unwrap_or_default())
            .map_err(|err| ApiError::BadRequest(err.to_string()))?;
        let fields = FieldSelector::parse(self.get("fieldSelector").unwrap_or_default())
            .map_err(|err| ApiError::BadRequest(err.to_string()))?;
        let strategy = Kinds::get().strategy(served.kind);
        if let Some(term) = fields.terms().iter().find(|term| !is_selectable(strategy, &term.field)) {
            let (field, resource) = (&term.field, served.definition.resource_name());
            let text = format!("field label not supported: {field} ({resource} cannot be selected by it)");
            return Err(ApiError::BadRequest(text));
        }
        Ok(Filter::new(namespace, labels, fields))
    }

    /// The single name that a list or watch selects, if any: it is checked against `resourceNames` in roles.
    pub(crate) fn selected_name(&self) -> Option<String> {
        let fields = FieldSelector::parse(self.get("fieldSelector")?).ok()?;
        let term = fields.terms().iter().find(|term| term.field == "metadata.name" && term.equal)?;
        Some(term.value.clone())
    }

    /// Delete options: the query's, overridden by the body's.
    pub(crate) fn delete_options(&self, body: &Value) -> Result<DeleteOptions, ApiError> {
        let policy = body["propagationPolicy"].as_str().or_else(|| self.get("propagationPolicy"));
        let orphan = body["orphanDependents"].as_bool().or_else(|| self.tristate("orphanDependents"));
        let preconditions = &body["preconditions"];
        let text = |name: &str| preconditions[name].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            grace_period_seconds: body["gracePeriodSeconds"].as_i64().or(self.number("gracePeriodSeconds")?),
            propagation: propagation(policy, orphan)?,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        })
    }
}

/// `All` is the only supported dry run.
pub(crate) fn dry_run<'a>(mut values: impl Iterator<Item = &'a str>, options: &'static str) -> Result<bool, ApiError> {
    match values.find(|value| *value != "All") {
        Some(value) => Err(unsupported(options, "dryRun", value, &["All"])),
        None => Ok(true),
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, ApiError> {
    match (policy, orphan) {
        (Some("Background"), _) => Ok(Some(Propagation::Background)),
        (Some("Foreground"), _) => Ok(Some(Propagation::Foreground)),
        (Some("Orphan"), _) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, Some(false)) => Ok(Some(Propagation::Background)),
        (None, None) => Ok(None),
        (Some(other), _) => {
            Err(unsupported("DeleteOptions", "propagationPolicy", other, &["Background", "Foreground", "Orphan"]))
        }
    }
}

fn is_selectable(strategy: &dyn Strategy, field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
        || strategy.selectable_fields(&json!({})).iter().any(|(name, _)| *name == field)
}

/// An error about the parameters themselves, in Kubernetes' format.
pub(crate) fn forbidden_option(field: &str, detail: &str) -> ApiError {
    let error: FieldError = forbidden(field, detail);
    ApiError::InvalidOptions("ListOptions", vec![error])
}

/// A parameter with an unsupported value.
fn unsupported(options: &'static str, field: &str, value: &str, known: &[&str]) -> ApiError {
    ApiError::InvalidOptions(options, vec![FieldError::not_supported(field.into(), value, known)])
}

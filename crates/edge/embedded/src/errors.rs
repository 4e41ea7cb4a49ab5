//! All request errors, and the one place where they become responses.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use machinery::field::{Cause, FieldPath};
use machinery::status::{self, About};
use review::Refusal;
use serde_json::Value;

use crate::auth::{Attributes, Target};
use crate::kinds::Definition;
use crate::store::StoreError;

pub(crate) use machinery::field::FieldError;

/// The object and resource that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    group: &'static str,
    /// The plural name, or the kind for `Invalid`.
    resource: &'static str,
    name: String,
}

impl Subject {
    fn of(definition: &Definition, name: &str) -> Self {
        Self { group: definition.group, resource: definition.plural, name: name.to_owned() }
    }

    fn about(&self) -> About<'_> {
        About::new(self.group, self.resource, &self.name)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum ApiError {
    NotFound(Subject),
    AlreadyExists(Subject),
    Conflict(Subject, String),
    Invalid(Subject, Vec<FieldError>),
    /// Rejected by a hook.
    Refused(Box<Status>),
    /// Unknown or contradictory query parameters, and the kind of options they belong to.
    InvalidOptions(&'static str, Vec<FieldError>),
    Forbidden(Subject, String),
    /// Denied by RBAC.
    Denied(Box<Attributes>),
    Unauthorized,
    BadRequest(String),
    /// The eviction of a Pod is blocked by a disruption budget.
    DisruptionBudget {
        name: String,
        why: String,
    },
    /// A JSON patch that does not apply to the object.
    Unprocessable(String),
    MethodNotAllowed(&'static str),
    /// The supported media types.
    UnsupportedMediaType(Vec<&'static str>),
    NotAcceptable,
    TooLarge(String),
    /// The resource version is no longer, or not yet, known.
    Expired(String),
    FutureRevision {
        asked: u64,
        current: u64,
    },
    /// The stored object violates an invariant of the server.
    Internal(String),
    Store(Arc<StoreError>),
    ShuttingDown,
    UnknownPath,
    /// A custom resource without this subresource.
    UnknownSubresource(Subject),
}

impl ApiError {
    pub(crate) fn not_found(definition: &Definition, name: &str) -> Self {
        Self::NotFound(Subject::of(definition, name))
    }

    pub(crate) fn already_exists(definition: &Definition, name: &str) -> Self {
        Self::AlreadyExists(Subject::of(definition, name))
    }

    pub(crate) fn conflict(definition: &Definition, name: &str, why: String) -> Self {
        Self::Conflict(Subject::of(definition, name), why)
    }

    pub(crate) fn forbidden(definition: &Definition, name: &str, why: String) -> Self {
        Self::Forbidden(Subject::of(definition, name), why)
    }

    pub(crate) fn invalid(definition: &Definition, name: &str, errors: Vec<FieldError>) -> Self {
        Self::Invalid(Subject { resource: definition.kind, ..Subject::of(definition, name) }, errors)
    }

    /// From a hook's refusal of a write.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal.into_status()))
    }

    /// Like `invalid`, where Kubernetes names the resource instead of the kind.
    pub(crate) fn invalid_resource(definition: &Definition, name: &str, errors: Vec<FieldError>) -> Self {
        Self::Invalid(Subject::of(definition, name), errors)
    }

    /// The result of a patch cannot be decoded: the patch is invalid, not the request.
    pub(crate) fn of_patch(self) -> Self {
        let Self::BadRequest(why) = self else { return self };
        let error = FieldError::new(Cause::Invalid, FieldPath::new("patch"), format!("Invalid value: {why}"));
        Self::Invalid(Subject { group: "", resource: "", name: String::new() }, vec![error])
    }

    /// A failed precondition of a deletion. Kubernetes names the kind instead of the resource here.
    pub(crate) fn precondition(definition: &Definition, name: &str, why: String) -> Self {
        Self::Conflict(Subject { resource: definition.kind, ..Subject::of(definition, name) }, why)
    }

    pub(crate) fn unknown_subresource(definition: &Definition, name: &str) -> Self {
        match definition.is_custom() {
            true => Self::UnknownSubresource(Subject::of(definition, name)),
            false => Self::UnknownPath,
        }
    }

    /// A Pod that cannot be bound.
    pub(crate) fn unbindable(definition: &Definition, name: &str, why: String) -> Self {
        Self::Conflict(Subject { resource: "pods/binding", ..Subject::of(definition, name) }, why)
    }

    /// The response. Internal details go to the log, not to the client.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::NotFound(subject) => status::not_found(subject.about()),
            Self::AlreadyExists(subject) => status::already_exists(subject.about()),
            Self::Conflict(subject, why) => status::conflict(subject.about(), why),
            Self::Invalid(subject, errors) => status::invalid(subject.about(), errors.clone()),
            Self::Refused(status) => status.as_ref().clone(),
            Self::InvalidOptions(kind, errors) => status::invalid(About::new("meta.k8s.io", kind, ""), errors.clone()),
            Self::Forbidden(subject, why) => status::forbidden(subject.about(), why),
            Self::Denied(attributes) => denied(attributes),
            Self::Unauthorized => status::unauthorized(),
            Self::BadRequest(message) => status::bad_request(message),
            Self::DisruptionBudget { name, why } => disruption_budget(name, why),
            Self::Unprocessable(message) => failure(422, "Invalid", message.clone()),
            Self::MethodNotAllowed(what) => {
                let text = format!("the server does not allow this method on the requested resource: {what}");
                failure(405, "MethodNotAllowed", text)
            }
            Self::UnsupportedMediaType(types) => {
                let list = types.join(", ");
                let text = "the body of the request was in an unknown format - accepted media types include";
                status::unsupported_media_type(format!("{text}: {list}"))
            }
            Self::NotAcceptable => {
                let text = "only the following media types are accepted: application/json";
                failure(406, "NotAcceptable", text.into())
            }
            Self::TooLarge(why) => {
                let text = format!("Request entity too large: {why}");
                Status { details: None, ..failure(413, "RequestEntityTooLarge", text) }
            }
            Self::Expired(message) => status::expired(message),
            Self::FutureRevision { asked, current } => future_revision(*asked, *current),
            Self::Internal(why) => status::internal(why),
            Self::Store(err) => store_failure(err),
            Self::ShuttingDown => status::service_unavailable("the server is shutting down"),
            Self::UnknownPath => status::unknown_path(),
            Self::UnknownSubresource(subject) => {
                Status { message: status::unknown_path().message, ..status::not_found(subject.about()) }
            }
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status().message.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for ApiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(err) => Some(err.as_ref()),
            _ => None,
        }
    }
}

fn denied(attributes: &Attributes) -> Status {
    let refusal = attributes.refusal();
    match &attributes.target {
        Target::Path(_) => status::forbidden(About::default(), &refusal),
        Target::Resource { group, resource, name, .. } => {
            status::forbidden(About::new(group, resource, name), &refusal)
        }
    }
}

fn store_failure(err: &StoreError) -> Status {
    match err {
        StoreError::Full { .. } => failure(507, "InsufficientStorage", err.to_string()),
        _ => status::internal("the store failed; the server's log has the cause"),
    }
}

/// A resource version that is newer than this server's.
fn future_revision(asked: u64, current: u64) -> Status {
    let cause = StatusCause {
        message: Some("Too large resource version".into()),
        reason: Some("ResourceVersionTooLarge".into()),
        field: None,
    };
    let details = StatusDetails { causes: Some(vec![cause]), retry_after_seconds: Some(1), ..StatusDetails::default() };
    let text = format!("Timeout: Too large resource version: {asked}, current: {current}");
    Status { details: Some(details), ..failure(504, "Timeout", text) }
}

/// Clients tell this response from other "try again" ones by its cause.
fn disruption_budget(name: &str, why: &str) -> Status {
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = status::too_many_requests(text, 0);
    let cause = StatusCause { message: Some(why.to_owned()), reason: Some("DisruptionBudget".into()), field: None };
    let details = StatusDetails { name: Some(name.to_owned()), causes: Some(vec![cause]), ..StatusDetails::default() };
    status.details = Some(details);
    status
}

fn failure(code: i32, reason: &str, message: String) -> Status {
    Status {
        code: Some(code),
        details: Some(StatusDetails::default()),
        message: Some(message),
        reason: Some(reason.into()),
        status: Some("Failure".into()),
        ..Status::default()
    }
}

pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> FieldError {
    FieldError::invalid(field.into(), value.clone(), detail)
}

pub(crate) fn required(field: &str, detail: &str) -> FieldError {
    FieldError::required(field.into(), detail)
}

pub(crate) fn forbidden(field: &str, detail: &str) -> FieldError {
    FieldError::forbidden(field.into(), detail)
}

pub(crate) fn duplicate(field: &str, value: &str) -> FieldError {
    FieldError::duplicate(field.into(), value)
}

pub(crate) fn not_found(field: &str, value: &str) -> FieldError {
    FieldError::new(Cause::NotFound, FieldPath::new(field), format!("Not found: {value:?}"))
}

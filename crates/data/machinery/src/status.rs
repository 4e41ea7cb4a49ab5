//! `Status` responses, with the codes, reasons and messages that clients match on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};

use crate::field::FieldError;

/// What a response is about: a resource and, optionally, one object of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About<'a> {
    pub group: &'a str,
    /// The plural name of the resource; for [`invalid`] the kind.
    pub resource: &'a str,
    pub name: &'a str,
}

impl<'a> About<'a> {
    pub fn new(group: &'a str, resource: &'a str, name: &'a str) -> Self {
        About { group, resource, name }
    }

    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(&self) -> StatusDetails {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        StatusDetails {
            group: filled(self.group),
            kind: filled(self.resource),
            name: filled(self.name),
            ..StatusDetails::default()
        }
    }
}

/// 404: there is no such object.
pub fn not_found(about: About<'_>) -> Status {
    let message = format!("{} {:?} not found", about.qualified(), about.name);
    failure(404, "NotFound", message, Some(about.details()))
}

/// 404: there is no such path.
pub fn unknown_path() -> Status {
    let message = "the server could not find the requested resource".to_owned();
    failure(404, "NotFound", message, Some(StatusDetails::default()))
}

/// 409: there is such an object already.
pub fn already_exists(about: About<'_>) -> Status {
    let message = format!("{} {:?} already exists", about.qualified(), about.name);
    failure(409, "AlreadyExists", message, Some(about.details()))
}

/// 409: the object's state conflicts with the request.
pub fn conflict(about: About<'_>, why: &str) -> Status {
    let message = format!("Operation cannot be fulfilled on {} {:?}: {why}", about.qualified(), about.name);
    failure(409, "Conflict", message, Some(about.details()))
}

/// 409: the object has changed since it was read.
pub fn stale(about: About<'_>) -> Status {
    conflict(about, "the object has been modified; please apply your changes to the latest version and try again")
}

/// 422: fields are invalid. `about.resource` is the kind here.
pub fn invalid(about: About<'_>, errors: Vec<FieldError>) -> Status {
    let mut lines: Vec<String> = Vec::new();
    for line in errors.iter().map(ToString::to_string) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let what = format!("{} {:?} is invalid", about.qualified(), about.name);
    let message = match lines.as_slice() {
        [] => what,
        [line] => format!("{what}: {line}"),
        lines => format!("{what}: [{}]", lines.join(", ")),
    };
    let causes: Vec<StatusCause> = errors.into_iter().map(StatusCause::from).collect();
    let details = StatusDetails { causes: (!causes.is_empty()).then_some(causes), ..about.details() };
    failure(422, "Invalid", message, Some(details))
}

/// 403: not permitted for this user, or in this state.
pub fn forbidden(about: About<'_>, why: &str) -> Status {
    let message = match (about.resource, about.name) {
        ("", _) => format!("forbidden: {why}"),
        (_, "") => format!("{} is forbidden: {why}", about.qualified()),
        (_, name) => format!("{} {name:?} is forbidden: {why}", about.qualified()),
    };
    failure(403, "Forbidden", message, Some(about.details()))
}

/// 401: the user is not authenticated.
pub fn unauthorized() -> Status {
    failure(401, "Unauthorized", "Unauthorized".to_owned(), None)
}

/// 400: the request is invalid.
pub fn bad_request(message: impl Into<String>) -> Status {
    failure(400, "BadRequest", message.into(), None)
}

/// 410: the requested resourceVersion is no longer available; list again.
pub fn expired(message: impl Into<String>) -> Status {
    failure(410, "Expired", message.into(), None)
}

/// 405: the resource does not support this verb.
pub fn method_not_allowed(about: About<'_>, action: &str) -> Status {
    let message = format!("{action} is not supported on resources of kind {:?}", about.qualified());
    failure(405, "MethodNotAllowed", message, Some(About { name: "", ..about }.details()))
}

/// 415: the body's media type is not supported.
pub fn unsupported_media_type(message: impl Into<String>) -> Status {
    failure(415, "UnsupportedMediaType", message.into(), None)
}

/// 500: an internal error.
pub fn internal(why: &str) -> Status {
    let cause = StatusCause { message: Some(why.to_owned()), ..StatusCause::default() };
    let details = StatusDetails { causes: Some(vec![cause]), ..StatusDetails::default() };
    failure(500, "InternalError", format!("Internal error occurred: {why}"), Some(details))
}

/// 503: temporarily unavailable.
pub fn service_unavailable(message: impl Into<String>) -> Status {
    failure(503, "ServiceUnavailable", message.into(), None)
}

/// 429: the client should retry later.
pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Status {
    let details = StatusDetails { retry_after_seconds: Some(retry_after_seconds), ..StatusDetails::default() };
    failure(429, "TooManyRequests", message.into(), Some(details))
}

/// 200: done, without an object to return. `uid` is that of the object acted on.
pub fn success(about: About<'_>, uid: Option<&str>) -> Status {
    let details = StatusDetails { uid: uid.map(str::to_owned), ..about.details() };
    Status { status: Some("Success".to_owned()), details: Some(details), ..Status::default() }
}

/// The HTTP status code of a response.
pub fn code(status: &Status) -> u16 {
    status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(200)
}

fn failure(code: i32, reason: &str, message: String, details: Option<StatusDetails>) -> Status {
    Status {
        code: Some(code),
        details,
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    }
}

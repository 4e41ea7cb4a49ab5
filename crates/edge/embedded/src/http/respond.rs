//! Responses.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::json;

use crate::errors::ApiError;

pub(crate) type Answer = Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const WARNING: HeaderName = HeaderName::from_static("warning");
/// Longer warnings are truncated, as some proxies reject large headers.
const MAX_WARNING: usize = 1024;

pub(crate) fn json_answer(code: StatusCode, body: Bytes) -> Answer {
    answer(code, JSON, Body::from(body))
}

pub(crate) fn answer(code: StatusCode, content_type: HeaderValue, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn text_answer(code: StatusCode, text: &'static str) -> Answer {
    answer(code, HeaderValue::from_static("text/plain; charset=utf-8"), Body::from(text))
}

pub(crate) fn error_answer(error: &ApiError) -> Answer {
    if matches!(error, ApiError::UnknownPath) {
        // The response by which Kubernetes clients recognize an absent API.
        return text_answer(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    if let ApiError::Store(cause) = error {
        tracing::error!(error = cause.as_ref() as &dyn std::error::Error, "the store refused a write");
    }
    let status = error.status();
    let code = StatusCode::from_u16(machinery::status::code(&status)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_answer(code, json!(status).to_string().into())
}

pub(crate) trait WithWarnings {
    fn with_warnings(self, warnings: impl IntoIterator<Item = String>) -> Self;
}

impl WithWarnings for Answer {
    /// One `Warning` header each; `kubectl` prints them.
    fn with_warnings(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        for warning in warnings {
            let text: String = warning.chars().filter(|c| !c.is_control()).take(MAX_WARNING).collect();
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                self.headers_mut().append(WARNING, value);
            }
        }
        self
    }
}

//! The HTTP layer: authentication, authorisation and routing.

mod discovery;
mod negotiate;
mod openapi;
mod params;
mod path;
mod protobuf;
mod read;
mod respond;
mod watch;
mod write;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::auth::{Attributes, Authorizer, Decision, User, review};
use crate::cache::ObjectName;
use crate::errors::ApiError;
use crate::registry::{self, Registry};
use crate::views::Served;
use params::Params;
use path::{ResourcePath, SUBRESOURCES};
use read::Form;
use respond::{Answer, WithWarnings as _, answer, error_answer, json_answer, text_answer};
use write::Writing;

/// Reviews are answered but not stored, so they are not kinds.
const REVIEWS: &str = "authorization.k8s.io";

/// Versions of the aggregated group, preferred one first.
const SUBRESOURCE_VERSIONS: &[&str] = &["v1", "v1alpha3"];

/// Everything that serves requests.
pub(crate) struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) authorizer: Authorizer,
    pub(crate) subresources: OnceLock<Router>,
}

/// What a request inherits from its connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) user: Arc<User>,
    /// Stops watches.
    pub(crate) shutdown: CancellationToken,
}

impl Api {
    pub(crate) async fn handle(&self, peer: &Peer, request: Request<Body>) -> Answer {
        match self.dispatch(peer, request).await {
            Ok(answer) => answer,
            Err(error) => error_answer(&error),
        }
    }

    async fn dispatch(&self, peer: &Peer, request: Request<Body>) -> Result<Answer, ApiError> {
        let user = peer.user.as_ref();
        let (parts, body) = request.into_parts();
        let params = Params::parse(&parts.uri)?;
        refuse_other_identities(user, &parts.headers)?;
        let path = ResourcePath::parse(parts.uri.path());
        // A get of a single object ignores `watch`: to watch one object, clients select it by name.
        let watch = params.flag("watch") && path.as_ref().is_none_or(|path| path.name.is_empty());
        self.authorize(user, &parts, path.as_ref(), watch, &params)?;
        if parts.uri.path().split('/').nth(2) == Some(SUBRESOURCES) {
            return self.forward(user, Request::from_parts(parts, body)).await;
        }
        let Some(path) = path else { return self.document(peer, &parts).await };
        if path.group == REVIEWS {
            return self.review(user, &path, &parts, body).await;
        }
        let served = Served::find(&path.group, &path.version, &path.resource).ok_or(ApiError::UnknownPath)?;
        if !served.definition.namespaced && !path.namespace.is_empty() {
            return Err(ApiError::UnknownPath);
        }
        if !served.definition.stored && (parts.method != Method::POST || !path.name.is_empty()) {
            return Err(ApiError::MethodNotAllowed("it is a request: it can be created, and is not kept"));
        }
        let answer = match parts.method {
            Method::GET | Method::HEAD => self.read(peer, served, &path, &parts, &params, watch).await,
            _ => {
                Writing { registry: &self.registry, served, path: &path, params: &params, user }.run(&parts, body).await
            }
        };
        let answer = answer.unwrap_or_else(|error| error_answer(&error));
        Ok(answer.with_warnings(served.definition.deprecated.map(str::to_owned)))
    }

    fn authorize(
        &self,
        user: &User,
        parts: &Parts,
        path: Option<&ResourcePath>,
        watch: bool,
        params: &Params,
    ) -> Result<(), ApiError> {
        let selected = params.selected_name().filter(|_| path.is_some_and(|path| path.name.is_empty()));
        let url = parts.uri.path();
        let attributes = path::attributes(user, &parts.method, url, path, watch, selected.as_deref());
        match self.authorizer.decide(&attributes) {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny => {
                tell_of_denied(&attributes);
                Err(ApiError::Denied(Box::new(attributes)))
            }
        }
    }

    async fn read(
        &self,
        peer: &Peer,
        served: Served,
        path: &ResourcePath,
        parts: &Parts,
        params: &Params,
        watch: bool,
    ) -> Result<Answer, ApiError> {
        let form = Form::new(negotiate::shape(&parts.headers)?, params)?;
        let cache = &self.registry.cache;
        let scale = path.subresource == "scale" && served.definition.scale.is_some();
        let status_of_one = path.subresource == "status" && served.definition.status;
        if !path.subresource.is_empty() && !status_of_one && !scale {
            return Err(ApiError::unknown_subresource(served.definition, &path.name));
        }
        if watch {
            let shutdown = peer.shutdown.clone();
            let stream = watch::watch(cache, served, form, &path.namespace, params, shutdown).await?;
            return Ok(answer(StatusCode::OK, http::HeaderValue::from_static("application/json"), stream));
        }
        let body = if path.name.is_empty() {
            read::list(cache, served, form, &path.namespace, params).await?
        } else {
            if let Some(revision) = params.revision()? {
                read::wait_for(cache, revision).await?;
            }
            let object = self.registry.get(served.kind, &ObjectName::new(&path.namespace, &path.name))?;
            match scale {
                true => json!(registry::scale(served.definition, &object.value())?).to_string().into(),
                false => read::one(served, form, &object),
            }
        };
        Ok(json_answer(StatusCode::OK, body))
    }

    /// Non-resource paths: health, version, discovery, schemas.
    async fn document(&self, peer: &Peer, parts: &Parts) -> Result<Answer, ApiError> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::UnknownPath);
        }
        let path = parts.uri.path();
        match path {
            "/healthz" | "/livez" => Ok(text_answer(StatusCode::OK, "ok")),
            "/readyz" if peer.shutdown.is_cancelled() => Err(ApiError::ShuttingDown),
            "/readyz" => Ok(text_answer(StatusCode::OK, "ok")),
            _ => {
                let subresources = if path == "/apis" { self.subresource_lists(&peer.user).await } else { vec![] };
                let documents = discovery::answer(path, &parts.headers, &subresources);
                documents.or_else(|| openapi::answer(path, &parts.headers)).ok_or(ApiError::UnknownPath)
            }
        }
    }

    async fn review(&self, user: &User, path: &ResourcePath, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        let known = matches!(path.resource.as_str(), "selfsubjectaccessreviews" | "subjectaccessreviews");
        if !known || path.version != "v1" || parts.method != Method::POST || !path.name.is_empty() {
            return Err(ApiError::UnknownPath);
        }
        let request = write::decode(parts, body).await?;
        let reviewed = review(&self.authorizer, user, &path.resource, request).map_err(ApiError::BadRequest)?;
        Ok(json_answer(StatusCode::CREATED, reviewed.to_string().into()))
    }

    /// The resource lists of the aggregated group, by version.
    async fn subresource_lists(&self, user: &User) -> Vec<(String, serde_json::Value)> {
        let mut lists = vec![];
        for version in SUBRESOURCE_VERSIONS {
            let mut request = Request::new(Body::empty());
            let path = format!("/apis/{SUBRESOURCES}/{version}");
            *request.uri_mut() = path.parse().expect("a path of constants is a valid URI");
            let Ok(answer) = self.forward(user, request).await else { continue };
            let Ok(body) = axum::body::to_bytes(answer.into_body(), write::MAX_BODY).await else { continue };
            if let Ok(list) = serde_json::from_slice(&body) {
                lists.push(((*version).to_owned(), list));
            }
        }
        lists
    }

    /// Forwards a request to the aggregated API, including upgrades, with the user attached.
    async fn forward(&self, user: &User, mut request: Request<Body>) -> Result<Answer, ApiError> {
        let Some(router) = self.subresources.get() else { return Err(ApiError::UnknownPath) };
        request.extensions_mut().insert(user.clone());
        match router.clone().oneshot(request).await {
            Ok(answer) => Ok(answer),
            Err(never) => match never {},
        }
    }
}

/// System programs only request what they declare: a denied one lacks a right and would otherwise just seem to hang.
fn tell_of_denied(attributes: &Attributes) {
    let name = &attributes.user.name;
    if name.starts_with("system:") && *name != User::anonymous().name {
        tracing::warn!("denied: {}", attributes.refusal());
    } else {
        tracing::debug!("denied: {}", attributes.refusal());
    }
}

/// Impersonation is not supported: refusing is better than acting as the wrong user.
fn refuse_other_identities(user: &User, headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(http::header::AUTHORIZATION) && *user == User::anonymous() {
        return Err(ApiError::Unauthorized);
    }
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(ApiError::BadRequest("this server does not support impersonation".into()));
    }
    Ok(())
}

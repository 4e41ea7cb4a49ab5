//! Create, replace, patch, delete.

use axum::body::Body;
use http::request::Parts;
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::status::{self, About};
use serde_json::{Value, json};

use super::negotiate::{self, Encoding};
use super::params::{Params, dry_run};
use super::path::ResourcePath;
use super::protobuf;
use super::read;
use super::respond::{Answer, WithWarnings as _, json_answer};
use crate::auth::User;
use crate::cache::ObjectName;
use crate::errors::ApiError;
use crate::registry::{Deleted, Outcome, Part, Patch, Registry, ScaleChange, WriteContext};
use crate::views::Served;

/// As in Kubernetes: twice the maximum size of an object.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// Reads and decodes a body; an absent one is null.
pub(crate) async fn body(parts: &Parts, body: Body, encoding: Encoding) -> Result<Value, ApiError> {
    let length = parts.headers.get(http::header::CONTENT_LENGTH);
    let announced = length.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    let bytes = axum::body::to_bytes(body, MAX_BODY).await.map_err(|_| too_large())?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    match encoding {
        Encoding::Json => serde_json::from_slice(&bytes).map_err(|err| err.to_string()),
        Encoding::Yaml => {
            // A name may be `y` or `on`: only true and false are booleans.
            let options = serde_saphyr::options! { strict_booleans: true };
            serde_saphyr::from_slice_with_options(&bytes, options).map_err(|err| err.to_string())
        }
        Encoding::Protobuf => match protobuf::decode(&bytes) {
            Err(protobuf::Error::UnknownKind(_)) => return Err(negotiate::unsupported_body()),
            decoded => decoded.map_err(|err| err.to_string()),
        },
    }
    .map_err(|err| ApiError::BadRequest(format!("the body of the request could not be decoded: {err}")))
}

fn too_large() -> ApiError {
    ApiError::TooLarge(format!("limit is {MAX_BODY}"))
}

/// The target of a write.
pub(crate) struct Writing<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) served: Served,
    pub(crate) path: &'a ResourcePath,
    pub(crate) params: &'a Params,
    pub(crate) user: &'a User,
}

impl Writing<'_> {
    fn name(&self) -> ObjectName {
        ObjectName::new(&self.path.namespace, &self.path.name)
    }

    /// `options` is the kind of options that the query represents.
    fn context(&self, options: &'static str) -> Result<WriteContext, ApiError> {
        Ok(WriteContext {
            user: self.user.clone(),
            dry_run: self.params.dry_run(options)?,
            field_validation: self.params.field_validation(options)?,
            warnings: vec![],
        })
    }

    /// The part of the object that the path refers to.
    fn part(&self) -> Result<Part, ApiError> {
        match (self.path.subresource.as_str(), self.served.definition) {
            ("", _) => Ok(Part::Main),
            ("status", definition) if definition.status => Ok(Part::Status),
            ("scale", definition) if definition.scale.is_some() => Ok(Part::Scale),
            ("finalize", definition) if definition.plural == "namespaces" => Ok(Part::Finalize),
            (_, definition) => Err(ApiError::unknown_subresource(definition, &self.path.name)),
        }
    }

    /// Dispatches the request to its verb.
    pub(crate) async fn run(&self, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        let named = !self.path.name.is_empty();
        if !self.served.definition.writable {
            return self.confirm(parts, body).await;
        }
        let of_pod = self.served.definition.plural == "pods" && named;
        match parts.method {
            Method::POST if of_pod && self.path.subresource == "binding" => self.bind(parts, body).await,
            Method::POST if of_pod && self.path.subresource == "eviction" => self.evict(parts, body).await,
            Method::POST if !named => self.create(parts, body).await,
            Method::PUT if named => self.replace(parts, body).await,
            Method::PATCH if named => self.patch(parts, body).await,
            Method::DELETE if self.path.subresource.is_empty() => self.delete(parts, body).await,
            Method::POST => Err(ApiError::MethodNotAllowed("new objects are made in a collection")),
            _ => Err(ApiError::MethodNotAllowed("it is for single objects")),
        }
    }

    /// For read-only kinds. Installers may still create them (they exist already) or replace them with an equal spec.
    async fn confirm(&self, parts: &Parts, body_stream: Body) -> Result<Answer, ApiError> {
        let refused = || ApiError::MethodNotAllowed("it is part of the server and stays as it is");
        if parts.method == Method::POST && self.path.name.is_empty() {
            let object = decode(parts, body_stream).await?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            self.registry.get(self.served.kind, &ObjectName::new("", name)).map_err(|_| refused())?;
            return Err(ApiError::already_exists(self.served.definition, name));
        }
        if parts.method != Method::PUT || !self.path.subresource.is_empty() {
            return Err(refused());
        }
        let current = self.registry.get(self.served.kind, &self.name())?;
        let wanted = decode(parts, body_stream).await?;
        if wanted["spec"] != current.value()["spec"] {
            return Err(refused());
        }
        Ok(json_answer(StatusCode::OK, Outcome::Committed(current).into_json(&self.served)))
    }

    async fn create(&self, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        if self.served.definition.namespaced && self.path.namespace.is_empty() {
            return Err(ApiError::MethodNotAllowed("new objects are made in a namespace"));
        }
        let object = decode(parts, body).await?;
        let mut cx = self.context("CreateOptions")?;
        let outcome = self.registry.create(&self.served, &self.path.namespace, object, &mut cx).await?;
        Ok(json_answer(StatusCode::CREATED, outcome.into_json(&self.served)).with_warnings(cx.warnings))
    }

    async fn replace(&self, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        let part = self.part()?;
        let object = decode(parts, body).await?;
        let mut cx = self.context("UpdateOptions")?;
        if part == Part::Scale {
            return self.rescale(&ScaleChange::Replace(object), &mut cx).await;
        }
        let outcome = self.registry.replace(&self.served, &self.name(), part, object, &mut cx).await?;
        Ok(json_answer(StatusCode::OK, outcome.into_json(&self.served)).with_warnings(cx.warnings))
    }

    async fn patch(&self, parts: &Parts, body_stream: Body) -> Result<Answer, ApiError> {
        let part = self.part()?;
        let strategic = !self.served.definition.is_custom();
        let kind = negotiate::patch_type(&parts.headers, strategic)?;
        let document = body(parts, body_stream, Encoding::Json).await?;
        let mut cx = self.context("PatchOptions")?;
        let patch = Patch { kind, document };
        if part == Part::Scale {
            return self.rescale(&ScaleChange::Patch(patch), &mut cx).await;
        }
        let outcome = self.registry.patch(&self.served, &self.name(), part, &patch, &mut cx).await?;
        Ok(json_answer(StatusCode::OK, outcome.into_json(&self.served)).with_warnings(cx.warnings))
    }

    async fn rescale(&self, change: &ScaleChange, cx: &mut WriteContext) -> Result<Answer, ApiError> {
        let scale = self.registry.rescale(&self.served, &self.name(), change, cx).await?;
        Ok(json_answer(StatusCode::OK, scale.to_string().into()).with_warnings(cx.warnings.drain(..)))
    }

    async fn delete(&self, parts: &Parts, body_stream: Body) -> Result<Answer, ApiError> {
        let options_body = body(parts, body_stream, negotiate::encoding(&parts.headers)?).await?;
        let options = self.params.delete_options(&options_body)?;
        let mut cx = self.context("DeleteOptions")?;
        cx.dry_run |= asks_for_dry_run(&options_body)?;
        if self.path.name.is_empty() {
            let filter = self.params.filter(self.served, &self.path.namespace)?;
            let deleted = self.registry.delete_collection(self.served.kind, &filter, &options, &mut cx).await?;
            return Ok(json_answer(StatusCode::OK, read::whole(self.served, &deleted)));
        }
        match self.registry.delete(self.served.kind, &self.name(), &options, &mut cx).await? {
            Deleted::Gone(object) if self.served.definition.returns_deleted() => {
                Ok(json_answer(StatusCode::OK, Outcome::Removed(object).into_json(&self.served)))
            }
            Deleted::Gone(object) => Ok(self.success(object["metadata"]["uid"].as_str().unwrap_or_default())),
            Deleted::Terminating(outcome) => Ok(json_answer(StatusCode::OK, outcome.into_json(&self.served))),
        }
    }

    async fn bind(&self, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        let binding = decode(parts, body).await?;
        let mut cx = self.context("CreateOptions")?;
        self.registry.bind(self.served.kind, &self.name(), &binding, &mut cx).await?;
        Ok(accepted())
    }

    async fn evict(&self, parts: &Parts, body: Body) -> Result<Answer, ApiError> {
        let eviction = decode(parts, body).await?;
        let options_body = &eviction["deleteOptions"];
        let options = self.params.delete_options(options_body)?;
        let mut cx = self.context("CreateOptions")?;
        cx.dry_run |= asks_for_dry_run(options_body)?;
        self.registry.evict(self.served.kind, &self.name(), &eviction, &options, &mut cx).await?;
        Ok(accepted())
    }

    fn success(&self, uid: &str) -> Answer {
        let definition = self.served.definition;
        let about = About::new(definition.group, definition.plural, &self.path.name);
        json_answer(StatusCode::OK, done(&status::success(about, Some(uid))))
    }
}

/// Whether delete options request a dry run.
fn asks_for_dry_run(options: &Value) -> Result<bool, ApiError> {
    let wishes: Vec<&str> = options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    Ok(!wishes.is_empty() && dry_run(wishes.into_iter(), "DeleteOptions")?)
}

/// The response to a request that is an action rather than an object.
fn accepted() -> Answer {
    let status = Status { code: Some(201), details: None, ..status::success(About::default(), None) };
    json_answer(StatusCode::CREATED, done(&status))
}

fn done(status: &Status) -> bytes::Bytes {
    json!(status).to_string().into()
}

/// Decodes a required body.
pub(crate) async fn decode(parts: &Parts, body_stream: Body) -> Result<Value, ApiError> {
    let encoding = negotiate::encoding(&parts.headers)?;
    match body(parts, body_stream, encoding).await? {
        Value::Null => Err(ApiError::BadRequest("the body of the request is empty".into())),
        object => Ok(object),
    }
}

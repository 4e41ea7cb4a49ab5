//! KubeVirt's webhooks over HTTP: an AdmissionReview in, an AdmissionReview out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hooks::{PATHS, RULES};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, Time};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use machinery::status;
use review::{Operation, Phase, Review, Rule, SideEffect, User, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use super::objects;
use crate::Admission;

/// Maximum size of a request: the API server accepts objects of 3 MiB, and a review holds two versions.
const MAX_REVIEW: usize = 8 * 1024 * 1024;

pub(crate) struct Server {
    pub(crate) client: kube::Client,
    pub(crate) admission: Arc<Admission>,
}

pub(crate) fn router(server: Server) -> Router {
    Router::new()
        .route(&format!("{PATHS}{{name}}"), post(answer))
        .layer(DefaultBodyLimit::max(MAX_REVIEW))
        .with_state(Arc::new(server))
}

#[derive(Deserialize)]
struct AdmissionReview {
    request: AdmissionRequest,
}

/// The part of a request that reviews use.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest {
    uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    group: String,
    version: String,
    resource: String,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
    #[serde(default)]
    extra: Option<BTreeMap<String, Vec<String>>>,
}

async fn answer(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !json {
        return bad("a review must be application/json\n".to_owned());
    }
    let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
        return (StatusCode::NOT_FOUND, format!("there is no webhook {name:?}\n")).into_response();
    };
    let request = match serde_json::from_slice::<AdmissionReview>(&body) {
        Ok(review) => review.request,
        Err(error) => return bad(format!("the body is not an AdmissionReview: {error}\n")),
    };
    let response = respond(&server, rule, &request).await;
    axum::Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
        .into_response()
}

async fn respond(server: &Server, rule: &Rule, request: &AdmissionRequest) -> Value {
    let user = User {
        name: request.user_info.username.clone(),
        groups: request.user_info.groups.clone().unwrap_or_default(),
        extra: request.user_info.extra.clone().unwrap_or_default(),
    };
    let Some(review) = read(request, &user) else {
        let why = format!("cannot review the operation {:?}", request.operation);
        return denied(&request.uid, &status::bad_request(why), &[]);
    };
    // Several rules may share a webhook.
    if !RULES.iter().any(|other| other.name == rule.name && other.matches(&review)) {
        let what = format!("{} {}/{}", request.operation, review.resource, review.subresource);
        let why = format!("webhook {} does not review {what}", rule.name);
        return denied(&request.uid, &status::bad_request(why), &[]);
    }
    let world = match objects::world(&server.client, &review, rule.phase).await {
        Ok(world) => world,
        Err(error) => {
            tracing::warn!(webhook = rule.name, %error, "cannot review a write");
            return denied(&request.uid, &status::internal(&error.to_string()), &[]);
        }
    };
    let verdict = server.admission.judge(&review, &world);
    match rule.phase {
        Phase::Mutating => mutated(&request.uid, rule, &review, verdict),
        Phase::Validating => validated(server, &request.uid, &review, verdict).await,
    }
}

fn read<'a>(request: &'a AdmissionRequest, user: &'a User) -> Option<Review<'a>> {
    let old = Some(&request.old_object).filter(|old| !old.is_null());
    let (operation, object) = match request.operation.as_str() {
        "CREATE" => (Operation::Create, &request.object),
        "UPDATE" => (Operation::Update, &request.object),
        "DELETE" => (Operation::Delete, old?),
        _ => return None,
    };
    Some(Review {
        operation,
        group: &request.resource.group,
        version: &request.resource.version,
        resource: &request.resource.resource,
        subresource: &request.sub_resource,
        namespace: &request.namespace,
        name: &request.name,
        user,
        old,
        object,
        dry_run: request.dry_run.unwrap_or_default(),
        now: Time(jiff::Timestamp::now()),
    })
}

/// A mutating webhook refuses only what it cannot complete; the rest is up to the validating one, which sees the result.
fn mutated(uid: &str, rule: &Rule, review: &Review<'_>, verdict: Verdict) -> Value {
    if let Some(refusal) = verdict.refusal.filter(|refusal| refusal.by == rule.name) {
        return denied(uid, &refusal.status, &[]);
    }
    let patch =
        verdict.object.map(|object| json_patch::diff(review.object, &object)).filter(|patch| !patch.0.is_empty());
    let mut response = json!({ "uid": uid, "allowed": true });
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(json!(patch).to_string()).into();
    }
    response
}

async fn validated(server: &Server, uid: &str, review: &Review<'_>, verdict: Verdict) -> Value {
    if let Some(effect) = verdict.side_effect
        && let Err(error) = apply(&server.client, &effect, review.dry_run).await
    {
        let SideEffect { namespace, name, failed, .. } = effect;
        tracing::warn!(namespace, name, %error, "cannot patch an object for an eviction");
        return denied(uid, &failed(&error), &verdict.warnings);
    }
    match verdict.refusal {
        Some(refusal) => denied(uid, &refusal.status, &verdict.warnings),
        None => json!({ "uid": uid, "allowed": true, "warnings": verdict.warnings }),
    }
}

fn denied(uid: &str, status: &Status, warnings: &[String]) -> Value {
    json!({ "uid": uid, "allowed": false, "status": status, "warnings": warnings })
}

async fn apply(client: &kube::Client, effect: &SideEffect, dry_run: bool) -> Result<(), kube::Error> {
    let resource = objects::of_plural(effect.group, effect.resource);
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &effect.namespace, &resource);
    let params = PatchParams { dry_run, ..PatchParams::default() };
    objects.patch(&effect.name, &params, &Patch::Json::<()>(effect.patch.clone())).await.map(drop)
}

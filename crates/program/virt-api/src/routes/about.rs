//! Discovery, version and health.

use api::config::in_force;
use api::v1::KubeVirt;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::Shared;
use crate::discovery;

pub(super) async fn group() -> Json<Value> {
    Json(discovery::group())
}

pub(super) async fn resources(version: &'static str) -> Json<Value> {
    Json(discovery::resources(version))
}

pub(super) async fn version(axum::extract::State(server): Shared) -> Json<crate::Version> {
    Json(server.version.clone())
}

/// Healthy if the Kubernetes API answers: no request can be served without it.
pub(super) async fn healthz(axum::extract::State(server): Shared) -> Response {
    let kubevirts: Api<KubeVirt> = Api::namespaced(server.client.clone(), &server.namespace);
    let all = ListParams::default();
    match tokio::join!(server.client.apiserver_version(), kubevirts.list(&all)) {
        (Ok(version), Ok(kubevirts)) => {
            let config = in_force(kubevirts.items, None).and_then(|kubevirt| kubevirt.metadata.resource_version);
            let body = json!({
                "apiserver": { "connectivity": "ok", "version": version },
                "config-resource-version": config.unwrap_or_default(),
            });
            Json(body).into_response()
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "the Kubernetes API does not answer");
            let body = json!({ "apiserver": { "connectivity": "failed", "error": error.to_string() } });
            (StatusCode::INTERNAL_SERVER_ERROR, Json(body)).into_response()
        }
    }
}

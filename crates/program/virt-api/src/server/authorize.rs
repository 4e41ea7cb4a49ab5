//! Lets a request of a user through if the cluster's authorizer agrees. Who asks is up to the front proxy.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use review::User;
use subresources::access::{Access, Attributes, access};

use super::front_proxy::FrontProxies;
use super::tls::Peer;
use crate::discovery::{GROUP, VERSIONS};

pub(crate) struct Authorizer {
    pub(crate) client: kube::Client,
    pub(crate) proxies: FrontProxies,
}

/// KubeVirt answers refusals with 401 and plain text; clients know it that way.
fn refused(why: impl Into<String>) -> Response {
    (StatusCode::UNAUTHORIZED, why.into()).into_response()
}

pub(crate) async fn authorize(
    State(authorizer): State<Arc<Authorizer>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let asked = match access(GROUP, &VERSIONS, request.method().as_str(), request.uri().path()) {
        Access::Open => return next.run(request).await,
        Access::Review(asked) => asked,
        Access::Unknown(why) => return refused(why),
    };
    let Peer::FrontProxy(proxy) = &peer else { return refused("not authenticated") };
    // A connection may outlive its CA; a proxy that is no longer one has to come back.
    let current = authorizer.proxies.current();
    if !Arc::ptr_eq(proxy, &current) && proxy.roots.roots != current.roots.roots {
        return refused("not authenticated");
    }
    let Some(user) = current.user(request.headers()) else { return refused("not authenticated") };
    let reviews: Api<SubjectAccessReview> = Api::all(authorizer.client.clone());
    match reviews.create(&PostParams::default(), &question(&user, &asked)).await {
        Ok(review) => {
            let status = review.status.unwrap_or_default();
            match status.allowed && status.denied != Some(true) {
                true => next.run(request).await,
                false => refused(status.reason.unwrap_or_default()),
            }
        }
        Err(error) => {
            tracing::warn!(user = user.name, %error, "failed to create a SubjectAccessReview");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn question(user: &User, asked: &Attributes) -> SubjectAccessReview {
    let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                namespace: filled(&asked.namespace),
                verb: Some(asked.verb.to_owned()),
                group: filled(&asked.group),
                version: filled(&asked.version),
                resource: filled(&asked.resource),
                subresource: filled(&asked.subresource),
                name: filled(&asked.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

//! Access reviews: answered, never stored.

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SubjectAccessReview, SubjectAccessReviewStatus,
};
use serde_json::{Value, json};

use super::{Attributes, Authorizer, Decision, Target, User};

/// Answers a (Self)SubjectAccessReview: returns the request with its status filled in, or what is wrong with it.
pub(crate) fn review(authorizer: &Authorizer, caller: &User, resource: &str, request: Value) -> Result<Value, String> {
    let (user, resource, non_resource) = match resource {
        "selfsubjectaccessreviews" => {
            let review: SelfSubjectAccessReview = decode(&request)?;
            (caller.clone(), review.spec.resource_attributes, review.spec.non_resource_attributes)
        }
        _ => {
            let review: SubjectAccessReview = decode(&request)?;
            let spec = review.spec;
            let user = User { name: spec.user.unwrap_or_default(), groups: spec.groups.unwrap_or_default() };
            if user.name.is_empty() && user.groups.is_empty() {
                return Err("spec: at least one of user or group must be specified".into());
            }
            (user, spec.resource_attributes, spec.non_resource_attributes)
        }
    };
    let attributes = match (resource, non_resource) {
        (Some(resource), None) => of_resource(user, resource),
        (None, Some(path)) => of_path(user, path),
        _ => return Err("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified".into()),
    };
    let status = match authorizer.decide(&attributes) {
        Decision::Allow { reason } => {
            let reason = (!reason.is_empty()).then_some(reason);
            SubjectAccessReviewStatus { allowed: true, reason, ..Default::default() }
        }
        Decision::Deny => SubjectAccessReviewStatus::default(),
    };
    let mut answer = request;
    answer["status"] = json!(status);
    Ok(answer)
}

fn decode<T: serde::de::DeserializeOwned>(request: &Value) -> Result<T, String> {
    T::deserialize(request).map_err(|err| err.to_string())
}

fn of_resource(user: User, resource: ResourceAttributes) -> Attributes {
    let target = Target::Resource {
        group: resource.group.unwrap_or_default(),
        resource: resource.resource.unwrap_or_default(),
        subresource: resource.subresource.unwrap_or_default(),
        namespace: resource.namespace.unwrap_or_default(),
        name: resource.name.unwrap_or_default(),
    };
    Attributes { user, verb: resource.verb.unwrap_or_default(), target }
}

fn of_path(user: User, path: NonResourceAttributes) -> Attributes {
    let target = Target::Path(path.path.unwrap_or_default());
    Attributes { user, verb: path.verb.unwrap_or_default(), target }
}

//! Admission reviews as plain values: requests about a write, and the responses.
//!
//! The shape is that of Kubernetes' webhooks, so that one function serves in-process calls and HTTP:
//!
//! ```text
//! write ─► hooks with a matching rule: change the object, warn, refuse ─► schema ─► a hook's refusal, or the store
//! ```
//!
//! kube-apiserver calls mutating webhooks before it validates the schema, and validating ones after. A [`Hook`] stands
//! for both: it is called once, and its refusal is reported after schema errors.

use std::collections::BTreeMap;
use std::error::Error;

use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, Time};
use serde_json::Value;

/// The operation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It replaces an older version.
    Update,
    /// It is deleted. The object is the stored one.
    Delete,
}

/// The requesting user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// Further information from the authenticator, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// One write to review.
#[derive(Clone, Debug)]
pub struct Review<'a> {
    /// The operation.
    pub operation: Operation,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The client's API version, such as `v1`.
    pub version: &'a str,
    /// The plural resource name, such as `pods`.
    pub resource: &'a str,
    /// Such as `status` or `eviction`; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The requesting user.
    pub user: &'a User,
    /// The previous version, for an update and a deletion.
    pub old: Option<&'a Value>,
    /// The new version; for a subresource that is not part of the object, the request body.
    pub object: &'a Value,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The current time.
    pub now: Time,
}

impl<'a> Review<'a> {
    /// A write to the object itself, without a previous version. Group, namespace and name are those in the object.
    pub fn of(
        operation: Operation,
        version: &'a str,
        resource: &'a str,
        user: &'a User,
        object: &'a Value,
        now: Time,
    ) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Review {
            operation,
            group: text("/apiVersion").split_once('/').map_or("", |(group, _)| group),
            version,
            resource,
            subresource: "",
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            user,
            old: None,
            object,
            dry_run: false,
            now,
        }
    }
}

/// Which kind of webhook a rule belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// May change the object; called before schema validation.
    Mutating,
    /// May refuse the object; called after it.
    Validating,
}

/// The writes that a webhook reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The webhook's name, with which refusals begin.
    pub name: &'static str,
    /// Its kind.
    pub phase: Phase,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// Empty for the object itself.
    pub subresource: &'static str,
    /// The reviewed operations.
    pub operations: &'static [Operation],
}

impl Rule {
    /// Whether it applies to a resource, in any version.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        self.resource == resource && self.group == group
    }

    /// Whether it applies to an operation on its resource.
    pub fn covers(&self, operation: Operation, subresource: &str) -> bool {
        self.subresource == subresource && self.operations.contains(&operation)
    }

    /// Whether it applies to the write.
    pub fn matches(&self, review: &Review<'_>) -> bool {
        self.is_about(review.group, review.resource) && self.covers(review.operation, review.subresource)
    }
}

/// The response of a hook. The default admits the write unchanged.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The object to be stored, if the hook changed it.
    pub object: Option<Value>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Why the write is refused.
    pub refusal: Option<Refusal>,
    /// An additional write, never made in a dry run. Only evictions have one.
    pub side_effect: Option<SideEffect>,
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        Verdict { refusal: Some(refusal), ..Verdict::default() }
    }
}

/// Why a write is refused, and by which webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The webhook's name.
    pub by: &'static str,
    /// Its own answer.
    pub status: Status,
}

impl Refusal {
    /// The response to the client. Like kube-apiserver's: code, reason and details are the webhook's own, the message
    /// names the webhook.
    pub fn into_status(self) -> Status {
        let Refusal { by, mut status } = self;
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let said = filled(status.message.take()).or_else(|| filled(status.reason.clone()));
        status.message = Some(match said {
            Some(why) => format!("admission webhook {by:?} denied the request: {why}"),
            None => format!("admission webhook {by:?} denied the request without explanation"),
        });
        status.code = Some(status.code.unwrap_or_default().max(400));
        status.status = Some("Failure".to_owned());
        status
    }
}

/// A patch that a webhook writes before it responds.
#[derive(Debug)]
pub struct SideEffect {
    /// The API group of the object to patch.
    pub group: &'static str,
    /// The plural of its kind.
    pub resource: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The patch.
    pub patch: Patch,
    /// The webhook's own account.
    pub user: User,
    /// The response if the patch fails.
    pub failed: fn(&dyn Error) -> Status,
}

/// Lookup of other objects in the cluster for hooks.
pub trait Objects {
    /// The object of this name, or all objects in the namespace without a name; in all namespaces if that is empty,
    /// too.
    fn find(&self, group: &str, kind: &str, namespace: &str, name: Option<&str>) -> Vec<Value>;
}

/// A reviewer of writes.
pub trait Hook: Send + Sync {
    /// The writes that it reviews.
    fn rules(&self) -> &[Rule];

    /// Its response to a write that one of its rules matches.
    fn review(&self, review: &Review<'_>, objects: &dyn Objects) -> Verdict;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_reason_and_says_who_refused() {
        let words = |code: Option<i32>, reason: Option<&str>, message: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let status = Status { code, reason: own(reason), message: own(message), ..Status::default() };
            let told = Refusal { by: "v.example.com", status }.into_status();
            assert_eq!(told.reason.as_deref(), reason);
            assert_eq!(told.status.as_deref(), Some("Failure"));
            (told.code.unwrap(), told.message.unwrap())
        };
        let denied = r#"admission webhook "v.example.com" denied the request"#;
        assert_eq!(words(Some(422), Some("Invalid"), Some("odd")), (422, format!("{denied}: odd")));
        assert_eq!(words(None, Some("Invalid"), None), (400, format!("{denied}: Invalid")));
        assert_eq!(words(Some(200), None, Some("")), (400, format!("{denied} without explanation")));
    }

    #[test]
    fn a_write_is_to_the_object_that_it_holds() {
        let object = serde_json::json!({"apiVersion": "kubevirt.io/v1", "metadata": {"namespace": "ns", "name": "vm"}});
        let (user, now) = (User::default(), Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let of = |object| {
            let Review { group, namespace, name, subresource, old, dry_run, .. } =
                Review::of(Operation::Create, "v1", "virtualmachines", &user, object, now.clone());
            assert!(subresource.is_empty() && old.is_none() && !dry_run);
            [group, namespace, name]
        };
        assert_eq!(of(&object), ["kubevirt.io", "ns", "vm"]);
        assert_eq!(of(&serde_json::json!({"apiVersion": "v1"})), [""; 3]);
    }

    #[test]
    fn a_rule_matches_its_own_resource_part_and_operations() {
        let operations = &[Operation::Create, Operation::Update];
        let rule = Rule {
            name: "v.example.com",
            phase: Phase::Validating,
            group: "",
            resource: "pods",
            subresource: "",
            operations,
        };
        assert!(rule.is_about("", "pods") && !rule.is_about("x", "pods") && !rule.is_about("", "nodes"));
        assert!(rule.covers(Operation::Update, ""));
        assert!(!rule.covers(Operation::Delete, "") && !rule.covers(Operation::Update, "status"));
    }
}

//! The effects of controllers: one vocabulary shared by all of them.
//!
//! A controller decides on a list of effects; `virt-controller` executes them in order and stops at the first failure.
//! Effects that only one controller has are its own type (`Own`), and so are the checks that it resolves with live
//! reads (`Look`).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use api::v1::VirtualMachineInstanceMigration as Migration;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::guard::paths;
use crate::object::{Kind, Object, Typed};
use crate::{Note, meta};

/// Which part of an object a write applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object, without its status if that is a subresource.
    Object,
    Status,
}

/// A change to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    /// A strategic merge patch: merges lists of built-in kinds by their keys.
    Strategic(Value),
}

/// Why an effect is executed, for logs, and the reason under which a failure is reported on the object being
/// reconciled. Without a reason the failure is only retried: the effect is a write to that object itself, or a lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    pub because: Cow<'static, str>,
    pub on_failure: Option<&'static str>,
}

impl Why {
    pub fn shown(on_failure: &'static str, because: impl Into<Cow<'static, str>>) -> Self {
        Self { because: because.into(), on_failure: Some(on_failure) }
    }
}

impl From<&'static str> for Why {
    fn from(because: &'static str) -> Self {
        Self { because: because.into(), on_failure: None }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.because.is_empty() { Ok(()) } else { write!(f, ": {}", self.because) }
    }
}

/// One effect: an API write, an event or a requeue.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<Look = Never, Own = Never> {
    /// Creates an object in the namespace of the object being reconciled. If an object of this name with the same
    /// controller already exists, that is success.
    Create { object: Object, why: Why },
    /// Replaces the object, guarded by its resourceVersion.
    Replace(Object),
    /// Replaces the object's status, guarded by its resourceVersion.
    ReplaceStatus(Object),
    /// Patches an object, guarded by test operations or by the UID in the patch. Without a namespace, the object is in
    /// the namespace of the object being reconciled.
    Patch { kind: Kind, namespace: Option<String>, name: String, part: Part, patch: Patch, why: Why },
    /// Deletes an object if it still has this UID. Without a namespace, the object is in the namespace of the object
    /// being reconciled.
    Delete { kind: Kind, namespace: Option<String>, name: String, uid: String, grace_seconds: Option<u32>, why: Why },
    /// Does a live read. If it confirms the cache, `then` is executed; otherwise the cache is stale, and the key is
    /// requeued shortly.
    Confirm { look: Look, then: Vec<Self> },
    /// Creates a migration on behalf of the controller, unless the VMI has an unfinished one. If a migration of this
    /// name for the same VMI already exists, that is success.
    Migrate(Box<Migration>),
    /// Executes an effect and records its outcome as an event.
    Tell { effect: Box<Self>, report: Box<Report> },
    /// Publishes an event about the object that the controller works on.
    Note(Note),
    /// Publishes an event about another object.
    NoteAbout(Box<ObjectReference>, Note),
    /// Requeues the key after this time.
    RequeueAfter(Duration),
    /// An effect that only this controller has.
    Own(Own),
}

/// The events that report the outcome of an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The object that the events are recorded on.
    pub about: ObjectReference,
    /// Recorded on success, unless the effect had already been done before.
    pub done: Note,
    /// The reason of the event on failure.
    pub failed: &'static str,
    /// The failed action, as it follows "Failed to" in the message.
    pub doing: Cow<'static, str>,
    /// A failure does not stop the remaining effects; the key is requeued after a while.
    pub go_on: bool,
}

impl Report {
    /// The event that reports a failure.
    pub fn failure(&self, error: &str) -> Note {
        Note::warning(self.failed, format!("Failed to {}: {error}", self.doing))
    }
}

/// The object reference for events about an object.
pub fn reference<K: Typed>(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// For controllers without live checks or effects of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Query {
    pub fn get(kind: Kind, namespace: &str, name: &str) -> Self {
        Self::Get { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn list(kind: Kind, namespace: &str, labels: impl Into<String>) -> Self {
        Self::List { kind, namespace: namespace.to_owned(), labels: labels.into() }
    }
}

impl<Look, Own> Effect<Look, Own> {
    pub fn create(object: impl Typed, why: impl Into<Why>) -> Self {
        Self::Create { object: object.into_object(), why: why.into() }
    }

    /// Patches an object in the namespace of the object being reconciled, guarded by test operations.
    pub fn patch(kind: Kind, name: impl Into<String>, patch: json_patch::Patch, why: impl Into<Why>) -> Self {
        let (name, part, patch) = (name.into(), Part::Object, Patch::Json(patch));
        Self::Patch { kind, namespace: None, name, part, patch, why: why.into() }
    }

    /// Patches an object in any namespace, guarded by test operations.
    pub fn patch_at(kind: Kind, meta: &ObjectMeta, patch: json_patch::Patch, why: impl Into<Why>) -> Self {
        let (namespace, name) = (meta.namespace.clone(), meta::name(meta).to_owned());
        Self::Patch { kind, namespace, name, part: Part::Object, patch: Patch::Json(patch), why: why.into() }
    }

    /// Deletes an object in the namespace of the object being reconciled, identified by its metadata.
    pub fn delete(kind: Kind, meta: &ObjectMeta, why: Why) -> Self {
        let (name, uid) = (meta::name(meta).to_owned(), meta::uid(meta).to_owned());
        Self::Delete { kind, namespace: None, name, uid, grace_seconds: None, why }
    }

    /// Like [`delete`](Self::delete), with a grace period of zero.
    pub fn delete_at_once(kind: Kind, meta: &ObjectMeta, why: Why) -> Self {
        let (name, uid) = (meta::name(meta).to_owned(), meta::uid(meta).to_owned());
        Self::Delete { kind, namespace: None, name, uid, grace_seconds: Some(0), why }
    }

    /// Executes an effect and records its outcome as an event.
    pub fn tell(self, report: Report) -> Self {
        Self::Tell { effect: Box::new(self), report: Box::new(report) }
    }

    /// The migration that this effect creates on behalf of the controller, if it creates one.
    pub fn migrates(&self) -> Option<&Migration> {
        match self {
            Self::Migrate(migration) => Some(migration),
            Self::Tell { effect, .. } => effect.migrates(),
            _ => None,
        }
    }

    pub fn confirm(look: Look, then: Vec<Self>) -> Self {
        Self::Confirm { look, then }
    }
}

/// A live read of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One object, if it exists.
    Get { kind: Kind, namespace: String, name: String },
    /// All objects that match this label selector, in the API's string form.
    List { kind: Kind, namespace: String, labels: String },
}

/// A check of the cache against live reads.
pub trait Doubt<World>: Deed {
    /// What must be read.
    fn queries(&self, world: &World) -> Vec<Query>;

    /// Whether the objects read live confirm the cache.
    fn holds(&self, world: &World, found: &[Object]) -> bool;
}

impl<World> Doubt<World> for Never {
    fn queries(&self, _: &World) -> Vec<Query> {
        match *self {}
    }

    fn holds(&self, _: &World, _: &[Object]) -> bool {
        match *self {}
    }
}

/// An effect, or a live read, that only one controller has.
pub trait Deed: fmt::Display {
    /// The reason under which its failure is reported on the object being reconciled.
    fn on_failure(&self) -> Option<&'static str> {
        None
    }
}

impl Deed for Never {}

impl<Look: Deed, Own: Deed> Effect<Look, Own> {
    /// The reason under which a failure is reported on the object being reconciled, if it is.
    pub fn on_failure(&self) -> Option<&'static str> {
        match self {
            Self::Create { why, .. } | Self::Patch { why, .. } | Self::Delete { why, .. } => why.on_failure,
            Self::Replace(_) | Self::ReplaceStatus(_) => None,
            Self::Confirm { look, .. } => look.on_failure(),
            Self::Migrate(_) | Self::Note(_) | Self::NoteAbout(..) | Self::RequeueAfter(_) => None,
            Self::Tell { effect, .. } => effect.on_failure(),
            Self::Own(own) => own.on_failure(),
        }
    }
}

/// For logs: names the operation and the object, never the object's content.
impl<Look: fmt::Display, Own: fmt::Display> fmt::Display for Effect<Look, Own> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { object, why } => write!(f, "create {} {}{why}", object.kind(), object.name()),
            Self::Replace(object) => write!(f, "update {} {}", object.kind(), object.name()),
            Self::ReplaceStatus(object) => write!(f, "update the status of {} {}", object.kind(), object.name()),
            Self::Patch { kind, name, part, patch, why, .. } => {
                let of = if *part == Part::Status { "the status of " } else { "" };
                write!(f, "patch {of}{kind} {name}: {patch}{why}")
            }
            Self::Delete { kind, name, why, .. } => write!(f, "delete {kind} {name}{why}"),
            Self::Confirm { look, then } => {
                write!(f, "if {look}:")?;
                then.iter().try_for_each(|effect| write!(f, " {effect};"))
            }
            Self::Migrate(migration) => {
                let vmi = migration.spec.vmi_name.as_deref().unwrap_or_default();
                write!(f, "create migration {} of instance {vmi}", meta::name(&migration.metadata))
            }
            Self::Tell { effect, report } => write!(f, "{effect}, then event {}", report.done.reason),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::NoteAbout(about, note) => {
                let (kind, name) = (about.kind.as_deref(), about.name.as_deref());
                write!(f, "event {} on {} {}", note.reason, kind.unwrap_or_default(), name.unwrap_or_default())
            }
            Self::RequeueAfter(delay) => write!(f, "requeue after {delay:?}"),
            Self::Own(own) => write!(f, "{own}"),
        }
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(patch) => f.write_str(&paths(patch)),
            Self::Merge(value) | Self::Strategic(value) => {
                let fields = value.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
                let (metadata, others): (Vec<&str>, Vec<&str>) = fields.partition(|field| *field == "metadata");
                // Beside other fields, metadata is the guard of the patch.
                f.write_str(&if others.is_empty() { metadata } else { others }.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_logged_by_the_fields_it_changes() {
        let json_patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/spec/a", "value": 1},
            {"op": "remove", "path": "/status"},
        ]);
        let table = [
            (Patch::Json(serde_json::from_value(json_patch).unwrap()), "/spec/a /status"),
            (Patch::Merge(json!({"metadata": {"uid": "u"}, "spec": {"a": 1}, "status": {}})), "spec status"),
            (Patch::Strategic(json!({"metadata": {"labels": {}}, "status": {}})), "status"),
            (Patch::Merge(json!({"metadata": {"labels": {}}})), "metadata"),
        ];
        for (patch, expected) in table {
            assert_eq!(patch.to_string(), expected);
        }
    }
}

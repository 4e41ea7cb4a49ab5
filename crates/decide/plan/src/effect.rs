//! What controllers can do to the world: one vocabulary for all of them.
//!
//! A controller decides on a list of effects; `virt-controller` carries them out in order and stops at the first that
//! fails. What only one controller does is its own (`Own`), and so are the doubts that it resolves by reading live (`Look`).

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

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object; without its status, if that is a subresource.
    Object,
    Status,
}

/// A change to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    /// Merges lists of Kubernetes' own kinds by their keys.
    Strategic(Value),
}

/// Why something is done, for logs, and the reason under which a failure shows on the object that the controller works
/// on. Without one the failure is only retried: it is a write to that very object, or a lookup.
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

/// One effect on the API, on people or on the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<Look = Never, Own = Never> {
    /// Creates an object in the namespace of the one that the controller works on. One of this name with the same
    /// controller is success.
    Create { object: Object, why: Why },
    /// Replaces the object, guarded by its resource version.
    Replace(Object),
    /// Replaces the object's status, guarded by its resource version.
    ReplaceStatus(Object),
    /// Changes an object, guarded by tests or by the UID in the patch. Without a namespace it is beside the object that
    /// the controller works on.
    Patch { kind: Kind, namespace: Option<String>, name: String, part: Part, patch: Patch, why: Why },
    /// Deletes an object if it still has this UID. Without a namespace it is beside the object that the controller works
    /// on.
    Delete { kind: Kind, namespace: Option<String>, name: String, uid: String, grace_seconds: Option<u32>, why: Why },
    /// Reads live. If the look confirms what the cache says, `then` follows; otherwise the cache is behind, and the key
    /// is looked at again shortly.
    Confirm { look: Look, then: Vec<Self> },
    /// Creates a migration on the controller's own account, unless the instance has one that has not ended. One of this
    /// name for the same instance is success.
    Migrate(Box<Migration>),
    /// Carries out an effect and tells people how it went.
    Tell { effect: Box<Self>, report: Box<Report> },
    /// Publishes an event about the object that the controller works on.
    Note(Note),
    /// Publishes an event about another object.
    NoteAbout(Box<ObjectReference>, Note),
    /// Another look after this time.
    RequeueAfter(Duration),
    /// What only this controller does.
    Own(Own),
}

/// What people are told about the outcome of an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The object that they are told on.
    pub about: ObjectReference,
    /// Told when it was done; nothing is told if it had been done before.
    pub done: Note,
    /// Why it failed is told under this reason.
    pub failed: &'static str,
    /// What failed, after "Failed to".
    pub doing: Cow<'static, str>,
    /// The failure of one is no reason to leave the rest undone: what is left is looked at again after a while.
    pub go_on: bool,
}

impl Report {
    /// The event of a failure.
    pub fn failure(&self, error: &str) -> Note {
        Note::warning(self.failed, format!("Failed to {}: {error}", self.doing))
    }
}

/// What an event about an object refers to.
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

/// For controllers without looks or effects of their own.
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

    /// Patches an object beside the one that the controller works on, guarded by tests.
    pub fn patch(kind: Kind, name: impl Into<String>, patch: json_patch::Patch, why: impl Into<Why>) -> Self {
        let (name, part, patch) = (name.into(), Part::Object, Patch::Json(patch));
        Self::Patch { kind, namespace: None, name, part, patch, why: why.into() }
    }

    /// Patches an object wherever it is, guarded by tests.
    pub fn patch_at(kind: Kind, meta: &ObjectMeta, patch: json_patch::Patch, why: impl Into<Why>) -> Self {
        let (namespace, name) = (meta.namespace.clone(), meta::name(meta).to_owned());
        Self::Patch { kind, namespace, name, part: Part::Object, patch: Patch::Json(patch), why: why.into() }
    }

    /// Deletes an object beside the one that the controller works on, by its metadata.
    pub fn delete(kind: Kind, meta: &ObjectMeta, why: Why) -> Self {
        let (name, uid) = (meta::name(meta).to_owned(), meta::uid(meta).to_owned());
        Self::Delete { kind, namespace: None, name, uid, grace_seconds: None, why }
    }

    /// The same without leaving it any grace.
    pub fn delete_at_once(kind: Kind, meta: &ObjectMeta, why: Why) -> Self {
        let (name, uid) = (meta::name(meta).to_owned(), meta::uid(meta).to_owned());
        Self::Delete { kind, namespace: None, name, uid, grace_seconds: Some(0), why }
    }

    /// Carries out an effect and tells people how it went.
    pub fn tell(self, report: Report) -> Self {
        Self::Tell { effect: Box::new(self), report: Box::new(report) }
    }

    /// The migration that is created on the controller's own account.
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

/// A reading of the API that settles a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One object, if it exists.
    Get { kind: Kind, namespace: String, name: String },
    /// All objects with these labels, in the API's string form.
    List { kind: Kind, namespace: String, labels: String },
}

/// A doubt about what the cache says, and how a live look settles it.
pub trait Doubt<World>: fmt::Display {
    /// What must be read.
    fn queries(&self, world: &World) -> Vec<Query>;

    /// Whether what was found bears the cache out.
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

/// An effect that only one controller has.
pub trait Deed: fmt::Display {
    /// The reason under which its failure shows on the object that the controller works on.
    fn on_failure(&self) -> Option<&'static str> {
        None
    }
}

impl Deed for Never {}

impl<Look, Own: Deed> Effect<Look, Own> {
    /// The reason under which a failure shows on the object that the controller works on, if it does.
    pub fn on_failure(&self) -> Option<&'static str> {
        match self {
            Self::Create { why, .. } | Self::Patch { why, .. } | Self::Delete { why, .. } => why.on_failure,
            Self::Replace(_) | Self::ReplaceStatus(_) | Self::Confirm { .. } => None,
            Self::Migrate(_) | Self::Note(_) | Self::NoteAbout(..) | Self::RequeueAfter(_) => None,
            Self::Tell { effect, .. } => effect.on_failure(),
            Self::Own(own) => own.on_failure(),
        }
    }
}

/// For logs: what is done to which object, and never what is in it.
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
            Self::Tell { effect, report } => write!(f, "{effect}, and tell {}", report.done.reason),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::NoteAbout(about, note) => {
                let (kind, name) = (about.kind.as_deref(), about.name.as_deref());
                write!(f, "event {} on {} {}", note.reason, kind.unwrap_or_default(), name.unwrap_or_default())
            }
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
            Self::Own(own) => write!(f, "{own}"),
        }
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(patch) => f.write_str(&paths(patch)),
            Self::Merge(value) | Self::Strategic(value) => {
                let fields = value.as_object().into_iter().flatten().filter(|(field, _)| *field != "metadata");
                fields.map(|(field, _)| field.as_str()).try_for_each(|field| f.write_str(field))
            }
        }
    }
}

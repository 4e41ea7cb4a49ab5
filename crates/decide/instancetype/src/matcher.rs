//! Resolves the instance type and the preference of a VM.
//!
//! A VM keeps what it was started with: once a revision is recorded, the live object is no longer used. The revision
//! named in the spec comes first, then the one recorded in the status, as long as it belongs to the object that the
//! spec names now, then the live object. A named revision that is missing is an error; falling back to the live object
//! would be wrong, since it may have changed.

use std::fmt;

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::labels;
use api::v1::{InstancetypeMatcher, InstancetypeStatusRef, PreferenceMatcher, VirtualMachine};
use k8s_openapi::api::apps::v1::ControllerRevision;
use machinery::meta;

use crate::revision::{self, RevisionError};

/// What a matcher refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An instance type.
    Instancetype,
    /// A preference.
    Preference,
}

impl Subject {
    /// The field of a VM's spec that holds the matcher.
    pub fn field(self) -> &'static str {
        match self {
            Subject::Instancetype => "instancetype",
            Subject::Preference => "preference",
        }
    }

    /// The scope of a kind as users write it: in any case, singular or plural, or empty. `None` if there is no such
    /// kind.
    pub fn scope<'a>(self, kind: &str, namespace: &'a str) -> Option<Scope<'a>> {
        if kind.is_empty() {
            return Some(Scope::Cluster);
        }
        let kind = kind.to_lowercase();
        let rest = kind.strip_prefix("virtualmachine")?;
        let (rest, scope) = match rest.strip_prefix("cluster") {
            Some(rest) => (rest, Scope::Cluster),
            None => (rest, Scope::Namespace(namespace)),
        };
        let name = self.field();
        (rest == name || rest.strip_suffix('s') == Some(name)).then_some(scope)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Subject::Instancetype => "instance type",
            Subject::Preference => "preference",
        })
    }
}

/// The scope of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Cluster-scoped.
    Cluster,
    /// In this namespace.
    Namespace(&'a str),
}

/// A matcher of either kind; empty strings mean unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matcher<'a> {
    /// The object's name.
    pub name: &'a str,
    /// Its kind, as the user wrote it.
    pub kind: &'a str,
    /// The revision to use instead of the live object.
    pub revision_name: &'a str,
    /// The volume whose labels the object is inferred from.
    pub infer_from_volume: &'a str,
    /// What happens if nothing can be inferred.
    pub failure_policy: Option<&'a str>,
}

macro_rules! matcher {
    ($($type:ty),*) => {
        $(impl<'a> From<&'a $type> for Matcher<'a> {
            fn from(matcher: &'a $type) -> Self {
                Matcher {
                    name: matcher.name.as_deref().unwrap_or_default(),
                    kind: matcher.kind.as_deref().unwrap_or_default(),
                    revision_name: matcher.revision_name.as_deref().unwrap_or_default(),
                    infer_from_volume: matcher.infer_from_volume.as_deref().unwrap_or_default(),
                    failure_policy: matcher.infer_from_volume_failure_policy.as_deref(),
                }
            }
        })*
    };
}

matcher!(InstancetypeMatcher, PreferenceMatcher);

/// Looks up the objects that a VM may refer to. `None` if an object is missing or cannot be decoded.
pub trait Objects {
    /// A revision, from a namespace.
    fn revision(&self, namespace: &str, name: &str) -> Option<ControllerRevision>;
    /// A live instance type.
    fn instancetype(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachineInstancetypeSpec>;
    /// A live preference.
    fn preference(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachinePreferenceSpec>;
}

/// Why the object that a VM refers to could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The matcher names a kind that does not exist.
    #[error("there is no kind {kind:?} of {subject}")]
    UnknownKind {
        /// What was looked for.
        subject: Subject,
        /// The kind as it was written.
        kind: String,
    },
    /// The object does not exist.
    #[error("the {subject} {name:?} does not exist")]
    Missing {
        /// What was looked for.
        subject: Subject,
        /// Its name.
        name: String,
    },
    /// The revision that holds the object does not exist.
    #[error("the revision {revision:?} of the {subject} {name:?} does not exist")]
    MissingRevision {
        /// What was looked for.
        subject: Subject,
        /// Its name.
        name: String,
        /// The revision's name.
        revision: String,
    },
    /// The revision holds something else, or nothing.
    #[error(transparent)]
    Revision(#[from] RevisionError),
}

/// The instance type of a VM, if it has one.
pub fn find_instancetype(
    vm: &VirtualMachine,
    objects: &dyn Objects,
) -> Result<Option<VirtualMachineInstancetypeSpec>, FindError> {
    let Some(matcher) = &vm.spec.instancetype else { return Ok(None) };
    let recorded = vm.status.as_ref().and_then(|status| status.instancetype_ref.as_ref());
    find(vm, &Matcher::from(matcher), recorded, objects).map(Some)
}

/// The preference of a VM, if it has one.
pub fn find_preference(
    vm: &VirtualMachine,
    objects: &dyn Objects,
) -> Result<Option<VirtualMachinePreferenceSpec>, FindError> {
    let Some(matcher) = &vm.spec.preference else { return Ok(None) };
    let recorded = vm.status.as_ref().and_then(|status| status.preference_ref.as_ref());
    find(vm, &Matcher::from(matcher), recorded, objects).map(Some)
}

/// A kind of object to resolve: how it is looked up live, and how it is read from a revision.
trait Sought: Sized {
    const SUBJECT: Subject;
    fn live(objects: &dyn Objects, scope: Scope<'_>, name: &str) -> Option<Self>;
    fn pinned(revision: &ControllerRevision) -> Result<Self, RevisionError>;
}

impl Sought for VirtualMachineInstancetypeSpec {
    const SUBJECT: Subject = Subject::Instancetype;

    fn live(objects: &dyn Objects, scope: Scope<'_>, name: &str) -> Option<Self> {
        objects.instancetype(scope, name)
    }

    fn pinned(revision: &ControllerRevision) -> Result<Self, RevisionError> {
        revision::instancetype_of(revision)
    }
}

impl Sought for VirtualMachinePreferenceSpec {
    const SUBJECT: Subject = Subject::Preference;

    fn live(objects: &dyn Objects, scope: Scope<'_>, name: &str) -> Option<Self> {
        objects.preference(scope, name)
    }

    fn pinned(revision: &ControllerRevision) -> Result<Self, RevisionError> {
        revision::preference_of(revision)
    }
}

fn find<T: Sought>(
    vm: &VirtualMachine,
    matcher: &Matcher<'_>,
    recorded: Option<&InstancetypeStatusRef>,
    objects: &dyn Objects,
) -> Result<T, FindError> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let revision = |revision: &str| {
        objects.revision(namespace, revision).ok_or_else(|| FindError::MissingRevision {
            subject: T::SUBJECT,
            name: matcher.name.to_owned(),
            revision: revision.to_owned(),
        })
    };
    if !matcher.revision_name.is_empty() {
        return Ok(T::pinned(&revision(matcher.revision_name)?)?);
    }
    if let Some(recorded) = recorded.and_then(recorded_revision) {
        let revision = revision(recorded)?;
        if meta::label(&revision.metadata, labels::REVISION_OBJECT_NAME) == Some(matcher.name) {
            return Ok(T::pinned(&revision)?);
        }
    }
    let subject = T::SUBJECT;
    let scope = subject
        .scope(matcher.kind, namespace)
        .ok_or_else(|| FindError::UnknownKind { subject, kind: matcher.kind.to_owned() })?;
    T::live(objects, scope, matcher.name).ok_or_else(|| FindError::Missing { subject, name: matcher.name.to_owned() })
}

fn recorded_revision(recorded: &InstancetypeStatusRef) -> Option<&str> {
    let name = recorded.controller_revision_ref.as_ref()?.name.as_deref()?;
    Some(name).filter(|name| !name.is_empty())
}

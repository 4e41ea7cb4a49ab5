//! What a controller of claims, volumes and snapshots can do.

use std::collections::BTreeMap;

use api::volumesnapshot::VolumeSnapshotContent;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// Kinds of objects that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Claim,
    Volume,
    Snapshot,
    Content,
}

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub version: String,
}

impl Seen {
    pub(crate) fn new(kind: Kind, metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind,
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
            version: text(&metadata.resource_version),
        }
    }
}

/// The part of an object that a patch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

/// Something to do. What follows in a list is done only if this has succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A merge patch, which fails if the object has changed since it was seen.
    Patch {
        object: Seen,
        part: Part,
        patch: Value,
    },
    /// One that exists already was made by an earlier attempt.
    CreateVolume(Box<PersistentVolume>),
    CreateContent(Box<VolumeSnapshotContent>),
    /// Deletes the object that was seen, not another one of its name.
    Delete(Seen),
    /// Asks the API server itself, since a cache may be late. If the object exists after all, nothing more is done now.
    ConfirmGone {
        kind: Kind,
        namespace: String,
        name: String,
        uid: String,
    },
    /// Asks the API server itself whether a Pod uses the claim after all. If so, nothing more is done now.
    ConfirmUnused(Seen),
    /// Asks the API server itself whether the volume exists after all. If so, nothing more is done now.
    ConfirmNoVolume {
        name: String,
    },
    /// Asks the API server itself whether a claim names the volume after all. If so, nothing more is done now.
    ConfirmUnnamed {
        volume: String,
    },
    /// Makes a volume in the storage and then its PersistentVolume.
    Provision(Box<Provision>),
    /// Removes what an unfinished request for a volume may have left in the storage.
    Unprovision {
        name: String,
    },
    /// Removes a volume from the storage.
    Remove {
        handle: String,
    },
    /// Grows a volume in the storage to these bytes, and then writes its capacity.
    Grow {
        claim: Seen,
        volume: Seen,
        handle: String,
        bytes: i64,
    },
    /// Takes a snapshot in the storage and then reports it.
    TakeSnapshot {
        content: Seen,
        name: String,
        source: String,
    },
    /// Looks at a snapshot that is in the storage already, and reports it.
    InspectSnapshot {
        content: Seen,
        handle: String,
    },
    /// Removes a snapshot from the storage.
    RemoveSnapshot {
        content: Seen,
        handle: String,
    },
    /// Removes what an unfinished request for a snapshot may have left in the storage.
    UntakeSnapshot {
        name: String,
    },
    Tell(Note),
}

/// A volume to be made for a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Provision {
    pub claim: Seen,
    /// The name of the request, and of the PersistentVolume.
    pub name: String,
    /// In bytes.
    pub required: i64,
    /// The most, in bytes; 0 for no limit.
    pub limit: i64,
    pub access_modes: Vec<String>,
    pub block: bool,
    pub mount_options: Vec<String>,
    pub parameters: BTreeMap<String, String>,
    pub source: Option<Content>,
    /// The object; the handle and the capacity come from the storage.
    pub volume: PersistentVolume,
    /// In messages.
    pub class: String,
}

/// What a volume is copied from: handles of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Volume(String),
    Snapshot(String),
}

/// Who an event is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voice {
    /// `persistentvolume-controller`.
    Binder,
    /// The provisioner, by its driver's name.
    Provisioner,
    /// `snapshot-controller`.
    Snapshotter,
}

impl Voice {
    pub fn component(self) -> &'static str {
        match self {
            Self::Binder => "persistentvolume-controller",
            Self::Provisioner => crate::DRIVER,
            Self::Snapshotter => "snapshot-controller",
        }
    }
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub about: Seen,
    pub from: Voice,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub(crate) fn normal(about: &Seen, from: Voice, reason: &'static str, message: impl Into<String>) -> Action {
        Action::Tell(Self { about: about.clone(), from, warning: false, reason, message: message.into() })
    }

    pub(crate) fn warning(about: &Seen, from: Voice, reason: &'static str, message: impl Into<String>) -> Action {
        Action::Tell(Self { about: about.clone(), from, warning: true, reason, message: message.into() })
    }
}

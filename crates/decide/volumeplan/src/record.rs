//! What the pool records.

use serde::{Deserialize, Serialize};

use crate::id::{NodeName, SnapshotId, VolumeId, digest};
use crate::request::AccessMode;

/// Which nodes see the pool's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// One node.
    Local(NodeName),
    /// Every node, at one path.
    Shared,
}

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Filesystem,
    /// A sparse raw file.
    Block,
}

/// What a volume was copied from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    Snapshot(SnapshotId),
    Volume(VolumeId),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub id: VolumeId,
    /// The name that the ID was derived from.
    pub name: String,
    /// In bytes.
    pub capacity: u64,
    pub kind: Kind,
    pub source: Option<Source>,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    pub seconds: i64,
    pub nanos: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub name: String,
    /// The volume it was taken of; it may be gone.
    pub source: VolumeId,
    /// The least capacity of a volume made from it, in bytes.
    pub size: u64,
    pub kind: Kind,
    pub created: Time,
}

/// A volume at a path of a node, for a Pod to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub node: NodeName,
    pub target: String,
    pub read_only: bool,
    pub mode: AccessMode,
}

/// Somebody who is no Pod fills a volume: nobody else uses it meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// As messages name it.
    pub holder: String,
}

/// Who uses a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    pub publications: Vec<Publication>,
    pub hold: Option<Hold>,
}

impl Publication {
    /// The name of its record: one for each path of each node.
    pub fn key(node: &NodeName, target: &str) -> String {
        digest("publication", &format!("{node}\0{target}"), 32)
    }
}

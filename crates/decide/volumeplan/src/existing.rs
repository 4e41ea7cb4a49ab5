//! What happens to volumes and snapshots that exist: growth, removal, questions about them.

use crate::id::{Lookup, PoolId, SnapshotId, VolumeId};
use crate::record::{Hold, Kind, Publication, Reach, Users, Volume};
use crate::refusal::{Code, Refusal, Result};
use crate::request::{Capability, Parameters, kind_of};
use crate::size::Range;

/// What deletion means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone, or never was.
    Nothing,
    Remove,
}

/// Decides whether a volume is deleted.
pub fn delete_volume(volume: Option<&Volume>, users: &Users) -> Result<Removal> {
    let Some(volume) = volume else { return Ok(Removal::Nothing) };
    let why = match (&users.hold, users.publications.first()) {
        (Some(Hold { holder }), _) => format!("is in use by {holder}; it can be deleted once that has ended"),
        (None, Some(publication)) => format!("{}; it can be deleted once its Pods are gone", in_use(publication)),
        (None, None) => return Ok(Removal::Remove),
    };
    Err(Refusal::new(Code::FailedPrecondition, format!("volume {} {why}", volume.id)))
}

pub(crate) fn in_use(Publication { node, target, .. }: &Publication) -> String {
    format!("is in use on node {node} at {target}")
}

/// Looks up the ID in a request to delete; `None` where there is nothing to delete.
///
/// What another node has is not "gone": to say so would leave its data behind for good.
fn deletable<Id: PoolId>(id: &str, reach: &Reach) -> Result<Option<Id>> {
    match Id::look_up(id, reach)? {
        Lookup::Here(id) => Ok(Some(id)),
        Lookup::Unknown => Ok(None),
        Lookup::Elsewhere(id) => Err(Refusal::new(
            Code::FailedPrecondition,
            format!("{} {id} is in the pool of another node; ask the driver of that node to delete it", Id::WHAT),
        )),
    }
}

impl Removal {
    /// The volume that a request wants to delete, if this pool could have it.
    pub fn of_volume(id: &str, reach: &Reach) -> Result<Option<VolumeId>> {
        deletable(id, reach)
    }

    /// The same for a snapshot.
    pub fn of_snapshot(id: &str, reach: &Reach) -> Result<Option<SnapshotId>> {
        deletable(id, reach)
    }
}

/// Snapshots are copies: nothing depends on them.
pub fn delete_snapshot(exists: bool) -> Removal {
    if exists { Removal::Remove } else { Removal::Nothing }
}

/// What growth means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// The volume is large enough.
    Nothing {
        capacity: u64,
    },
    Grow {
        capacity: u64,
    },
}

impl Expansion {
    pub const fn capacity(self) -> u64 {
        let (Self::Nothing { capacity } | Self::Grow { capacity }) = self;
        capacity
    }

    /// The size a volume on another node will have once that node has grown it. Only the node that uses it can do that,
    /// so this one promises it, and the node's own driver keeps the promise or refuses.
    pub fn promise(range: Range) -> Result<u64> {
        let bounds = range.bounds()?;
        if bounds.least == 0 {
            return Err(Refusal::invalid("the request has no required size"));
        }
        bounds.choose(None)
    }
}

/// Decides whether a volume grows.
pub fn expand(volume: &Volume, range: Range, free: u64) -> Result<Expansion> {
    let bounds = range.bounds()?;
    if !bounds.is_given() {
        return Err(Refusal::invalid("the request has no capacity range"));
    }
    let now = volume.capacity;
    if now >= bounds.least {
        return match bounds.fits(now) {
            true => Ok(Expansion::Nothing { capacity: now }),
            false => Err(Refusal::new(
                Code::OutOfRange,
                format!("volume {} has {now} bytes already: more than the limit. Volumes do not shrink", volume.id),
            )),
        };
    }
    let capacity = bounds.choose(None)?;
    if capacity - now > free {
        return Err(Refusal::new(
            Code::OutOfRange,
            format!("volume {} would grow by {} bytes; the pool has {free} bytes free", volume.id, capacity - now),
        ));
    }
    Ok(Expansion::Grow { capacity })
}

/// Whether a volume can be used in these ways: `Err` with the reason why not, as a request that cannot be answered is
/// `Ok(Err(..))`.
pub fn validate(
    volume: &Volume,
    capabilities: &[Capability],
    parameters: &Parameters,
    reach: &Reach,
) -> Result<std::result::Result<(), String>> {
    if capabilities.is_empty() {
        return Err(Refusal::invalid("the request has no volume capabilities"));
    }
    let kind = match kind_of(capabilities, reach).and_then(|kind| parameters.admit().map(|()| kind)) {
        Ok(kind) => kind,
        Err(refusal) => return Ok(Err(refusal.message)),
    };
    Ok(if kind == volume.kind { Ok(()) } else { Err(mismatch(volume)) })
}

pub(crate) fn mismatch(volume: &Volume) -> String {
    match volume.kind {
        Kind::Block => format!("volume {} is a block device and cannot be mounted", volume.id),
        Kind::Filesystem => format!("volume {} is a directory and has no block device", volume.id),
    }
}

//! New volumes.

use crate::hold::copyable;
use crate::id::{Lookup, PoolId, RequestName, SnapshotId, VolumeId, no_such};
use crate::record::{Hold, Kind, Reach, Source, Volume};
use crate::refusal::{Code, Refusal, Result};
use crate::request::{Capability, Parameters, kind_of};
use crate::size::{Bounds, Range};
use crate::topology::{self, Requirement};

/// What a volume is to be copied from, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    Snapshot(String),
    Volume(String),
}

/// A request for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: String,
    pub range: Range,
    pub capabilities: Vec<Capability>,
    pub parameters: Parameters,
    pub from: Option<From>,
    pub topology: Requirement,
}

/// A request that makes sense in this pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub id: VolumeId,
    pub source: Option<Source>,
    name: RequestName,
    kind: Kind,
    bounds: Bounds,
}

/// The content that a volume is to be copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub kind: Kind,
    pub size: u64,
    /// Who is still filling it.
    pub hold: Option<Hold>,
}

/// What the pool holds of what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub existing: Option<Volume>,
    /// `None` if there is no such source.
    pub origin: Option<Origin>,
    /// Free space of the pool, in bytes.
    pub free: u64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// An earlier attempt has made it.
    Exists(Volume),
    Make(Volume),
}

/// Checks what can be checked without a look at the pool.
pub fn admit(request: &Request, reach: &Reach) -> Result<Wanted> {
    let name = RequestName::parse(&request.name)?;
    let kind = kind_of(&request.capabilities, reach)?;
    request.parameters.admit()?;
    let bounds = request.range.bounds()?;
    let source = match &request.from {
        None => None,
        Some(From::Snapshot(id)) => Some(Source::Snapshot(source::<SnapshotId>(id, reach)?)),
        Some(From::Volume(id)) => Some(Source::Volume(source::<VolumeId>(id, reach)?)),
    };
    topology::admit(&request.topology, reach)?;
    Ok(Wanted { id: VolumeId::derive(&name, reach), source, name, kind, bounds })
}

fn source<Id: PoolId>(id: &str, reach: &Reach) -> Result<Id> {
    match Id::look_up(id, reach)? {
        Lookup::Here(id) => Ok(id),
        Lookup::Unknown => Err(no_such::<Id>(id)),
        // Kubernetes takes this code as a reason to try another node.
        Lookup::Elsewhere(id) => Err(Refusal::new(
            Code::ResourceExhausted,
            format!(
                "{} {id} is in the pool of another node, and copies stay in the pool of what they are copied from",
                Id::WHAT
            ),
        )),
    }
}

/// Decides whether the volume is made, and how.
pub fn decide(wanted: &Wanted, seen: &Seen) -> Result<Creation> {
    if let Some(existing) = &seen.existing {
        return same(wanted, existing).map(|()| Creation::Exists(existing.clone()));
    }
    let content = match (&wanted.source, &seen.origin) {
        (None, _) => None,
        (Some(Source::Snapshot(id)), None) => return Err(no_such::<SnapshotId>(id.as_str())),
        (Some(Source::Volume(id)), None) => return Err(no_such::<VolumeId>(id.as_str())),
        (Some(_), Some(origin)) if origin.kind != wanted.kind => {
            return Err(Refusal::invalid(
                "a block volume cannot be copied to a file system volume, nor the other way round",
            ));
        }
        (Some(source), Some(origin)) => {
            if let Source::Volume(id) = source {
                copyable(id, origin.hold.as_ref())?;
            }
            Some(origin.size)
        }
    };
    let capacity = wanted.bounds.choose(content)?;
    if capacity > seen.free {
        return Err(Refusal::new(
            Code::ResourceExhausted,
            format!("the volume needs {capacity} bytes; the pool has {} bytes free", seen.free),
        ));
    }
    Ok(Creation::Make(Volume {
        id: wanted.id.clone(),
        name: wanted.name.as_str().to_owned(),
        capacity,
        kind: wanted.kind,
        source: wanted.source.clone(),
    }))
}

/// Whether what is there is what is wanted. Its source may be gone by now.
fn same(wanted: &Wanted, existing: &Volume) -> Result<()> {
    let difference = if existing.name != wanted.name.as_str() {
        "another name"
    } else if existing.kind != wanted.kind {
        "another volume mode"
    } else if existing.source != wanted.source {
        "another source"
    } else if !wanted.bounds.fits(existing.capacity) {
        "an incompatible size"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::AlreadyExists, format!("volume {} exists with {difference}", existing.id)))
}

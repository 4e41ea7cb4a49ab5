//! New snapshots.

use crate::hold::copyable;
use crate::id::{PoolId, RequestName, SnapshotId, VolumeId, no_such};
use crate::record::{Hold, Reach, Snapshot, Time, Volume};
use crate::refusal::{Code, Refusal, Result};
use crate::request::Parameters;

/// A request for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: String,
    pub source: String,
    pub parameters: Parameters,
}

/// A request that makes sense in this pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub id: SnapshotId,
    pub source: VolumeId,
    name: RequestName,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// An earlier attempt has made it.
    Exists(Snapshot),
    Make(Snapshot),
}

/// Checks what can be checked without a look at the pool.
pub fn admit(request: &Request, reach: &Reach) -> Result<Wanted> {
    let name = RequestName::parse(&request.name)?;
    request.parameters.admit()?;
    let source = VolumeId::find(&request.source, reach)?;
    Ok(Wanted { id: SnapshotId::derive(&name, reach), source, name })
}

/// Decides whether the snapshot is made. Of one that exists, the source may be gone by now.
pub fn decide(
    wanted: &Wanted,
    existing: Option<&Snapshot>,
    source: Option<(&Volume, Option<&Hold>)>,
    now: Time,
) -> Result<Creation> {
    match existing {
        Some(existing) if existing.source == wanted.source => return Ok(Creation::Exists(existing.clone())),
        Some(existing) => {
            return Err(Refusal::new(
                Code::AlreadyExists,
                format!("snapshot {} exists and was taken of volume {}", existing.id, existing.source),
            ));
        }
        None => {}
    }
    let (source, hold) = source.ok_or_else(|| no_such::<VolumeId>(wanted.source.as_str()))?;
    copyable(&source.id, hold)?;
    Ok(Creation::Make(Snapshot {
        id: wanted.id.clone(),
        name: wanted.name.as_str().to_owned(),
        source: source.id.clone(),
        size: source.capacity,
        kind: source.kind,
        created: now,
    }))
}

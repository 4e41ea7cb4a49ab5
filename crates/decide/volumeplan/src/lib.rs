//! What the volume engine decides: whether a request for a volume, a snapshot, a clone, growth or publication is
//! carried out, answered from what is there, or refused. The edge crate `volumes` looks at the pool, asks here, and acts.
//!
//! ```text
//!   CreateVolume ─► create::admit ─► Wanted ─┐
//!   records of the pool, free space ─────────┴► create::decide ─► exists | make | Refusal with CSI's code
//! ```
//!
//! Guarantees:
//!
//! - **Retries are harmless.** IDs are hashes of the request's name, so a retry finds what the first attempt made. A
//!   request that has been carried out is answered from the record and changes nothing.
//! - **What is in use stays.** A volume with a publication or a hold is not deleted, and not given to a second writer.
//! - **What cannot be honoured is refused**: parameters, file system types, mount flags and access modes alike.

pub mod create;
mod existing;
mod hold;
mod id;
pub mod list;
mod publish;
mod record;
mod refusal;
mod request;
mod size;
pub mod snapshot;
mod target;
mod topology;

pub use existing::{Expansion, Removal, delete_snapshot, delete_volume, expand, validate};
pub use hold::{Holding, hold, release_hold};
pub use id::{DriverName, Lookup, NodeName, NodeTag, PoolId, RequestName, SnapshotId, VolumeId, no_such};
pub use publish::{Publish, Publishing, publish};
pub use record::{Hold, Kind, Publication, Reach, Snapshot, Source, Time, Users, Volume};
pub use refusal::{Code, Refusal, Result};
pub use request::{Access, AccessMode, Capability, MountFlag, Parameters};
pub use size::{DEFAULT_SIZE, MAX_SIZE, Range};
pub use target::beneath;
pub use topology::{Requirement, Segments, TOPOLOGY_KEY, available, segments};

//! Requests to the volume engine.

use claims::{Content, Provision};
use tokio::sync::oneshot;
use volumeplan::{
    Access, AccessMode, Capability, Parameters, PoolId as _, Range, RequestName, Requirement, Snapshot, SnapshotId,
    Volume, VolumeId, create, snapshot,
};
use volumes::{Engine, Result};

use crate::error::Error;

/// Runs a request in a thread of its own: a copy may take long, and neither the runtime nor the end of the process waits
/// for it. A request that is cut off is completed or undone when the pool is opened again.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("volume-engine".to_owned());
    let spawned = thread.spawn(move || {
        // Nobody listens any more at the end of the process.
        let _ = answer.send(work());
    });
    spawned.map_err(|_| Error::Panicked)?;
    answered.await.map_err(|_| Error::Panicked)
}

pub(crate) fn provision(engine: &Engine, request: &Provision) -> Result<Volume> {
    let access = || match request.block {
        true => Access::Block,
        false => Access::Mount { fs_type: String::new(), flags: request.mount_options.clone() },
    };
    let capability = |mode: &String| Capability { access: Some(access()), mode: access_mode(mode) };
    let from = request.source.as_ref().map(|source| match source {
        Content::Volume(handle) => create::From::Volume(handle.clone()),
        Content::Snapshot(handle) => create::From::Snapshot(handle.clone()),
    });
    engine.create_volume(&create::Request {
        name: request.name.clone(),
        range: Range { required: request.required, limit: request.limit },
        capabilities: request.access_modes.iter().map(capability).collect(),
        parameters: Parameters { fixed: request.parameters.clone(), ..Parameters::default() },
        from,
        topology: Requirement::default(),
    })
}

/// Kubernetes' access modes as CSI's.
fn access_mode(mode: &str) -> Option<AccessMode> {
    Some(match mode {
        "ReadWriteOnce" => AccessMode::SingleNodeMultiWriter,
        "ReadWriteOncePod" => AccessMode::SingleNodeSingleWriter,
        "ReadOnlyMany" => AccessMode::MultiNodeReaderOnly,
        "ReadWriteMany" => AccessMode::MultiNodeMultiWriter,
        _ => return None,
    })
}

/// Removes the volume that a request of this name has made, if it has.
pub(crate) fn unprovision(engine: &Engine, name: &str) -> Result<()> {
    let id = VolumeId::derive(&RequestName::parse(name)?, engine.reach());
    engine.delete_volume(id.as_str())
}

/// Grows a volume and its devices on the nodes; its new capacity.
pub(crate) fn grow(engine: &Engine, handle: &str, bytes: i64) -> Result<u64> {
    let grown = engine.grow(handle, Range { required: bytes, limit: 0 })?;
    if grown.on_node {
        engine.grow_devices(handle)?;
    }
    Ok(grown.capacity)
}

pub(crate) fn take_snapshot(engine: &Engine, name: &str, source: &str) -> Result<Snapshot> {
    engine.create_snapshot(&snapshot::Request {
        name: name.to_owned(),
        source: source.to_owned(),
        parameters: Parameters::default(),
    })
}

pub(crate) fn inspect_snapshot(engine: &Engine, handle: &str) -> Result<Snapshot> {
    let mut found = engine.list_snapshots(handle, "", 0, "")?.entries;
    found.pop().ok_or_else(|| volumeplan::no_such::<SnapshotId>(handle).into())
}

/// Removes the snapshot that a request of this name has made, if it has.
pub(crate) fn untake_snapshot(engine: &Engine, name: &str) -> Result<()> {
    let id = SnapshotId::derive(&RequestName::parse(name)?, engine.reach());
    engine.delete_snapshot(id.as_str())
}

/// In nanoseconds since 1970.
pub(crate) fn created(snapshot: &Snapshot) -> i64 {
    snapshot.created.seconds.saturating_mul(1_000_000_000).saturating_add(snapshot.created.nanos.into())
}

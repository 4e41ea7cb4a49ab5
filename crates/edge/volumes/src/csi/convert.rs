//! CSI's messages as the engine's values, and back.

use std::error::Error as _;

use tonic::{Code, Status};
use volumeplan::create::From as CopyOf;
use volumeplan::{Access, AccessMode, Capability, Parameters, Reach, Requirement, Snapshot, Source, Volume};

use super::v1;
use super::v1::volume_capability::AccessType;
use super::v1::volume_capability::access_mode::Mode;
use super::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::error::{Class, Error};

/// An answer that says no. What is nobody's mistake goes to the log, too.
pub(super) fn status(error: &Error) -> Status {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    let code = match error.class() {
        Class::Refused(code) => grpc(code),
        Class::Internal => {
            tracing::error!(error = message, "a request failed");
            Code::Internal
        }
    };
    Status::new(code, message)
}

fn grpc(code: volumeplan::Code) -> Code {
    match code {
        volumeplan::Code::InvalidArgument => Code::InvalidArgument,
        volumeplan::Code::NotFound => Code::NotFound,
        volumeplan::Code::AlreadyExists => Code::AlreadyExists,
        volumeplan::Code::ResourceExhausted => Code::ResourceExhausted,
        volumeplan::Code::FailedPrecondition => Code::FailedPrecondition,
        volumeplan::Code::Aborted => Code::Aborted,
        volumeplan::Code::OutOfRange => Code::OutOfRange,
    }
}

pub(super) fn capability(from: v1::VolumeCapability) -> Capability {
    let access = from.access_type.map(|access| match access {
        AccessType::Block(_) => Access::Block,
        AccessType::Mount(mount) => Access::Mount { fs_type: mount.fs_type, flags: mount.mount_flags },
    });
    let mode = from.access_mode.and_then(|mode| match Mode::try_from(mode.mode).ok()? {
        Mode::Unknown => None,
        Mode::SingleNodeWriter => Some(AccessMode::SingleNodeWriter),
        Mode::SingleNodeReaderOnly => Some(AccessMode::SingleNodeReaderOnly),
        Mode::MultiNodeReaderOnly => Some(AccessMode::MultiNodeReaderOnly),
        Mode::MultiNodeSingleWriter => Some(AccessMode::MultiNodeSingleWriter),
        Mode::MultiNodeMultiWriter => Some(AccessMode::MultiNodeMultiWriter),
        Mode::SingleNodeSingleWriter => Some(AccessMode::SingleNodeSingleWriter),
        Mode::SingleNodeMultiWriter => Some(AccessMode::SingleNodeMultiWriter),
    });
    Capability { access, mode }
}

pub(super) fn capabilities(from: Vec<v1::VolumeCapability>) -> Vec<Capability> {
    from.into_iter().map(capability).collect()
}

pub(super) fn range(from: Option<v1::CapacityRange>) -> volumeplan::Range {
    from.map(|range| volumeplan::Range { required: range.required_bytes, limit: range.limit_bytes }).unwrap_or_default()
}

pub(super) fn parameters(
    fixed: std::collections::HashMap<String, String>,
    mutable: std::collections::HashMap<String, String>,
) -> Parameters {
    Parameters { fixed: fixed.into_iter().collect(), mutable: mutable.into_iter().collect() }
}

pub(super) fn segments(from: v1::Topology) -> volumeplan::Segments {
    from.segments.into_iter().collect()
}

pub(super) fn requirement(from: Option<v1::TopologyRequirement>) -> Requirement {
    let from = from.unwrap_or_default();
    let all = |places: Vec<v1::Topology>| places.into_iter().map(segments).collect();
    Requirement { requisite: all(from.requisite), preferred: all(from.preferred) }
}

/// What a volume is to be copied from. A source that names nothing is refused as an ID that is empty.
pub(super) fn copy_of(from: v1::VolumeContentSource) -> CopyOf {
    match from.r#type {
        Some(Type::Snapshot(SnapshotSource { snapshot_id })) => CopyOf::Snapshot(snapshot_id),
        Some(Type::Volume(VolumeSource { volume_id })) => CopyOf::Volume(volume_id),
        None => CopyOf::Volume(String::new()),
    }
}

/// The place that a pool's volumes can be used from.
pub(super) fn topology(reach: &Reach) -> Option<v1::Topology> {
    volumeplan::segments(reach).map(|segments| v1::Topology { segments: segments.into_iter().collect() })
}

pub(super) fn volume(from: Volume, reach: &Reach) -> v1::Volume {
    let source = |kind| v1::VolumeContentSource { r#type: Some(kind) };
    let content_source = from.source.map(|from| match from {
        Source::Snapshot(id) => source(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })),
        Source::Volume(id) => source(Type::Volume(VolumeSource { volume_id: id.into() })),
    });
    v1::Volume {
        capacity_bytes: signed(from.capacity),
        volume_id: from.id.into(),
        volume_context: Default::default(),
        content_source,
        accessible_topology: topology(reach).into_iter().collect(),
    }
}

pub(super) fn snapshot(from: Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: signed(from.size),
        snapshot_id: from.id.into(),
        source_volume_id: from.source.into(),
        creation_time: Some(v1::Timestamp { seconds: from.created.seconds, nanos: from.created.nanos }),
        ready_to_use: true,
    }
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

//! What the VMI's volumes wait for before it can start.

use api::cdi::{self, DataVolume, DataVolumePhase};
use api::reasons;
use api::v1::{Volume, VolumeSource};

use super::world::World;
use crate::claims::{self, State};
use crate::{Note, SyncError};

/// Whether the volumes that a launcher Pod needs at its start can be used.
#[derive(Debug, PartialEq)]
pub(super) enum Gate {
    Ready,
    /// Some are populated only once a Pod uses them; all others are ready.
    WaitsForConsumer,
    /// Some are being populated. The condition `DataVolumesReady` says which.
    NotReady,
    /// They cannot become ready in the current state.
    Blocked {
        error: SyncError,
        note: Note,
    },
}

/// Hotpluggable volumes do not delay a start.
fn needed_at_start(w: &World) -> impl Iterator<Item = &Volume> {
    let is_disk = |volume: &&Volume| !volume.is_memory_dump() && claims::claim_under(volume).is_some();
    w.vmi.spec.volumes.iter().filter(is_disk).filter(|volume| !claims::is_hotpluggable(volume))
}

pub(super) fn gate(w: &World) -> Gate {
    let mut gate = Gate::Ready;
    for volume in needed_at_start(w) {
        let Some(claim) = claims::claim_under(volume) else { continue };
        match w.claims.state(claim) {
            State::Ready => {}
            State::WaitsForConsumer if gate == Gate::Ready => gate = Gate::WaitsForConsumer,
            State::WaitsForConsumer => {}
            State::NotReady(_) => gate = Gate::NotReady,
            State::NotFound(why) => {
                // It may be about to be created; that event requeues us.
                let message = format!("volume {}: {why}", volume.name);
                let note = Note::normal(reasons::FAILED_PVC_NOT_FOUND, message.clone());
                return Gate::Blocked { error: SyncError::new(reasons::FAILED_PVC_NOT_FOUND, message), note };
            }
            State::Orphaned(why) => {
                let message = format!("volume {}: {why}", volume.name);
                let note = Note::warning(reasons::FAILED_PVC_NOT_FOUND, message.clone());
                return Gate::Blocked { error: SyncError::new(reasons::FAILED_DATA_VOLUME_IMPORT, message), note };
            }
        }
    }
    gate
}

/// The DataVolumes behind the instance's volumes: those it names, and those that control claims it names.
pub(super) fn data_volumes(w: &World) -> Vec<&DataVolume> {
    let behind = |volume: &Volume| match volume.source() {
        VolumeSource::DataVolume(source) => w.claims.data_volume(&source.name),
        VolumeSource::PersistentVolumeClaim(source) => w.claims.data_volume_of(w.claims.claim(&source.claim_name)?),
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => None,
    };
    w.vmi.spec.volumes.iter().filter_map(behind).collect()
}

/// The first DataVolume that has failed.
pub(super) fn failed_data_volume<'a>(all: &[&'a DataVolume]) -> Option<&'a DataVolume> {
    all.iter().copied().find(|dv| claims::phase(dv) == Some(&DataVolumePhase::Failed))
}

/// Whether some DataVolume is populated only once a Pod uses its claim.
pub(super) fn waits_for_consumer(all: &[&DataVolume]) -> bool {
    all.iter().any(|dv| claims::phase(dv) == Some(&DataVolumePhase::WaitForFirstConsumer))
}

/// The combined readiness of the DataVolumes, as `True`, `False` or `Unknown`, and what they wait for.
pub(super) fn readiness(all: &[&DataVolume]) -> (&'static str, String) {
    let of = |dv: &DataVolume| -> &'static str {
        let conditions = dv.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions.into_iter().find(|condition| condition.type_ == cdi::CONDITION_READY);
        match ready.map(|condition| condition.status.as_str()) {
            Some("True") => "True",
            Some("False") => "False",
            _ => "Unknown",
        }
    };
    let worst = ["False", "Unknown"].into_iter().find(|status| all.iter().any(|dv| of(dv) == *status));
    let waiting: Vec<String> = all.iter().filter(|dv| of(dv) != "True").map(|dv| claims::waiting(dv)).collect();
    (worst.unwrap_or("True"), waiting.join("; "))
}

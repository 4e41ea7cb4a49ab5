//! Whether PersistentVolumeClaims can be used, and what volumes wait for.
//!
//! A claim that no DataVolume controls is ready as soon as it exists: its creator is responsible for its content. A
//! claim that a DataVolume controls is ready when the importer has finished, or has left population to the first Pod
//! that uses the claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cdi::{self, DataVolume, DataVolumePhase};
use api::v1::{Volume, VolumeSource};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::meta;

/// The claims and DataVolumes of one namespace that a decision may need, keyed by name.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    pub data_volumes: BTreeMap<String, Arc<DataVolume>>,
}

/// Whether a claim can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    /// It is populated once a Pod uses it.
    WaitsForConsumer,
    /// Not ready yet; the message says what it waits for.
    NotReady(String),
    /// The claim does not exist; the message names it.
    NotFound(String),
    /// Its owner reference names a DataVolume that does not exist.
    Orphaned(String),
}

impl State {
    /// The state as a message, if it blocks the VMI.
    pub fn obstacle(&self) -> Option<&str> {
        match self {
            Self::Ready | Self::WaitsForConsumer => None,
            Self::NotReady(why) | Self::NotFound(why) | Self::Orphaned(why) => Some(why),
        }
    }
}

impl Claims {
    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.get(name).map(AsRef::as_ref)
    }

    pub fn data_volume(&self, name: &str) -> Option<&DataVolume> {
        self.data_volumes.get(name).map(AsRef::as_ref)
    }

    /// The DataVolume that controls a claim, if one does.
    pub fn data_volume_of(&self, claim: &PersistentVolumeClaim) -> Option<&DataVolume> {
        let owner = meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume")?;
        self.data_volume(&owner.name).filter(|dv| dv.metadata.uid.as_ref() == Some(&owner.uid))
    }

    /// Whether the claim of this name can be used.
    pub fn state(&self, name: &str) -> State {
        let Some(claim) = self.claim(name) else {
            return State::NotFound(self.missing(name));
        };
        let Some(owner) = meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume") else {
            return State::Ready;
        };
        let Some(dv) = self.data_volume_of(claim) else {
            let why =
                format!("PersistentVolumeClaim {name} belongs to DataVolume {}, which does not exist", owner.name);
            return State::Orphaned(why);
        };
        match phase(dv) {
            Some(DataVolumePhase::Succeeded | DataVolumePhase::PendingPopulation) => State::Ready,
            Some(DataVolumePhase::WaitForFirstConsumer) => State::WaitsForConsumer,
            _ => State::NotReady(waiting(dv)),
        }
    }

    /// Whether the claim is populated and nothing writes to it any more: stricter than [`State::Ready`].
    pub fn is_populated(&self, name: &str) -> bool {
        let Some(claim) = self.claim(name) else { return false };
        let controlled = meta::controller_of(&claim.metadata).is_some_and(|owner| owner.kind == "DataVolume");
        let dv = self.data_volume_of(claim);
        !controlled || dv.and_then(phase) == Some(&DataVolumePhase::Succeeded)
    }

    fn missing(&self, name: &str) -> String {
        match self.data_volume(name) {
            Some(dv) => format!("PersistentVolumeClaim {name} does not exist yet: {}", waiting(dv)),
            None => format!("PersistentVolumeClaim {name} does not exist"),
        }
    }
}

/// The phase of a DataVolume, if one has been reported.
pub fn phase(dv: &DataVolume) -> Option<&DataVolumePhase> {
    dv.status.as_ref()?.phase.as_ref().filter(|phase| !phase.as_str().is_empty())
}

/// Describes what a DataVolume waits for: its phase, its progress, and the importer's own message.
pub fn waiting(dv: &DataVolume) -> String {
    let name = meta::name(&dv.metadata);
    let Some(status) = dv.status.as_ref() else {
        return format!("DataVolume {name} has no status yet; is the Containerized Data Importer running?");
    };
    let phase = phase(dv).map_or("unset", DataVolumePhase::as_str);
    let mut sentence = format!("DataVolume {name} is in phase {phase}");
    if let Some(progress) = status.progress.as_deref().filter(|p| !p.is_empty() && *p != "N/A") {
        sentence.push_str(&format!(" ({progress})"));
    }
    let words = [cdi::CONDITION_RUNNING, cdi::CONDITION_BOUND, cdi::CONDITION_READY].into_iter().find_map(|type_| {
        let found = status.conditions.iter().find(|c| c.type_ == type_ && c.status.as_str() != "True")?;
        found.message.as_deref().filter(|message| !message.is_empty())
    });
    if let Some(words) = words {
        sentence.push_str(&format!(": {words}"));
    }
    sentence
}

/// The claim behind a volume, if it has one. The claim of a DataVolume has the DataVolume's name.
pub fn claim_name(volume: &Volume) -> Option<&str> {
    volume.source().claim_name().filter(|name| !name.is_empty())
}

/// The claim whose data a disk shows: its own, or the one under an ephemeral disk.
pub fn claim_under(volume: &Volume) -> Option<&str> {
    let base = match volume.source() {
        VolumeSource::Ephemeral(source) => source.persistent_volume_claim.as_ref(),
        VolumeSource::DataVolume(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => None,
    };
    claim_name(volume).or(base.map(|base| base.claim_name.as_str()).filter(|name| !name.is_empty()))
}

/// Whether the volume can be hot-plugged and unplugged while the guest runs.
pub fn is_hotpluggable(volume: &Volume) -> bool {
    volume.source().is_hotpluggable()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claims(phase: Option<&str>, uid: &str) -> Claims {
        let claim = serde_json::from_value(json!({"metadata": {"name": "disk", "ownerReferences": [
            {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": uid,
             "controller": true}]}}));
        let dv: Option<DataVolume> = phase.map(|phase| {
            let value = json!({"metadata": {"name": "disk", "uid": "dv-uid"}, "spec": {}, "status": {"phase": phase,
                "progress": "42.0%", "conditions": [
                    {"type": "Running", "status": "False", "message": "no such host"}]}});
            serde_json::from_value(value).unwrap()
        });
        Claims {
            claims: [("disk".to_owned(), Arc::new(claim.unwrap()))].into(),
            data_volumes: dv.into_iter().map(|dv| ("disk".to_owned(), Arc::new(dv))).collect(),
        }
    }

    #[test]
    fn a_claim_of_a_data_volume_is_as_ready_as_the_data_volume() {
        let not_ready = "DataVolume disk is in phase ImportInProgress (42.0%): no such host";
        for (phase, state, populated) in [
            ("Succeeded", State::Ready, true),
            ("PendingPopulation", State::Ready, false),
            ("WaitForFirstConsumer", State::WaitsForConsumer, false),
            ("ImportInProgress", State::NotReady(not_ready.into()), false),
        ] {
            let claims = claims(Some(phase), "dv-uid");
            assert_eq!((claims.state("disk"), claims.is_populated("disk")), (state, populated), "{phase}");
        }
    }

    #[test]
    fn a_namesake_of_the_data_volume_that_controls_a_claim_is_not_it() {
        for claims in [claims(None, "dv-uid"), claims(Some("Succeeded"), "other")] {
            assert!(matches!(claims.state("disk"), State::Orphaned(why) if why.contains("DataVolume disk")));
            assert!(!claims.is_populated("disk"));
        }
    }

    #[test]
    fn a_claim_that_nobody_controls_is_ready_and_one_that_is_not_there_is_named() {
        let mut plain = claims(Some("ImportInProgress"), "dv-uid");
        Arc::make_mut(plain.claims.get_mut("disk").unwrap()).metadata.owner_references = None;
        assert_eq!(plain.state("disk"), State::Ready);
        assert!(plain.is_populated("disk"));
        let missing = State::NotFound("PersistentVolumeClaim other does not exist".into());
        assert_eq!(plain.state("other"), missing);
        plain.claims.clear();
        assert!(
            plain.state("disk").obstacle().unwrap().contains("phase ImportInProgress"),
            "it says what is on the way"
        );
    }

    #[test]
    fn a_volumes_claim_is_found_whatever_its_kind() {
        let volume = |value| serde_json::from_value::<Volume>(value).unwrap();
        for (value, name, hotpluggable) in [
            (json!({"name": "v", "dataVolume": {"name": "a", "hotpluggable": true}}), Some("a"), true),
            (json!({"name": "v", "persistentVolumeClaim": {"claimName": "b"}}), Some("b"), false),
            (json!({"name": "v", "memoryDump": {"claimName": "c", "hotpluggable": true}}), Some("c"), true),
            (json!({"name": "v", "containerDisk": {"image": "i"}}), None, false),
        ] {
            let volume = volume(value);
            assert_eq!((claim_name(&volume), is_hotpluggable(&volume)), (name, hotpluggable));
        }
    }
}

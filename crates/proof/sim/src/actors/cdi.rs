//! CDI: fills the claims of DataVolumes.

use api::cdi::{Condition, DataVolume, DataVolumePhase, DataVolumeStatus};
use api::v1::ConditionStatus;
use informer::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery::meta::{controller_ref, is_deleting};
use virt_controller::api::Part;

use super::{build, claims_of, node_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::Object;
use crate::script::VolumeFate;
use crate::server::{Verb, Writer};

impl Sim {
    /// Advances a DataVolume by one step.
    pub(super) fn import(&mut self, key: &Key, uid: &str) {
        let Some(volume) = self.live::<DataVolume>(key, uid).filter(|volume| !is_deleting(&volume.metadata)) else {
            return;
        };
        if lock(&self.hub).server.lookup::<PersistentVolumeClaim>(key).is_none() {
            self.make_claim(&volume);
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.clone());
        let fate = self.world.volume_fates.get(uid).copied();
        let object = Object::DataVolume(volume.clone());
        let next = match (phase, fate) {
            (Some(DataVolumePhase::Succeeded | DataVolumePhase::Failed), _) => return,
            (_, Some(VolumeFate::Fails)) => DataVolumePhase::Failed,
            (_, Some(VolumeFate::WaitsForConsumer)) if !self.has_consumer(key) => DataVolumePhase::WaitForFirstConsumer,
            (Some(DataVolumePhase::ImportInProgress), Some(VolumeFate::Slow(wait))) => {
                self.world.volume_fates.remove(uid);
                return self.act_after(wait, Actor::Cdi, &object);
            }
            (Some(DataVolumePhase::ImportInProgress), _) => DataVolumePhase::Succeeded,
            _ => DataVolumePhase::ImportInProgress,
        };
        if next == DataVolumePhase::ImportInProgress {
            let after = self.some_ms(300, 6_000);
            self.act_after(after, Actor::Cdi, &object);
        }
        if next == DataVolumePhase::Succeeded {
            self.bind_claim(key);
        }
        self.set_volume_phase(&volume, next);
    }

    fn has_consumer(&self, key: &Key) -> bool {
        let hub = lock(&self.hub);
        hub.server.tables.pods.all().any(|pod| {
            pod.metadata.namespace.as_deref() == Some(&key.namespace)
                && node_of(pod).is_some()
                && claims_of(pod).any(|claim| claim == key.name)
        })
    }

    fn make_claim(&mut self, volume: &DataVolume) {
        let mut claim = build::claim(volume.metadata.name.as_deref().unwrap_or_default());
        claim.metadata.owner_references = controller_ref(volume).map(|owner| vec![owner]);
        if let Some(status) = &mut claim.status {
            status.phase = Some("Pending".to_owned());
            status.capacity = None;
        }
        lock(&self.hub).server.create(Writer::Cdi, claim).expect("it was not there");
    }

    fn bind_claim(&mut self, key: &Key) {
        let mut hub = lock(&self.hub);
        let Some(claim) = hub.server.lookup::<PersistentVolumeClaim>(key) else { return };
        let mut claim = (*claim).clone();
        claim.status = build::claim(&key.name).status;
        hub.server.write_whole(Writer::Cdi, Verb::UpdateStatus, claim);
    }

    fn set_volume_phase(&mut self, volume: &DataVolume, phase: DataVolumePhase) {
        let (ready, running, reason) = match &phase {
            DataVolumePhase::Succeeded => (ConditionStatus::True, ConditionStatus::False, "Completed"),
            DataVolumePhase::Failed => (ConditionStatus::False, ConditionStatus::False, api::cdi::REASON_ERROR),
            _ => (ConditionStatus::False, ConditionStatus::Unknown, "TransferRunning"),
        };
        let condition = |type_: &str, status: ConditionStatus| Condition {
            type_: type_.to_owned(),
            status,
            reason: Some(reason.to_owned()),
            ..Condition::default()
        };
        let mut new = volume.clone();
        new.status = Some(DataVolumeStatus {
            claim_name: volume.metadata.name.clone(),
            conditions: vec![condition("Ready", ready), condition("Running", running)],
            phase: Some(phase),
            ..DataVolumeStatus::default()
        });
        new.metadata.resource_version = None;
        lock(&self.hub).server.update(Writer::Cdi, Part::Status, new).expect("written right after it was read");
    }
}

//! One pass: looks at a DataVolume and its claim, and does what was decided.

use api::cdi::{DataVolume, DataVolumeStatus};
use imports::{Action, ClaimPatch, Decision, Note, World};
use informer::{Clock, EventType, Key, Recorder, Requeue};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::Error;
use crate::stores::Stores;
use crate::transfers::Transfers;

pub(crate) struct Controller {
    pub(crate) client: kube::Client,
    pub(crate) stores: Stores,
    pub(crate) transfers: Transfers,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

impl Controller {
    pub(crate) async fn pass(&self, key: &Key) -> Result<Requeue, Error> {
        let dv = self.stores.data_volumes.get(key);
        let claim = self.stores.claims.get(key);
        let uid = claim.as_ref().and_then(|claim| claim.metadata.uid.clone());
        // A claim of the same name was made anew: what filled the former one has to end first.
        self.transfers.end_other(key, uid.as_deref()).await;
        let decision = self.decide(key, dv.as_deref(), claim.as_deref());
        let Decision { actions, status, notes, again } = decision;
        let waits = again.map_or(Requeue::No, Requeue::After);
        for action in actions {
            match action {
                Action::CreateClaim(wanted) => match self.create(&wanted).await {
                    Err(error) if error.exists() => {}
                    Err(error) => return self.refused(dv.as_deref(), error).await,
                    Ok(()) => {}
                },
                Action::PatchClaim(patch) => {
                    let Some(claim) = claim.as_deref() else { continue };
                    self.patch(claim, patch).await?;
                }
                Action::Start(task) => {
                    let Some(claim) = claim.as_deref() else { continue };
                    self.transfers.start(key, claim, *task).await;
                }
                Action::Stop { because } => {
                    tracing::debug!(%key, because, "transfer ends");
                    self.transfers.stop(key).await;
                }
            }
        }
        let Some(dv) = dv.as_deref() else { return Ok(waits) };
        if let Some(status) = status {
            self.write(dv, &status).await?;
        }
        self.tell(dv, notes);
        Ok(waits)
    }

    fn decide(&self, key: &Key, dv: Option<&DataVolume>, claim: Option<&PersistentVolumeClaim>) -> Decision {
        let volume = claim.and_then(|claim| self.stores.volume_of(claim));
        let (transfer, node) = (self.transfers.look(key), self.stores.a_node());
        imports::decide(&World {
            now: self.clock.now(),
            data_volume: dv,
            claim,
            volume: volume.as_deref(),
            transfer: transfer.as_ref(),
            node: node.as_deref(),
            cluster: &self.stores,
        })
    }

    async fn create(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let created = claims.create(&PostParams::default(), claim).await;
        created.map(drop).map_err(Error::api(format!("create PersistentVolumeClaim {namespace}/{name}")))
    }

    /// The server does not take the claim: the DataVolume says why.
    async fn refused(&self, dv: Option<&DataVolume>, error: Error) -> Result<Requeue, Error> {
        let Some(dv) = dv else { return Err(error) };
        let now = self.clock.now();
        let status = match (error.over_quota(), error.refusal()) {
            (Some(why), _) => imports::over_quota(dv, why, now),
            (None, Some(why)) => imports::claim_refused(dv, why, now),
            (None, None) => return Err(error),
        };
        if dv.status.as_ref() != Some(&status) {
            self.write(dv, &status).await?;
            let reason = status.conditions.iter().find(|condition| condition.type_ == api::cdi::CONDITION_BOUND);
            let reason = reason.and_then(|condition| condition.reason.clone()).unwrap_or_default();
            let message = error.refusal().unwrap_or_default().to_owned();
            self.tell(dv, vec![Note { warning: true, reason, message }]);
        }
        Err(error)
    }

    async fn patch(&self, claim: &PersistentVolumeClaim, patch: ClaimPatch) -> Result<(), Error> {
        let ClaimPatch { annotations, owner } = patch;
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        // Not of a claim that was made anew meanwhile.
        let mut metadata = json!({"uid": claim.metadata.uid, "annotations": annotations});
        if let Some(owner) = owner {
            let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
            owners.push(owner);
            metadata["ownerReferences"] = json!(owners);
            metadata["resourceVersion"] = json!(claim.metadata.resource_version);
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let change = Patch::Merge(json!({ "metadata": metadata }));
        let patched = claims.patch(name, &PatchParams::default(), &change).await;
        patched.map(drop).map_err(Error::api(format!("annotate PersistentVolumeClaim {namespace}/{name}")))
    }

    async fn write(&self, dv: &DataVolume, status: &DataVolumeStatus) -> Result<(), Error> {
        let namespace = dv.metadata.namespace.as_deref().unwrap_or_default();
        let name = dv.metadata.name.as_deref().unwrap_or_default();
        let volumes: Api<DataVolume> = Api::namespaced(self.client.clone(), namespace);
        let change = Patch::Merge(json!({
            "metadata": {"uid": dv.metadata.uid},
            "status": difference(&json!(dv.status), &json!(status)),
        }));
        let written = volumes.patch_status(name, &PatchParams::default(), &change).await;
        match written.map_err(Error::api(format!("write the status of DataVolume {namespace}/{name}"))) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        }
    }

    fn tell(&self, dv: &DataVolume, notes: Vec<Note>) {
        for Note { warning, reason, message } in notes {
            let kind = if warning { EventType::Warning } else { EventType::Normal };
            self.recorder.publish(dv.object_ref(&()), kind, &reason, message);
        }
    }
}

/// The new members, and null for those that are gone.
fn difference(old: &Value, new: &Value) -> Value {
    let mut changed = new.clone();
    if let (Some(old), Some(changed)) = (old.as_object(), changed.as_object_mut()) {
        for key in old.keys() {
            changed.entry(key.clone()).or_insert(Value::Null);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_from_a_status_is_removed() {
        let (old, new) = (json!({"a": 1, "b": 2}), json!({"b": 3}));
        assert_eq!(difference(&old, &new), json!({"a": null, "b": 3}));
        assert_eq!(difference(&Value::Null, &new), new);
    }
}

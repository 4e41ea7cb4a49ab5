//! Block claims that grow while Pods use them.
//!
//! The volume controller grows the volume, and raises the PersistentVolume's capacity. Where no node uses the volume as a
//! block device, it raises the claim's `status.capacity`, too. Otherwise the claim waits (`FileSystemResizePending`) for
//! a node, which shows its Pods the device's new size and then finishes the claim, as the kubelet does.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::paths::PodUid;

const STORAGE: &str = "storage";
/// Conditions of a claim that end with its growth.
const RESIZING: [&str; 2] = ["Resizing", "FileSystemResizePending"];

/// The capacity that each Pod has seen of its volumes, by the PersistentVolume's name.
#[derive(Debug, Default)]
pub(crate) struct Growth(Mutex<HashMap<PodUid, BTreeMap<String, u64>>>);

impl Growth {
    /// The capacity of a volume, if the Pod has not seen it yet.
    pub(crate) fn news(&self, uid: &PodUid, volume: &PersistentVolume) -> Option<u64> {
        let capacity = bytes(volume.spec.as_ref()?.capacity.as_ref()?.get(STORAGE)?)?;
        let all = self.0.lock();
        let seen = all.get(uid).and_then(|seen| seen.get(volume.metadata.name.as_deref()?)).copied();
        (seen != Some(capacity)).then_some(capacity)
    }

    pub(crate) fn saw(&self, uid: &PodUid, volume: &str, capacity: u64) {
        self.0.lock().entry(uid.clone()).or_default().insert(volume.to_owned(), capacity);
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }
}

/// The patch to the status of a claim whose volume has this capacity on the node; `None` if it says so already.
pub(crate) fn finished(claim: &PersistentVolumeClaim, volume: &str, capacity: u64) -> Option<Value> {
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let status = claim.status.as_ref().filter(|_| bound == Some(volume))?;
    let told = status.capacity.as_ref().and_then(|capacity| bytes(capacity.get(STORAGE)?)).unwrap_or(0);
    let waits = |type_: &str| RESIZING.contains(&type_);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    if told >= capacity && !conditions.iter().any(|c| waits(&c.type_)) {
        return None;
    }
    let others: Vec<_> = conditions.iter().filter(|c| !waits(&c.type_)).collect();
    let size = Wire::from(Quantity::bytes(i64::try_from(capacity.max(told)).unwrap_or(i64::MAX)));
    let mut change = json!({"capacity": {STORAGE: size}, "conditions": others});
    if status.allocated_resource_statuses.as_ref().is_some_and(|statuses| statuses.contains_key(STORAGE)) {
        change["allocatedResourceStatuses"] = json!({ STORAGE: null });
    }
    // What somebody else has written meanwhile must not be undone.
    Some(json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": change}))
}

fn bytes(quantity: &Wire) -> Option<u64> {
    u64::try_from(Quantity::try_from(quantity).ok()?.value()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(capacity: &str, conditions: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"volumeName": "pv"},
            "status": {"capacity": {"storage": capacity}, "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn a_claim_is_finished_once_and_keeps_the_conditions_of_others() {
        let condition = |type_: &str| json!({"type": type_, "status": "True"});
        let waiting = json!([condition("FileSystemResizePending"), condition("Other")]);
        let patch = finished(&claim("1Gi", waiting.clone()), "pv", 2 << 30).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["status"]["capacity"], json!({"storage": "2Gi"}));
        assert_eq!(patch["status"]["conditions"][0]["type"], "Other");
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(finished(&claim("2Gi", json!([condition("Other")])), "pv", 2 << 30), None);
        assert!(finished(&claim("2Gi", waiting.clone()), "pv", 2 << 30).is_some());
        assert_eq!(finished(&claim("1Gi", waiting), "another", 2 << 30), None);
    }

    #[test]
    fn each_pod_is_told_each_size_once() {
        let (growth, uid): (Growth, PodUid) =
            (Growth::default(), "11111111-2222-3333-4444-555555555555".parse().unwrap());
        let of = |size: &str| -> PersistentVolume {
            let spec = json!({"capacity": {"storage": size}});
            serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
        };
        assert_eq!(growth.news(&uid, &of("1Gi")), Some(1 << 30));
        growth.saw(&uid, "pv", 1 << 30);
        assert_eq!(growth.news(&uid, &of("1Gi")), None);
        assert_eq!(growth.news(&uid, &of("3Gi")), Some(3 << 30));
        growth.forget(&uid);
        assert_eq!(growth.news(&uid, &of("1Gi")), Some(1 << 30));
    }
}

//! Block claims that grow while Pods use them.
//!
//! The volume controller grows the volume and the devices of all nodes, raises the PersistentVolume's capacity, and then
//! the claim's. A node makes sure of its own devices when it sees a new capacity: it may have attached one meanwhile.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::PersistentVolume;
use machinery::quantity::Quantity;
use parking_lot::Mutex;

use crate::paths::PodUid;

/// The capacity that each Pod has seen of its volumes, by the PersistentVolume's name.
#[derive(Debug, Default)]
pub(crate) struct Growth(Mutex<HashMap<PodUid, BTreeMap<String, u64>>>);

impl Growth {
    /// The capacity of a volume, if the Pod has not seen it yet.
    pub(crate) fn news(&self, uid: &PodUid, volume: &PersistentVolume) -> Option<u64> {
        let capacity = capacity(volume)?;
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

fn capacity(volume: &PersistentVolume) -> Option<u64> {
    let quantity = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
    u64::try_from(Quantity::try_from(quantity).ok()?.value()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_pod_is_told_each_size_once() {
        let growth = Growth::default();
        let uid: PodUid = "11111111-2222-3333-4444-555555555555".parse().unwrap();
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

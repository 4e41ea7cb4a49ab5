//! Maintains the `status` of every quota: its limits and their usage.
//!
//! Clients that were rejected by a quota wait for this status to change.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use placement::quota::used;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cache::Key;
use crate::kinds::KindId;
use crate::registry::{Part, Registry};

/// Debounces successive changes.
const SETTLE: Duration = Duration::from_millis(20);
/// Retry interval after a failed write.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    registry: Arc<Registry>,
}

impl Keeper {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Runs until shutdown.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let find = |plural| self.registry.kinds.find("", plural);
        let (Some(pods), Some(claims), Some(quotas)) =
            (find("pods"), find("persistentvolumeclaims"), find("resourcequotas"))
        else {
            return;
        };
        let mut pods_changed = self.registry.cache.changes(pods);
        let mut claims_changed = self.registry.cache.changes(claims);
        let mut quotas_changed = self.registry.cache.changes(quotas);
        loop {
            // Marked as seen before reading: a concurrent change triggers another round.
            pods_changed.mark_unchanged();
            claims_changed.mark_unchanged();
            quotas_changed.mark_unchanged();
            let written = self.round(pods, claims, quotas).await;
            let retry = async { if written { std::future::pending().await } else { tokio::time::sleep(RETRY).await } };
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = pods_changed.changed() => if changed.is_err() { return },
                changed = claims_changed.changed() => if changed.is_err() { return },
                changed = quotas_changed.changed() => if changed.is_err() { return },
                () = retry => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(SETTLE) => {}
            }
        }
    }

    /// Updates every status; returns whether all succeeded.
    async fn round(&self, pods: KindId, claims: KindId, quotas: KindId) -> bool {
        let mut all = true;
        for object in self.registry.cache.list(quotas, None).objects.iter().filter(|object| !object.deleting) {
            let Ok(quota) = serde_json::from_value::<ResourceQuota>(object.value()) else { continue };
            let namespace = &object.name.namespace;
            let (pods, claims) = (self.registry.objects(pods, namespace), self.registry.objects(claims, namespace));
            let status = status(&quota, &pods, &claims);
            if object.value()["status"] == status {
                continue;
            }
            let key = Key { kind: quotas, name: object.name.clone() };
            let written = self.registry.modify(&key, Part::Status, |quota| quota["status"] = status.clone()).await;
            if let Err(error) = written
                && self.registry.cache.get(quotas, &key.name).is_some()
            {
                tracing::debug!(quota = %key.name, %error, "the status of a quota will be written again");
                all = false;
            }
        }
        all
    }
}

impl Registry {
    /// The objects of a namespace, decoded.
    pub(crate) fn objects<T: DeserializeOwned>(&self, kind: KindId, namespace: &str) -> Vec<T> {
        let objects = self.cache.list(kind, Some(namespace)).objects;
        objects.iter().filter_map(|object| serde_json::from_value(object.value()).ok()).collect()
    }
}

fn status(quota: &ResourceQuota, pods: &[Pod], claims: &[PersistentVolumeClaim]) -> Value {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let used: serde_json::Map<String, Value> =
        used(quota, pods, claims).into_iter().map(|(name, amount)| (name, json!(amount.to_string()))).collect();
    let mut status = json!({});
    if let Some(hard) = hard {
        status["hard"] = json!(hard);
    }
    if !used.is_empty() {
        status["used"] = Value::Object(used);
    }
    status
}

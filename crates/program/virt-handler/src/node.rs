//! The Node object: whether VMs can be scheduled here, where a virt-handler without a Pod listens, and its heartbeat.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::{annotations, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::plugins::changed;

/// Where virt-api finds a virt-handler that does not run in a Pod.
const HANDLER_ADDRESS: &str = "ferrovirt.io/handler-address";
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Retry interval: the Node object may be created shortly after virt-handler starts.
const RETRY: Duration = Duration::from_millis(500);
/// Timeout for withdrawing the node at shutdown.
const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) struct Presence {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    /// Published, if there is no Pod whose address virt-api could look up.
    pub(crate) address: Option<SocketAddr>,
    /// Labels for the machine types and CPUs available to guests.
    pub(crate) abilities: Vec<String>,
}

/// Whether new guests may start on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Ready,
    /// The kubelet does not know all devices: virt-handler has not been ready yet, or the kubelet has restarted.
    NotYet,
    Withdrawn,
}

impl Offer {
    /// The new value of the label `schedulable`, if it changes. Launcher Pods select nodes by it, and a kubelet that
    /// restarts stops Pods that it would no longer admit. So only a virt-handler that stops sets it to false. Until the
    /// kubelet knows the devices again, no guest starts here anyway: the node has none to allocate.
    fn label(self, is_labelled: bool) -> Option<&'static str> {
        match self {
            Offer::Ready => Some("true"),
            Offer::NotYet => (!is_labelled).then_some("false"),
            Offer::Withdrawn => Some("false"),
        }
    }
}

/// Label prefixes managed here: labels that are not set again are removed.
const OWN: [&str; 4] = [
    labels::MACHINE_TYPE_PREFIX,
    labels::HOST_MODEL_CPU_PREFIX,
    labels::CPU_MODEL_MIGRATION_PREFIX,
    labels::CPU_VENDOR_PREFIX,
];

impl Presence {
    /// Marks the node schedulable when it is ready for VMs, sends a heartbeat every minute, and withdraws the node on
    /// shutdown.
    pub(crate) async fn keep(&self, mut ready: watch::Receiver<bool>, shutdown: CancellationToken) {
        loop {
            let offer = if *ready.borrow_and_update() { Offer::Ready } else { Offer::NotYet };
            let pause = match self.patch(offer).await {
                Ok(()) => HEARTBEAT,
                Err(error) => {
                    tracing::warn!(
                        node = self.node_name,
                        error = crate::error::chain(&error),
                        "failed to send the heartbeat"
                    );
                    RETRY
                }
            };
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = changed(&mut ready) => {}
                }
            };
            if shutdown.run_until_cancelled(due).await.is_none() {
                return self.withdraw().await;
            }
        }
    }

    /// Marks the node unschedulable for new VMs, on a best-effort basis.
    pub(crate) async fn withdraw(&self) {
        match tokio::time::timeout(GOODBYE, self.patch(Offer::Withdrawn)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = crate::error::chain(&error), "failed to mark the node as unschedulable")
            }
            Err(_) => tracing::debug!("the API server does not respond; the node was not marked as unschedulable"),
        }
    }

    /// Changes to the capability labels: those added, and those removed, for example with an older QEMU.
    fn ability_labels(&self, before: &BTreeMap<String, String>) -> Map<String, Value> {
        let came = self.abilities.iter().filter(|label| before.get(*label).map(String::as_str) != Some("true"));
        let known = before.keys().filter(|label| OWN.iter().any(|own| label.starts_with(own)));
        let gone = known.filter(|label| !self.abilities.contains(label));
        came.map(|label| (label.clone(), json!("true"))).chain(gone.map(|label| (label.clone(), Value::Null))).collect()
    }

    async fn patch(&self, offer: Offer) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let before = nodes.get(&self.node_name).await?.metadata.labels.unwrap_or_default();
        // Only once all are known: a restarting node keeps its labels.
        let mut labels = if offer == Offer::Ready { self.ability_labels(&before) } else { Map::new() };
        if let Some(label) = offer.label(before.contains_key(labels::SCHEDULABLE)) {
            labels.insert(labels::SCHEDULABLE.to_owned(), json!(label));
        }
        let heartbeat = Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
        let mut annotations = Map::from_iter([(annotations::HEARTBEAT.to_owned(), json!(heartbeat))]);
        if let Some(address) = self.address {
            annotations.insert(HANDLER_ADDRESS.to_owned(), json!(address.to_string()));
        }
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        nodes.patch(&self.node_name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::Offer::{NotYet, Ready, Withdrawn};

    #[test]
    fn only_who_leaves_takes_the_label_back() {
        assert_eq!([true, false].map(|is_labelled| NotYet.label(is_labelled)), [None, Some("false")]);
        assert_eq!([Ready, Withdrawn].map(|offer| offer.label(true)), [Some("true"), Some("false")]);
    }
}

//! The Node object: whether VMs can be scheduled here, where a virt-handler without a Pod listens, and its heartbeat.

use std::net::SocketAddr;
use std::time::Duration;

use api::annotations;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use nodelabels::Offer;
use serde_json::{Map, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::plugins::changed;

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

    async fn patch(&self, offer: Offer) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let before = nodes.get(&self.node_name).await?.metadata.labels.unwrap_or_default();
        let labels = nodelabels::changes(offer, &self.abilities, &before);
        let heartbeat = Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
        let mut annotations = Map::from_iter([(annotations::HEARTBEAT.to_owned(), json!(heartbeat))]);
        if let Some(address) = self.address {
            annotations.insert(annotations::HANDLER_ADDRESS.to_owned(), json!(address.to_string()));
        }
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        nodes.patch(&self.node_name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

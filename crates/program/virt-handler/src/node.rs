//! The node's own object: whether VMs may come here, where the agent listens, and that it is alive.

use std::net::SocketAddr;
use std::time::Duration;

use api::{annotations, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Where virt-api finds an agent that has no Pod.
const HANDLER_ADDRESS: &str = "ferrovirt.io/handler-address";
const HEARTBEAT: Duration = Duration::from_secs(60);
/// The Node object may be made a moment after the agent starts.
const RETRY: Duration = Duration::from_millis(500);
/// A goodbye that nobody hears must not hold up the end.
const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) struct Presence {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    pub(crate) address: SocketAddr,
}

impl Presence {
    /// Lets VMs come, says so every minute, and withdraws at the end.
    pub(crate) async fn keep(&self, shutdown: CancellationToken) {
        loop {
            let pause = match self.patch(true).await {
                Ok(()) => HEARTBEAT,
                Err(error) => {
                    tracing::warn!(node = self.node_name, error = crate::error::chain(&error), "no heartbeat");
                    RETRY
                }
            };
            if shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return self.withdraw().await;
            }
        }
    }

    /// Keeps new VMs away, as far as that can be said.
    pub(crate) async fn withdraw(&self) {
        match tokio::time::timeout(GOODBYE, self.patch(false)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = crate::error::chain(&error), "the node could not be marked"),
            Err(_) => tracing::debug!("the API server does not answer; the node could not be marked"),
        }
    }

    async fn patch(&self, schedulable: bool) -> Result<(), kube::Error> {
        let patch = json!({
            "metadata": {
                "labels": { labels::SCHEDULABLE: schedulable.to_string() },
                "annotations": {
                    annotations::HEARTBEAT: Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
                    HANDLER_ADDRESS: self.address.to_string(),
                },
            },
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(&self.node_name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

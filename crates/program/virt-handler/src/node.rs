//! The node's own object: whether VMs may come here, where the agent listens, and that it is alive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::{annotations, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
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
    /// Labels about the machine types and the CPU that guests here can have.
    pub(crate) abilities: Vec<String>,
}

/// Labels that begin so are this agent's: those it does not set are taken away.
const OWN: [&str; 4] = [
    labels::MACHINE_TYPE_PREFIX,
    labels::HOST_MODEL_CPU_PREFIX,
    labels::CPU_MODEL_MIGRATION_PREFIX,
    labels::CPU_VENDOR_PREFIX,
];

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

    /// What must change about the node's abilities: those that came, and those that went with an older QEMU.
    fn ability_labels(&self, before: &BTreeMap<String, String>) -> Map<String, Value> {
        let came = self.abilities.iter().filter(|label| before.get(*label).map(String::as_str) != Some("true"));
        let known = before.keys().filter(|label| OWN.iter().any(|own| label.starts_with(own)));
        let gone = known.filter(|label| !self.abilities.contains(label));
        came.map(|label| (label.clone(), json!("true"))).chain(gone.map(|label| (label.clone(), Value::Null))).collect()
    }

    async fn patch(&self, schedulable: bool) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let before = nodes.get(&self.node_name).await?.metadata.labels.unwrap_or_default();
        // Not before they are all known: a node that restarts keeps what it has said.
        let mut labels = if schedulable { self.ability_labels(&before) } else { Map::new() };
        labels.insert(labels::SCHEDULABLE.to_owned(), json!(schedulable.to_string()));
        let patch = json!({
            "metadata": {
                "labels": labels,
                "annotations": {
                    annotations::HEARTBEAT: Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
                    HANDLER_ADDRESS: self.address.to_string(),
                },
            },
        });
        nodes.patch(&self.node_name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

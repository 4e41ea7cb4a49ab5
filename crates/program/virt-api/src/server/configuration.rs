//! The cluster's configuration: the KubeVirt object in the installation's namespace.

use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::KubeVirt;
use futures::StreamExt;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use tokio_util::sync::CancellationToken;

use crate::Admission;

/// Called with each new configuration.
pub type Observer = Arc<dyn Fn(&ClusterConfig) + Send + Sync>;

/// Keeps admission in line with the configuration.
pub(crate) struct Follower {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    pub(crate) admission: Arc<Admission>,
    pub(crate) observer: Option<Observer>,
}

impl Follower {
    fn kubevirts(&self) -> Api<KubeVirt> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Takes the current configuration. Without a KubeVirt object the defaults apply.
    pub(crate) async fn read(&self) -> Result<(), kube::Error> {
        match self.kubevirts().list(&ListParams::default().limit(1)).await?.items.first() {
            Some(kubevirt) => self.take(kubevirt),
            None => tracing::info!(namespace = self.namespace, "there is no KubeVirt object; using defaults"),
        }
        Ok(())
    }

    pub(crate) async fn follow(self, end: CancellationToken) {
        let changes = watcher(self.kubevirts(), watcher::Config::default()).default_backoff().applied_objects();
        futures::pin_mut!(changes);
        while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
            match change {
                Ok(kubevirt) => self.take(&kubevirt),
                Err(error) => tracing::debug!(%error, "the watch of the KubeVirt object is retried"),
            }
        }
    }

    /// An invalid configuration leaves the last valid one in effect.
    fn take(&self, kubevirt: &KubeVirt) {
        match ClusterConfig::from_kubevirt(kubevirt) {
            Ok(mut config) => {
                config.install_namespace.clone_from(&self.namespace);
                if let Some(observer) = &self.observer {
                    observer(&config);
                }
                self.admission.configure(config);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "ignoring the invalid cluster configuration");
            }
        }
    }
}

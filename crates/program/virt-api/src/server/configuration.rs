//! The cluster's configuration: the KubeVirt object in the installation's namespace.

use std::borrow::Borrow;
use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::KubeVirt;
use futures::StreamExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
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
        let found = self.kubevirts().list(&ListParams::default()).await?.items;
        if found.is_empty() {
            tracing::info!(namespace = self.namespace, "there is no KubeVirt object; using defaults");
        }
        self.take(found);
        Ok(())
    }

    pub(crate) async fn follow(self, end: CancellationToken) {
        let (all, writer) = reflector::store();
        let changes = watcher(self.kubevirts(), watcher::Config::default()).default_backoff().reflect(writer);
        futures::pin_mut!(changes);
        while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
            match change {
                Ok(Event::Init | Event::InitApply(_)) => {} // the list is not complete yet
                Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => self.take(all.state()),
                Err(error) => tracing::debug!(%error, "the watch of the KubeVirt object is retried"),
            }
        }
    }

    /// Takes the configuration of the object in force. An invalid one leaves the last valid one in effect.
    fn take<K: Borrow<KubeVirt>>(&self, all: Vec<K>) {
        let base = ClusterConfig { install_namespace: self.namespace.clone(), ..ClusterConfig::default() };
        match base.effective(all, None) {
            Ok(config) => {
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

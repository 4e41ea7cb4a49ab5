//! The current cluster configuration.

use std::sync::Arc;

use api::config::{ClusterConfig, in_force};
use api::v1::KubeVirt;
use informer::Store;
use parking_lot::{Mutex, MutexGuard, RwLock};

type Listener = Box<dyn Fn(&ClusterConfig) + Send + Sync>;

/// Follows the KubeVirt object. An invalid configuration is ignored; the last valid one stays in effect.
#[derive(Clone)]
pub struct LiveConfig {
    inner: Arc<Inner>,
}

struct Inner {
    /// Defaults of this installation; the KubeVirt object in its namespace overrides them.
    base: ClusterConfig,
    current: RwLock<Arc<ClusterConfig>>,
    listeners: Mutex<Vec<Listener>>,
}

impl LiveConfig {
    pub(crate) fn new(base: ClusterConfig) -> Self {
        let current = RwLock::new(Arc::new(base.clone()));
        Self { inner: Arc::new(Inner { base, current, listeners: Mutex::default() }) }
    }

    /// Returns the configuration in effect.
    pub fn now(&self) -> Arc<ClusterConfig> {
        self.inner.current.read().clone()
    }

    /// Calls `listener` with the configuration in effect, now and after every change. The listener must not block.
    pub fn on_change(&self, listener: impl Fn(&ClusterConfig) + Send + Sync + 'static) {
        let mut listeners = self.listeners();
        listener(&self.now());
        listeners.push(Box::new(listener));
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.inner.listeners.lock()
    }

    /// Subscribes to changes of the KubeVirt object.
    pub(crate) fn follow(&self, kubevirts: &Store<KubeVirt>) {
        let (this, all) = (self.clone(), kubevirts.clone());
        kubevirts.subscribe(move |_| {
            if this.refresh(&all.all()) {
                let config = this.now();
                this.listeners().iter().for_each(|listener| listener(&config));
            }
        });
    }

    /// The KubeVirt object in force.
    pub(crate) fn kubevirt(&self, kubevirts: &Store<KubeVirt>) -> Option<Arc<KubeVirt>> {
        in_force(kubevirts.all(), Some(self.namespace()))
    }

    fn namespace(&self) -> &str {
        &self.inner.base.install_namespace
    }

    /// Re-reads the KubeVirt object in force. Returns whether the configuration changed.
    fn refresh(&self, all: &[Arc<KubeVirt>]) -> bool {
        let config = match self.inner.base.effective(all.iter().cloned(), Some(self.namespace())) {
            Ok(config) => Arc::new(config),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the KubeVirt object is invalid; keeping the last valid configuration");
                return false;
            }
        };
        let mut current = self.inner.current.write();
        let changed = *current != config;
        *current = config;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> ClusterConfig {
        ClusterConfig { launcher_image: "launcher:1".into(), ..ClusterConfig::default() }
    }

    fn kubevirt(policy: &str) -> Arc<KubeVirt> {
        let object = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {"imagePullPolicy": policy}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_refused_configuration_leaves_the_last_good_one_in_force() {
        let live = LiveConfig::new(base());
        assert!(live.refresh(&[kubevirt("Always")]));
        assert!(!live.refresh(&[kubevirt("Sometimes")]));
        assert_eq!(live.now().image_pull_policy(), "Always");
        assert_eq!(live.now().launcher_image, "launcher:1", "the image is this process's to say");
        assert!(!live.refresh(&[kubevirt("Always")]), "nothing changed");
        assert!(live.refresh(&[]), "without an object the defaults hold");
    }
}

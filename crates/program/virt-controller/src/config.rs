//! The cluster configuration as it is now.

use std::sync::{Arc, PoisonError, RwLock};

use api::config::ClusterConfig;
use api::v1::KubeVirt;
use informer::{Key, WorkQueue};

use crate::stores::Stores;

/// Follows the KubeVirt object. A configuration that is refused leaves the last good one in force.
#[derive(Clone)]
pub(crate) struct LiveConfig {
    current: Arc<RwLock<Arc<ClusterConfig>>>,
    launcher_image: Arc<str>,
}

impl LiveConfig {
    pub(crate) fn new(launcher_image: String) -> Self {
        let config = ClusterConfig { launcher_image: launcher_image.clone(), ..ClusterConfig::default() };
        Self { current: Arc::new(RwLock::new(Arc::new(config))), launcher_image: launcher_image.into() }
    }

    pub(crate) fn now(&self) -> Arc<ClusterConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps up with the KubeVirt object. Instances are looked at again when the configuration changes: it may decide
    /// whether their Pod can be made, and whether their launcher is outdated.
    pub(crate) fn follow(&self, stores: &Stores, queue: &WorkQueue<Key>) {
        let (this, stores, queue) = (self.clone(), stores.clone(), queue.clone());
        stores.kubevirts.clone().subscribe(move |_| {
            if this.refresh(&stores.kubevirts.all()) {
                stores.vmis.all().iter().for_each(|vmi| queue.add(Key::of(vmi.as_ref())));
            }
        });
    }

    /// Reads the one object that counts. Says whether that changed anything.
    fn refresh(&self, all: &[Arc<KubeVirt>]) -> bool {
        let alive = all.iter().filter(|kubevirt| !machinery::meta::is_deleting(&kubevirt.metadata));
        let oldest = alive.min_by_key(|kubevirt| kubevirt.metadata.creation_timestamp.clone());
        let read =
            oldest.map_or_else(|| Ok(ClusterConfig::default()), |kubevirt| ClusterConfig::from_kubevirt(kubevirt));
        let config = match read {
            Ok(config) => Arc::new(ClusterConfig { launcher_image: self.launcher_image.to_string(), ..config }),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the KubeVirt object is refused; the last good configuration stays in force");
                return false;
            }
        };
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *current != config;
        *current = config;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kubevirt(policy: &str) -> Arc<KubeVirt> {
        let object = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {"imagePullPolicy": policy}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_refused_configuration_leaves_the_last_good_one_in_force() {
        let live = LiveConfig::new("launcher:1".into());
        assert!(live.refresh(&[kubevirt("Always")]));
        assert!(!live.refresh(&[kubevirt("Sometimes")]));
        assert_eq!(live.now().image_pull_policy(), "Always");
        assert_eq!(live.now().launcher_image, "launcher:1", "the image is this process's to say");
        assert!(!live.refresh(&[kubevirt("Always")]), "nothing changed");
        assert!(live.refresh(&[]), "without an object the defaults hold");
    }
}

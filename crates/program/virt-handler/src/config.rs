//! The configuration of the process, and the current one of the cluster.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use api::v1::{KubeVirt, MigrationConfiguration};
use informer::Store;
use kube::Client;
use launcher_contract::types::{Lease, SyncOptions};
use tokio::sync::watch;

use crate::status::Status;

/// The gate of growing a guest's disks with their claims.
pub(crate) const EXPAND_DISKS: &str = "ExpandDisks";

/// Called with each new cluster configuration.
pub type Observer = Arc<dyn Fn(&ClusterConfig) + Send + Sync>;

/// Configuration of virt-handler.
pub struct Config {
    pub node_name: String,
    /// The installation namespace, which holds the KubeVirt object.
    pub install_namespace: String,
    /// The kubelet's Pod directory, or one with the same layout.
    pub pods_dir: PathBuf,
    /// Directory of virt-handler's own records.
    pub private_dir: PathBuf,
    /// File that caches whether KVM works, once per boot of the host.
    pub kvm_finding: PathBuf,
    pub client: Client,
    /// Listens for virt-api; bound by the caller, which knows the right network namespace.
    pub listen: TcpListener,
    /// Identity for virt-api and other virt-handlers.
    pub identity: role_tls::Source,
    /// Whether the certificates of other virt-handlers have to name their nodes.
    pub node_check: role_tls::NodeCheck,
    /// Writes the address of `listen` to the Node object, where virt-api finds a virt-handler that has no Pod.
    pub annotate_address: bool,
    /// The kubelet of the node, if there is one.
    pub kubelet: Option<Kubelet>,
    /// How long migrations in progress may go on after the shutdown.
    pub drain: Duration,
    /// Receives the state of this virt-handler.
    pub status: Arc<Status>,
    pub on_configuration: Option<Observer>,
}

/// What virt-handler does with a kubelet.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// The directory of device plugins, as this process sees it.
    pub device_plugins: PathBuf,
    /// The same directory as the kubelet sees it.
    pub device_plugins_on_node: PathBuf,
    /// The node's root directory, as this process sees it.
    pub node_root: PathBuf,
    /// Devices per plugin.
    pub max_devices: u32,
    /// The directory of seccomp profiles, as this process sees it.
    pub seccomp: PathBuf,
}

/// The last valid configuration of the cluster.
#[derive(Clone, Default)]
pub(crate) struct CurrentConfig(Arc<watch::Sender<ClusterConfig>>);

impl CurrentConfig {
    pub(crate) fn follow(kubevirts: &Store<KubeVirt>, namespace: String, observer: Option<Observer>) -> Self {
        let current = CurrentConfig::default();
        let (held, all) = (current.clone(), kubevirts.clone());
        kubevirts.subscribe(move |_| held.refresh(&all.all(), &namespace, observer.as_ref()));
        current
    }

    /// Takes the configuration of the KubeVirt object in force; the defaults if there is none.
    fn refresh(&self, all: &[Arc<KubeVirt>], namespace: &str, observer: Option<&Observer>) {
        match ClusterConfig::default().effective(all.iter().cloned(), Some(namespace)) {
            Ok(config) if config == *self.0.borrow() => {}
            Ok(config) => {
                if let Some(observer) = observer {
                    observer(&config);
                }
                self.0.send_replace(config);
            }
            Err(error) => {
                tracing::warn!(%error, "the KubeVirt object is invalid; keeping the last valid configuration")
            }
        }
    }

    /// This configuration and those to come.
    pub(crate) fn subscribe(&self) -> watch::Receiver<ClusterConfig> {
        self.0.subscribe()
    }

    /// The cluster's defaults for migrations.
    pub(crate) fn migrations(&self) -> MigrationConfiguration {
        self.0.borrow().migrations()
    }

    /// Whether a feature gate is enabled.
    pub(crate) fn gate(&self, name: &str) -> bool {
        self.0.borrow().feature_gate(name)
    }

    /// The options to send to a launcher.
    pub(crate) fn sync_options(&self, kvm_usable: bool, leases: Vec<Lease>) -> SyncOptions {
        let config = self.0.borrow();
        SyncOptions {
            smbios: config.smbios(),
            mem_balloon_stats_period: config.mem_balloon_stats_period(),
            serial_console_log_disabled: config.serial_console_log_disabled(),
            free_page_reporting_disabled: config.free_page_reporting_disabled(),
            allow_emulation: config.use_emulation(),
            kvm_usable,
            leases,
            tolerated_shortage_percent: config.pvc_tolerate_less_space_up_to_percent().try_into().unwrap_or(100),
            reserved_bytes: config.minimum_reserve_pvc_bytes().try_into().unwrap_or_default(),
            expand_disks: config.feature_gate(EXPAND_DISKS),
            plugged_volumes: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kubevirt(namespace: &str, name: &str, created: &str, policy: &str) -> Arc<KubeVirt> {
        let object = json!({"metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
            "spec": {"configuration": {"imagePullPolicy": policy}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_the_object_in_force_is_followed() {
        let current = CurrentConfig::default();
        let policy = |all: &[Arc<KubeVirt>]| {
            current.refresh(all, "kubevirt", None);
            current.0.borrow().image_pull_policy().to_owned()
        };
        let ours = kubevirt("kubevirt", "kubevirt", "2026-01-01T00:00:00Z", "Always");
        assert_eq!(policy(std::slice::from_ref(&ours)), "Always");
        let elsewhere = kubevirt("default", "a", "2025-01-01T00:00:00Z", "Never");
        let newer = kubevirt("kubevirt", "a", "2026-01-01T00:00:01Z", "Never");
        assert_eq!(policy(&[elsewhere.clone(), newer.clone(), ours]), "Always");
        let invalid = kubevirt("kubevirt", "kubevirt", "2026-01-01T00:00:00Z", "Sometimes");
        assert_eq!(policy(&[newer.clone(), invalid]), "Always", "the last valid one stays");
        assert_eq!(policy(&[elsewhere.clone(), newer]), "Never", "ours is gone");
        assert_eq!(policy(&[elsewhere]), "IfNotPresent", "without an object the defaults apply");
    }
}

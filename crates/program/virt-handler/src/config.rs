//! The current cluster configuration.

use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::{KubeVirt, MigrationConfiguration};
use informer::Store;
use launcher_contract::types::SyncOptions;
use parking_lot::RwLock;

/// The last valid configuration.
#[derive(Clone, Default)]
pub(crate) struct CurrentConfig(Arc<RwLock<ClusterConfig>>);

impl CurrentConfig {
    pub(crate) fn follow(kubevirts: &Store<KubeVirt>) -> Self {
        let current = CurrentConfig::default();
        let held = current.clone();
        kubevirts.subscribe(move |change| match ClusterConfig::from_kubevirt(change.object()) {
            Ok(config) => *held.0.write() = config,
            Err(error) => {
                tracing::warn!(%error, "the KubeVirt object is invalid; keeping the last valid configuration")
            }
        });
        current
    }

    /// The cluster's defaults for migrations.
    pub(crate) fn migrations(&self) -> MigrationConfiguration {
        self.0.read().migrations()
    }

    /// Whether a feature gate is enabled.
    pub(crate) fn gate(&self, name: &str) -> bool {
        self.0.read().feature_gate(name)
    }

    /// The options to send to a launcher.
    pub(crate) fn sync_options(&self, kvm_usable: bool) -> SyncOptions {
        let config = self.0.read();
        SyncOptions {
            smbios: config.smbios(),
            mem_balloon_stats_period: config.mem_balloon_stats_period(),
            serial_console_log_disabled: config.serial_console_log_disabled(),
            free_page_reporting_disabled: config.free_page_reporting_disabled(),
            allow_emulation: config.use_emulation(),
            kvm_usable,
        }
    }
}

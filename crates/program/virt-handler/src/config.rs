//! The cluster's configuration, kept current.

use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::{KubeVirt, MigrationConfiguration};
use informer::Store;
use launcher_contract::types::SyncOptions;
use parking_lot::RwLock;

/// The last configuration that made sense.
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

    /// The cluster's choices for migrations that carry none of their own.
    pub(crate) fn migrations(&self) -> MigrationConfiguration {
        self.0.read().migrations()
    }

    /// Whether a feature gate is open.
    pub(crate) fn gate(&self, name: &str) -> bool {
        self.0.read().feature_gate(name)
    }

    /// What a launcher has to be told.
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

use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use api::v1::{KubeVirt, VirtualMachineInstanceMigration as Migration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Guest;

/// The input of the decision about an installation.
#[derive(Clone, Debug)]
pub struct World {
    pub kubevirt: Arc<KubeVirt>,
    /// The VMIs for which [`is_pending`](super::is_pending) is true, and those with a migration of ours.
    pub guests: Vec<Guest>,
    /// Every unfinished migration in the cluster.
    pub unfinished: Vec<Arc<Migration>>,
    /// The cluster configuration, including the launcher image.
    pub config: Arc<ClusterConfig>,
    /// The time of the last eviction; without one, the start of this process: its predecessor may have evicted just
    /// before.
    pub last_batch: Time,
    /// How long to wait at most until migrations that we created or deleted are in the cache.
    pub behind: Option<Duration>,
    /// The cluster is being drained: no launcher needs an update any more.
    pub hold: bool,
    pub now: Time,
}

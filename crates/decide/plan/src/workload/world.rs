use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use api::v1::{KubeVirt, VirtualMachineInstanceMigration as Migration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Guest;

/// Everything the decision may see about an installation.
#[derive(Clone, Debug)]
pub struct World {
    pub kubevirt: Arc<KubeVirt>,
    /// The instances for which [`is_pending`](super::is_pending) says yes, and those that a migration of ours moves.
    pub guests: Vec<Guest>,
    /// Every migration of the cluster that has not ended.
    pub unfinished: Vec<Arc<Migration>>,
    /// What the installation configures, the image of launchers included.
    pub config: Arc<ClusterConfig>,
    /// When something was last evicted; if nothing was, when this process began: a predecessor may have, right before.
    pub last_batch: Time,
    /// How long to wait at most for migrations that we made or deleted to be seen.
    pub behind: Option<Duration>,
    /// The cluster is being emptied: nobody needs a new launcher any more.
    pub hold: bool,
    pub now: Time,
}

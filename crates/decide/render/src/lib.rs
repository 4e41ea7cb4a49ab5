//! Renders the Pods of a VMI.
//!
//! Pure functions of the VMI, the cluster configuration and a [`Context`]: the same input gives the same Pod, byte for
//! byte, including its name.
//!
//! | Pod | for |
//! |---|---|
//! | [`launcher_pod`] | running the guest |
//! | [`first_consumer_pod`] | binding its volumes where it would run; exits at once |
//! | [`migration_target_pod`] | receiving it from another node |
//! | [`attachment_pod`] | attaching hot-plugged volumes to its node |
//! | [`trigger_pod`] | binding a hot-plugged volume to its node; exits at once |
//!
//! A launcher Pod is assembled in `launcher` from `metadata`, `scheduling`, `resources` (with `devices` and
//! `overhead`), `volumes` (with `backend_storage`), the `compute` container (with `probes`) and the containers around
//! it: `container_disks`, `console_log`, `virtiofs` and `sidecars`, whose resources are in `auxiliary`.

mod amount;
mod attachment;
mod auxiliary;
mod backend_storage;
mod compute;
mod console_log;
mod container_disks;
mod context;
mod devices;
mod error;
mod grace_period;
mod launcher;
mod metadata;
mod migration;
pub mod network;
pub mod overhead;
mod pod_volumes;
mod probes;
mod resources;
mod scheduling;
mod selinux;
mod sidecars;
mod traits;
mod virtiofs;
mod volumes;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;

pub use attachment::{Attachment, attachment_pod, migration_attachment_pod, trigger_pod};
pub use backend_storage::VOLUME as STATE_VOLUME;
pub use context::{Claim, Context, LauncherSettings, Quotas};
pub use error::Error;
pub use metadata::{VELERO_KEYS, hostname, velero_annotations};
pub use migration::{Source, migration_target_pod};
pub use traits::{claim_name, needs_backend_claim};

/// The container that runs the guest. It is the first one.
pub const COMPUTE: &str = "compute";

/// The user and group a launcher runs as.
const NON_ROOT_USER: i64 = launcher_contract::USER as i64;

/// The launcher Pod of a VMI.
pub fn launcher_pod(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<Pod, Error> {
    let variant = launcher::Variant { purpose: None, temporary: false, images: Default::default() };
    launcher::pod(vmi, config, ctx, &variant)
}

/// A Pod that is scheduled like the launcher Pod, so that volumes which wait for their first consumer are bound where
/// the guest can run. It exits at once.
pub fn first_consumer_pod(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<Pod, Error> {
    let variant = launcher::Variant { purpose: Some("first-consumer"), temporary: true, images: Default::default() };
    launcher::pod(vmi, config, ctx, &variant)
}

/// A list, unless it is empty.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

//! Phase 1 of a launcher's network: its namespace gets a bridge, a tap device and NAT rules, once.
//!
//! ```text
//! (no record) ──► Started ──► Finished
//!                    │ an error, or the agent died
//!                    ▼
//!               never repaired: the VMI fails
//! ```

use std::os::fd::OwnedFd;

use api::v1::VirtualMachineInstance;
use hostfs::process::ProcessId;
use netplan::{NetPlan, PlanError};

use crate::records::{NetworkRecord, PodInterface, Records};
use crate::uid::Uid;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("the launcher ended before its network was set up")]
    LauncherGone,
    #[error("the launcher Pod uses the network of its node, which is not the guest's to change")]
    NodeNetwork,
    #[error("failed to enter the network namespace of the launcher")]
    Namespace(#[source] hostfs::Error),
    #[error("failed to read the network of the launcher Pod")]
    Observe(#[source] netlink::Error),
    #[error("the network of the virtual machine cannot be set up")]
    Plan(#[from] PlanError),
    #[error("failed to record the network of the launcher Pod")]
    Record(#[source] hostfs::Error),
    #[error("failed to set up the network of the launcher Pod")]
    Apply(#[source] netlink::Errors),
}

impl NetworkError {
    /// Whether trying again cannot help: the namespace was touched, or the VMI asks for what cannot be.
    pub(crate) fn is_critical(&self) -> bool {
        match self {
            NetworkError::LauncherGone | NetworkError::Namespace(_) | NetworkError::Observe(_) => false,
            NetworkError::NodeNetwork | NetworkError::Plan(_) | NetworkError::Record(_) | NetworkError::Apply(_) => {
                true
            }
        }
    }
}

/// Sets the network up and records it. Blocks.
pub(crate) fn configure(
    records: &Records,
    pod_uid: &Uid,
    vmi: &VirtualMachineInstance,
    launcher: ProcessId,
) -> Result<NetworkRecord, NetworkError> {
    let netns = netns_of(launcher)?;
    let observed = hostfs::ns::run_in_netns(&netns, netlink::observe)
        .map_err(NetworkError::Namespace)?
        .map_err(NetworkError::Observe)?;
    let plan = netplan::phase1(vmi, &observed)?;
    let interfaces = netplan::discover(vmi, &observed)?.into_iter().map(|interface| PodInterface {
        network: interface.network,
        link: interface.link.to_string(),
        pod_ips: interface.addresses,
    });
    let finished = NetworkRecord::Finished { interfaces: interfaces.collect() };
    if plan != NetPlan::default() {
        records.write_network(pod_uid, &NetworkRecord::Started).map_err(NetworkError::Record)?;
        hostfs::ns::run_in_netns(&netns, || netlink::apply(&plan))
            .map_err(NetworkError::Namespace)?
            .map_err(NetworkError::Apply)?;
    }
    records.write_network(pod_uid, &finished).map_err(NetworkError::Record)?;
    Ok(finished)
}

/// The network namespace of the launcher, and of no other process that got its pid.
fn netns_of(launcher: ProcessId) -> Result<OwnedFd, NetworkError> {
    let path = format!("/proc/{}/ns/net", launcher.pid);
    let netns = hostfs::ns::open_netns(&path).map_err(|err| match launcher.alive() {
        true => NetworkError::Namespace(err),
        false => NetworkError::LauncherGone,
    })?;
    if !launcher.alive() {
        return Err(NetworkError::LauncherGone); // whose namespace was opened cannot be told
    }
    if hostfs::ns::same(&path, "/proc/self/ns/net").map_err(NetworkError::Namespace)? {
        return Err(NetworkError::NodeNetwork);
    }
    Ok(netns)
}

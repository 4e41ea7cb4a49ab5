//! Phase 1 of a launcher's network: sets up a bridge and a tap device for each of the guest's interfaces, and NAT rules,
//! in its netns, once.
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
use crate::uid::PodUid;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("virt-launcher exited before its network was set up")]
    LauncherGone,
    #[error("the launcher Pod uses hostNetwork; refusing to change the network of the node")]
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
    /// Whether retrying cannot help: the netns was modified, or the VMI asks for something impossible.
    pub(crate) fn is_critical(&self) -> bool {
        match self {
            NetworkError::LauncherGone | NetworkError::Namespace(_) | NetworkError::Observe(_) => false,
            NetworkError::NodeNetwork | NetworkError::Plan(_) | NetworkError::Record(_) | NetworkError::Apply(_) => {
                true
            }
        }
    }
}

/// Configures the network and records it. Blocks.
pub(crate) fn configure(
    records: &Records,
    pod_uid: &PodUid,
    vmi: &VirtualMachineInstance,
    launcher: ProcessId,
) -> Result<NetworkRecord, NetworkError> {
    if vmi.spec.domain.devices.interfaces.is_empty() {
        let finished = NetworkRecord::Finished { interfaces: Vec::new() };
        records.write_network(pod_uid, &finished).map_err(NetworkError::Record)?;
        return Ok(finished);
    }
    let netns = netns_of(launcher)?;
    let observed = hostfs::ns::run_in_netns(&netns, netlink::observe)
        .map_err(NetworkError::Namespace)?
        .map_err(NetworkError::Observe)?;
    let plan = netplan::phase1(vmi, &observed)?;
    let interfaces = netplan::discover(vmi, &observed)?.into_iter().map(|interface| PodInterface {
        network: interface.network,
        link: interface.link.to_string(),
        pod_ips: interface.addresses,
        lease: interface.lease,
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

/// Opens the launcher's netns, and makes sure that its PID has not been reused.
fn netns_of(launcher: ProcessId) -> Result<OwnedFd, NetworkError> {
    let path = format!("/proc/{}/ns/net", launcher.pid);
    let netns = hostfs::ns::open_netns(&path).map_err(|err| match launcher.alive() {
        true => NetworkError::Namespace(err),
        false => NetworkError::LauncherGone,
    })?;
    if !launcher.alive() {
        return Err(NetworkError::LauncherGone); // the PID may have been reused before the netns was opened
    }
    if hostfs::ns::same(&path, "/proc/self/ns/net").map_err(NetworkError::Namespace)? {
        return Err(NetworkError::NodeNetwork);
    }
    // In a Pod our own namespace is not the node's, but that of the node's first process is. Elsewhere that may be
    // hidden from us, and says nothing.
    if hostfs::ns::same(&path, "/proc/1/ns/net").unwrap_or(false) {
        return Err(NetworkError::NodeNetwork);
    }
    Ok(netns)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Child, Command};
    use std::time::Duration;

    use netlink::blocking::Links;
    use serde_json::json;
    use test_support::until;

    use super::*;

    /// A process in its own netns, killed at the end of the test.
    struct Launcher(Child);

    impl Launcher {
        /// `None` if this user may not create namespaces.
        fn start() -> Option<(Self, ProcessId)> {
            let child = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().expect("unshare is installed");
            let pid = i32::try_from(child.id()).unwrap();
            let mut launcher = Launcher(child);
            let path = format!("/proc/{pid}/ns/net");
            // It sleeps for longer than this: where it has ended, it was refused.
            let started = until(Duration::from_secs(30), "a process in its own network namespace", || {
                let moved = !hostfs::ns::same(&path, "/proc/self/ns/net").unwrap_or(true);
                if moved { Some(true) } else { launcher.0.try_wait().unwrap().map(|_| false) }
            });
            if !started {
                test_support::skip("cannot make a network namespace; run as root");
                return None;
            }
            Some((launcher, ProcessId::of(pid).unwrap()))
        }

        fn stop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    impl Drop for Launcher {
        fn drop(&mut self) {
            let _already_ended = self.0.kill();
            let _already_waited = self.0.wait();
        }
    }

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        }}))
        .unwrap()
    }

    fn give_eth0(netns: &OwnedFd) {
        let made = hostfs::ns::run_in_netns(netns.as_fd(), || {
            let mut links = Links::new().unwrap();
            links.create_veth("eth0", "peer", None).unwrap();
            links.add_address("eth0", "10.244.1.7/24".parse().unwrap()).unwrap();
        });
        made.unwrap();
    }

    #[test]
    fn the_launchers_namespace_is_prepared_and_recorded_and_no_other() {
        let Some((mut launcher, process)) = Launcher::start() else { return };
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let pod = PodUid::new("pod-1").unwrap();

        let missing = configure(&records, &pod, &vmi(), process).unwrap_err();
        assert!(missing.is_critical() && matches!(missing, NetworkError::Plan(_)), "{missing}");
        assert_eq!(records.network(&pod).unwrap(), None, "nothing was begun");

        let netns = netns_of(process).unwrap();
        give_eth0(&netns);
        let finished = configure(&records, &pod, &vmi(), process).unwrap();
        assert_eq!(records.network(&pod).unwrap().as_ref(), Some(&finished));
        let NetworkRecord::Finished { interfaces } = finished else { panic!("{finished:?}") };
        assert_eq!(interfaces[0].pod_ips, ["10.244.1.7".parse::<std::net::IpAddr>().unwrap()]);
        let observed = hostfs::ns::run_in_netns(&netns, netlink::observe).unwrap().unwrap();
        assert!(observed.link("k6t-eth0").is_some() && observed.link("tap0").is_some());
        assert!(netlink::observe().unwrap().link("k6t-eth0").is_none(), "our own namespace is as it was");

        launcher.stop();
        let gone = configure(&records, &pod, &vmi(), process).unwrap_err();
        assert!(matches!(gone, NetworkError::LauncherGone), "{gone}");
    }

    #[test]
    fn a_pod_on_the_nodes_network_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let own = ProcessId::current().unwrap();
        let refused = configure(&records, &PodUid::new("pod-1").unwrap(), &vmi(), own).unwrap_err();
        assert!(matches!(refused, NetworkError::NodeNetwork), "{refused}");
    }

    #[test]
    fn a_failure_half_way_leaves_the_record_that_says_so() {
        let Some((_launcher, process)) = Launcher::start() else { return };
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let pod = PodUid::new("pod-1").unwrap();
        let netns = netns_of(process).unwrap();
        give_eth0(&netns);
        hostfs::ns::run_in_netns(&netns, || Links::new().unwrap().create_bridge("tap0").unwrap()).unwrap();
        let failed = configure(&records, &pod, &vmi(), process).unwrap_err();
        assert!(failed.is_critical() && matches!(failed, NetworkError::Apply(_)), "{failed}");
        assert_eq!(records.network(&pod).unwrap(), Some(NetworkRecord::Started));
    }
}

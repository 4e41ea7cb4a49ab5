//! Points of a start and of a stop, and how to recognise that they have been reached.

use std::time::Duration;

use anyhow::{Result, bail};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use drive::{Access, LIMIT};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};

/// In the order in which a VM passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Stored,
    InstanceExists,
    PodExists,
    PodBound,
    LauncherRuns,
    HandedOver,
    GuestRuns,
    StopAsked,
    InstanceDeleted,
    PodDeleted,
    InstanceFinal,
    PodGone,
    InstanceGone,
}

/// What is seen of one VM at a moment.
pub(super) struct Seen {
    pub(super) vm: Option<VirtualMachine>,
    pub(super) instance: Option<VirtualMachineInstance>,
    /// Its launchers' Pods, the newest first.
    pub(super) pods: Vec<Pod>,
}

impl Seen {
    pub(super) async fn look(client: &kube::Client, name: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let mut pods = pods.list(&ListParams::default().labels("kubevirt.io=virt-launcher")).await?.items;
        pods.retain(|pod| {
            let annotations = pod.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get("kubevirt.io/domain")).map(String::as_str) == Some(name)
        });
        pods.sort_by(|one, other| other.metadata.creation_timestamp.cmp(&one.metadata.creation_timestamp));
        Ok(Self {
            vm: Api::default_namespaced(client.clone()).get_opt(name).await?,
            instance: Api::default_namespaced(client.clone()).get_opt(name).await?,
            pods,
        })
    }

    pub(super) fn phase(&self) -> String {
        let status = self.instance.as_ref().and_then(|instance| instance.status.as_ref());
        status.and_then(|status| status.phase.as_ref()).map(ToString::to_string).unwrap_or_default()
    }

    /// The VM's printable status.
    pub(super) fn status(&self) -> String {
        let status = self.vm.as_ref().and_then(|vm| vm.status.as_ref());
        status.and_then(|status| status.printable_status.as_ref()).map(ToString::to_string).unwrap_or_default()
    }

    fn has_reached(&self, point: Point) -> bool {
        let (pod, phase) = (self.pods.first(), self.phase());
        let (pod_meta, instance_meta) = (pod.map(|pod| &pod.metadata), self.instance.as_ref().map(|one| &one.metadata));
        match point {
            Point::Stored => self.vm.is_some(),
            Point::InstanceExists => self.instance.is_some(),
            Point::PodExists => pod.is_some(),
            Point::PodBound => pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some(),
            Point::LauncherRuns => pod.is_some_and(|pod| pod_phase(pod) == "Running") || phase == "Running",
            Point::HandedOver => matches!(phase.as_str(), "Scheduled" | "Running"),
            Point::GuestRuns => phase == "Running",
            Point::StopAsked => true,
            Point::InstanceDeleted => is_deleted(instance_meta),
            Point::PodDeleted => is_deleted(pod_meta),
            Point::InstanceFinal => self.instance.as_ref().is_none_or(VirtualMachineInstance::is_final),
            Point::PodGone => pod.is_none(),
            Point::InstanceGone => self.instance.is_none(),
        }
    }
}

pub(super) fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether an object is being deleted, or gone already.
fn is_deleted(meta: Option<&ObjectMeta>) -> bool {
    meta.is_none_or(|meta| meta.deletion_timestamp.is_some())
}

/// Waits for a point of a VM; one that is passed in a moment is as good as the next.
pub(super) async fn reach(cluster: &Access, name: &str, point: Point) -> Result<()> {
    let client = cluster.client().await?;
    let started = std::time::Instant::now();
    loop {
        if Seen::look(&client, name).await?.has_reached(point) {
            return Ok(());
        }
        if started.elapsed() > LIMIT {
            bail!("{name} was never seen at {point:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! One watch per kind, shared by all controllers.

use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use informer::{Informer, Store};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use machinery::meta::controller_of;
use tokio_util::sync::CancellationToken;

/// Objects by the UID of the one that controls them.
pub(crate) const BY_CONTROLLER: &str = "controller";

#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) vms: Store<VirtualMachine>,
    pub(crate) vmis: Store<VirtualMachineInstance>,
    pub(crate) pods: Store<Pod>,
    pub(crate) revisions: Store<ControllerRevision>,
    pub(crate) kubevirts: Store<KubeVirt>,
}

impl Stores {
    pub(crate) fn start(client: &Client, stop: &CancellationToken) -> Self {
        let (client, stop) = (|| client.clone(), || stop.clone());
        let controller = |meta: &ObjectMeta| controller_of(meta).map(|owner| owner.uid.clone()).into_iter().collect();
        Self {
            vms: Informer::new().start(Api::all(client()), stop()),
            vmis: Informer::new().start(Api::all(client()), stop()),
            // Launcher Pods and their helpers carry the label; the rest of the cluster's Pods is not our business.
            pods: Informer::new()
                .labels(api::labels::APP)
                .index(BY_CONTROLLER, move |pod: &Pod| controller(&pod.metadata))
                .start(Api::all(client()), stop()),
            revisions: Informer::new()
                .index(BY_CONTROLLER, move |revision: &ControllerRevision| controller(&revision.metadata))
                .start(Api::all(client()), stop()),
            kubevirts: Informer::new().start(Api::all(client()), stop()),
        }
    }

    /// Waits until every cache is complete. False if the watches were stopped before that.
    pub(crate) async fn synced(&self) -> bool {
        let all = tokio::join!(
            self.vms.synced(),
            self.vmis.synced(),
            self.pods.synced(),
            self.revisions.synced(),
            self.kubevirts.synced()
        );
        matches!(all, (true, true, true, true, true))
    }
}

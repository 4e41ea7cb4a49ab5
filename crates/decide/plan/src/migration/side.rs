//! The two sides of a migration, in the VMI's migration state. Node and Pod are distinct types: virt-handler would look
//! for a guest in vain if they, or the sides, were mixed up.

use api::v1::VirtualMachineInstanceMigrationSourceState as SourceState;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use k8s_openapi::api::core::v1::Pod;
use machinery::names::{NodeName, PodName};

use crate::{meta, pods};

/// One side: a launcher Pod and its node.
pub(super) struct Side {
    node: Option<NodeName>,
    pod: PodName,
}

impl Side {
    /// The Pod that runs the VMI's guest, on the node that the VMI reports.
    pub(super) fn running(vmi: &VirtualMachineInstance, pod: &Pod) -> Self {
        let node = vmi.status.as_ref().and_then(|status| status.node_name.clone());
        Self { node: node.map(NodeName::new), pod: name(pod) }
    }

    /// The Pod that is to receive the guest.
    pub(super) fn receiving(pod: &Pod) -> Self {
        Self { node: pods::node_name(pod).map(NodeName::new), pod: name(pod) }
    }

    /// What the sender of a decentralized migration has published; `None` if it is incomplete.
    pub(super) fn published(source: &SourceState) -> Option<Self> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Some(Self { node: Some(NodeName::new(set(&source.node)?)), pod: PodName::new(set(&source.pod)?) })
    }

    pub(super) fn set_source(self, state: &mut State) {
        state.source_node = self.node.map(String::from);
        state.source_pod = Some(self.pod.into());
    }

    pub(super) fn set_target(self, state: &mut State) {
        state.target_node = self.node.map(String::from);
        state.target_pod = Some(self.pod.into());
    }
}

fn name(pod: &Pod) -> PodName {
    PodName::new(meta::name(&pod.metadata))
}

//! Which nodes a launcher Pod may go to.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::labels;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm};

/// Labels the node must carry. Later ones win: an instance may overrule the cluster, nobody overrules `schedulable`
/// by accident because it comes first and users have no reason to name it.
pub(crate) fn node_selector(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> BTreeMap<String, String> {
    let architecture = vmi.spec.architecture.as_deref().unwrap_or_else(|| config.default_architecture());
    let mut selector = BTreeMap::from([
        (labels::SCHEDULABLE.to_owned(), "true".to_owned()),
        (labels::ARCH.to_owned(), architecture.to_lowercase()),
    ]);
    selector.extend(config.node_selectors());
    selector.extend(vmi.spec.node_selector.clone());
    selector
}

/// The instance's own affinity, narrowed to nodes whose CPU the cluster still counts as current if the guest is to see
/// the host's CPU.
pub(crate) fn affinity(vmi: &VirtualMachineInstance) -> Option<Affinity> {
    let affinity = vmi.spec.affinity.clone();
    if !wants_host_model(vmi) {
        return affinity;
    }
    let current = NodeSelectorRequirement {
        key: labels::OBSOLETE_HOST_MODEL.to_owned(),
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    Some(require(affinity.unwrap_or_default(), current))
}

fn wants_host_model(vmi: &VirtualMachineInstance) -> bool {
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref()).unwrap_or_default();
    matches!(model, "" | "host-model")
}

/// Adds a requirement to every required term: terms are alternatives, so one left out would be a way around it.
fn require(mut affinity: Affinity, requirement: NodeSelectorRequirement) -> Affinity {
    let node = affinity.node_affinity.get_or_insert_default();
    let required = node.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(requirement.clone());
    }
    affinity
}

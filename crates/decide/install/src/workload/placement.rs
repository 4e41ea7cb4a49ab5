//! Which nodes Pods of an installation run on.

use api::v1::NodePlacement;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity,
    PodSpec, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};

use super::selector;
use crate::Settings;
use crate::object::Texts;

/// Labels and taints of nodes of the control plane.
pub(crate) const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const WORKER: &str = "node-role.kubernetes.io/worker";
/// Nodes that can run our images, unless the settings say otherwise.
pub(crate) const IMAGES: [(&str, &str); 2] = [(OS, "linux"), (ARCHITECTURE, AMD64)];
pub(crate) const OS: &str = "kubernetes.io/os";
pub(crate) const ARCHITECTURE: &str = "kubernetes.io/arch";
/// The architecture of our images.
pub(crate) const AMD64: &str = "amd64";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Spreads replicas over nodes and zones if possible; on control plane nodes, unless the settings
/// select others.
pub(super) fn infra(spec: &mut PodSpec, app: &str, settings: &Settings) {
    let control_plane = control_plane();
    place(spec, settings.infra.as_ref().unwrap_or(&control_plane));
    let affinity = spec.affinity.get_or_insert_default();
    affinity.pod_anti_affinity.get_or_insert_with(|| apart(app));
    spec.topology_spread_constraints = Some(vec![TopologySpreadConstraint {
        label_selector: Some(selector(app)),
        max_skew: 1,
        topology_key: ZONE.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    }]);
}

/// On every Linux node that our images are for, unless the settings select others.
pub(super) fn workloads(spec: &mut PodSpec, settings: &Settings) {
    place(spec, settings.workloads.as_ref().unwrap_or(&NodePlacement::default()));
}

fn place(spec: &mut PodSpec, placement: &NodePlacement) {
    spec.node_selector = Some(node_selector(placement));
    spec.affinity = placement.affinity.clone();
    let critical = Toleration {
        key: Some("CriticalAddonsOnly".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    spec.tolerations = Some([critical].into_iter().chain(placement.tolerations.iter().cloned()).collect());
}

/// The labels of nodes that Pods are placed on.
pub(crate) fn node_selector(placement: &NodePlacement) -> Texts {
    let mut node_selector = placement.node_selector.clone();
    for (key, value) in IMAGES {
        node_selector.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    node_selector
}

fn control_plane() -> NodePlacement {
    let exists = |key: &str, operator: &str| NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: None,
        }]),
        match_fields: None,
    };
    let node_affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: CONTROL_PLANE.iter().map(|key| exists(key, "Exists")).collect(),
        }),
        preferred_during_scheduling_ignored_during_execution: Some(vec![PreferredSchedulingTerm {
            preference: exists(WORKER, "DoesNotExist"),
            weight: 100,
        }]),
    };
    let tolerated = |key: &&str| Toleration {
        key: Some((*key).to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    };
    NodePlacement {
        affinity: Some(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() }),
        tolerations: CONTROL_PLANE.iter().map(tolerated).collect(),
        ..NodePlacement::default()
    }
}

fn apart(app: &str) -> PodAntiAffinity {
    let term = PodAffinityTerm {
        label_selector: Some(selector(app)),
        topology_key: api::labels::HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    };
    PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
            pod_affinity_term: term,
            weight: 100,
        }]),
        ..PodAntiAffinity::default()
    }
}

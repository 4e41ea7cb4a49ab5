use std::sync::Arc;

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What the caches contain about one node.
#[derive(Clone, Debug)]
pub struct World {
    pub name: String,
    pub node: Option<Arc<Node>>,
    /// If the node [is silent](super::is_silent): every VMI that was handed over to it.
    pub vmis: Vec<Arc<VirtualMachineInstance>>,
    pub now: Time,
}

/// The same read live, with the node's guests and the cluster's virt-handlers.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub node: Option<Node>,
    /// Every VMI with the node's label.
    pub vmis: Vec<VirtualMachineInstance>,
    /// At least every Pod on the node that one of these VMIs controls.
    pub pods: Vec<Pod>,
    pub agents: Agents,
}

/// The virt-handlers of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// Their Pods.
    pub pods: Vec<Pod>,
    /// The DaemonSets that run them on every node.
    pub daemon_sets: Vec<DaemonSet>,
}

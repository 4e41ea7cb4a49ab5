//! KubeVirt: the installation.

use super::condition::KubeVirtCondition;
use super::configuration::KubeVirtConfiguration;
use super::enums::KubeVirtPhase;
use crate::kind::{null_as_empty, resource};
use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, Toleration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

resource! {
    /// The installation itself: its version, placement and cluster-wide configuration.
    KubeVirt, "kubevirts", spec: KubeVirtSpec, status: KubeVirtStatus
}

/// How the system is installed and configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<KubeVirtConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customize_components: Option<CustomizeComponents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra: Option<ComponentConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronization_port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninstall_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<ComponentConfig>,
}

/// How certificates are renewed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtCertificateRotateStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed: Option<KubeVirtSelfSignConfiguration>,
}

/// Lifetimes of the certificates the operator signs itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtSelfSignConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_overlap_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_rotate_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_rotate_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<CertConfig>,
}

/// Lifetime of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// Changes to what the operator installs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomizeComponents {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Flags>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub patches: Vec<CustomizeComponentsPatch>,
}

/// Command line flags of the components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Flags {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub api: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub controller: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub handler: BTreeMap<String, String>,
}

/// A patch to one installed object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomizeComponentsPatch {
    pub patch: String,
    pub resource_name: String,
    pub resource_type: String,
    #[serde(rename = "type")]
    pub type_: String,
}

/// Replicas and placement of a group of components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ComponentConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_placement: Option<NodePlacement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u8>,
}

/// Where Pods of a component may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodePlacement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub tolerations: Vec<Toleration>,
}

/// How running instances get the new version after an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtWorkloadUpdateStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_eviction_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_eviction_size: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub workload_update_methods: Vec<String>,
}

/// What is known about the installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<KubeVirtCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub generations: Vec<GenerationStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_deployment_config: Option<String>,
    #[serde(rename = "observedDeploymentID", skip_serializing_if = "Option::is_none")]
    pub observed_deployment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kube_virt_registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kube_virt_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated_virtual_machine_instance_workloads: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<KubeVirtPhase>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub synchronization_addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_deployment_config: Option<String>,
    #[serde(rename = "targetDeploymentID", skip_serializing_if = "Option::is_none")]
    pub target_deployment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kube_virt_registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kube_virt_version: Option<String>,
}

/// The last generation of an installed object that was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GenerationStatus {
    pub group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    pub last_generation: i64,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub resource: String,
}

//! What an installation starts with: CRDs, the namespace, the priority class, and the KubeVirt object.

use std::sync::LazyLock;

use api::v1::{KubeVirt, KubeVirtSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::object::{mark, of_cluster, of_installation, texts, typed};
use crate::{Settings, names};

/// Below Kubernetes' own critical Pods and above all others.
const PRIORITY: i32 = 1_000_000_000;

/// Computed once: they are large and constant.
static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(api::crds);

/// The CRDs of all kinds.
pub(crate) fn definitions(settings: &Settings) -> Vec<Value> {
    DEFINITIONS.iter().map(|definition| mark(definition.clone(), settings)).collect()
}

/// The installation's namespace. virt-handler is privileged, so the namespace must allow such Pods.
pub(crate) fn namespace(settings: &Settings) -> Value {
    let labels = texts([(api::labels::APP, ""), ("pod-security.kubernetes.io/enforce", "privileged")]);
    let metadata = ObjectMeta { labels: Some(labels), ..of_cluster(&settings.namespace) };
    typed(&Namespace { metadata, ..Namespace::default() }, settings)
}

pub(crate) fn priority_class(settings: &Settings) -> Value {
    let class = PriorityClass {
        metadata: of_cluster(names::PRIORITY_CLASS),
        value: PRIORITY,
        description: Some("This priority class should be used for core kubevirt components only.".to_owned()),
        ..PriorityClass::default()
    };
    typed(&class, settings)
}

/// The object by which users configure the installation. It belongs to them and has no labels of ours.
pub(crate) fn kubevirt(settings: &Settings) -> Value {
    // No image tag: virt-operator's own version decides, so that an update brings new images.
    let spec = KubeVirtSpec {
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        image_pull_secrets: settings.image_pull_secrets.clone(),
        infra: component(settings.infra.as_ref(), settings.replicas),
        workloads: component(settings.workloads.as_ref(), None),
        // Protects VMs from being deleted by accident.
        uninstall_strategy: Some("BlockUninstallIfWorkloadsExist".to_owned()),
        ..KubeVirtSpec::default()
    };
    let kubevirt = KubeVirt { metadata: of_installation(names::KUBEVIRT, settings), spec, status: None };
    let mut value = serde_json::to_value(kubevirt).unwrap_or_default();
    value["apiVersion"] = <KubeVirt as k8s_openapi::Resource>::API_VERSION.into();
    value["kind"] = <KubeVirt as k8s_openapi::Resource>::KIND.into();
    value
}

fn component(placement: Option<&api::v1::NodePlacement>, replicas: Option<u8>) -> Option<api::v1::ComponentConfig> {
    let given = placement.is_some() || replicas.is_some();
    given.then(|| api::v1::ComponentConfig { node_placement: placement.cloned(), replicas })
}

//! The environment of a VMI that its Pods depend on.
//!
//! Rendering does no I/O: the caller looks these values up and passes them in. Every value has a neutral default: a
//! namespace without quotas, claims or extra networks.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, ResourceQuota};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::network;

/// The input for rendering Pods besides the VMI and the cluster configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Context {
    /// Claims in the VMI's namespace, keyed by name. A volume whose claim is missing here cannot be rendered.
    pub claims: BTreeMap<String, Claim>,
    /// Labels of the VMI's namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// Which limits the quotas of the namespace cover.
    pub quotas: Quotas,
    /// The device plugin resource of each network whose NetworkAttachmentDefinition names one, keyed by the network's
    /// name in the VMI. Only used while the feature gate ExternalNetResourceInjection is disabled.
    pub network_resources: BTreeMap<String, String>,
    /// The claim with the guest's TPM, NVRAM and block tracking; only needed by VMIs that have such state.
    pub backend_claim: Option<String>,
    /// ConfigMaps of hook sidecars that are known to be missing.
    pub missing_config_maps: BTreeSet<String>,
    /// Settings of this installation for launchers.
    pub launcher: LauncherSettings,
}

/// The properties of a claim that Pods depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Claim {
    /// UID of the claim.
    pub uid: String,
    /// Whether its volume mode is Block.
    pub block: bool,
    /// Whether several nodes can write to it at once.
    pub shared: bool,
}

impl Claim {
    /// The properties of one claim.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        Claim {
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            block: spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block"),
            shared: modes.iter().any(|mode| mode == "ReadWriteMany"),
        }
    }
}

/// Which limits a namespace's quotas cover: Pods without them would be rejected there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Quotas {
    /// Some quota covers CPU limits.
    pub limits_cpu: bool,
    /// Some quota covers memory limits.
    pub limits_memory: bool,
}

impl Quotas {
    /// The combination of all quotas of one namespace.
    pub fn of<'a>(quotas: impl IntoIterator<Item = &'a ResourceQuota>) -> Self {
        quotas.into_iter().filter_map(|quota| quota.spec.as_ref()?.hard.as_ref()).fold(Self::default(), |all, hard| {
            Self {
                limits_cpu: all.limits_cpu || hard.contains_key("limits.cpu"),
                limits_memory: all.limits_memory || hard.contains_key("limits.memory"),
            }
        })
    }
}

/// Settings of an installation for launchers, beyond the KubeVirt object's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LauncherSettings {
    /// The pull secret of the launcher's image.
    pub pull_secret: Option<String>,
    /// The minimum timeout for QEMU's start; VMIs are spread over the next two minutes.
    pub qemu_timeout_seconds: u64,
    /// The image of hook sidecars without one.
    pub sidecar_shim_image: String,
}

impl Default for LauncherSettings {
    fn default() -> Self {
        LauncherSettings {
            pull_secret: None,
            qemu_timeout_seconds: 240,
            sidecar_shim_image: concat!("ferrovirt/sidecar-shim:v", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl Context {
    /// Sets the labels and quotas of the VMI's namespace.
    pub fn with_namespace<'a>(
        mut self,
        namespace: Option<&Namespace>,
        quotas: impl IntoIterator<Item = &'a ResourceQuota>,
    ) -> Self {
        self.namespace_labels = namespace.and_then(|n| n.metadata.labels.clone()).unwrap_or_default();
        self.quotas = Quotas::of(quotas);
        self
    }

    /// Adds a claim.
    pub fn with_claim(mut self, claim: &PersistentVolumeClaim) -> Self {
        self.claims.insert(claim.metadata.name.clone().unwrap_or_default(), Claim::of(claim));
        self
    }

    /// Extracts from an API object what Pods of the VMI depend on. Returns whether the object may be relevant: other
    /// kinds, and objects in other namespaces, are ignored.
    pub fn learn(&mut self, vmi: &VirtualMachineInstance, object: &Value) -> Result<bool, serde_json::Error> {
        let own = vmi.metadata.namespace.as_deref().unwrap_or("default");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(own);
        match object["kind"].as_str().unwrap_or_default() {
            "PersistentVolumeClaim" if namespace == own => {
                let claim = PersistentVolumeClaim::deserialize(object)?;
                let state_of = machinery::meta::label(&claim.metadata, api::labels::PERSISTENT_STATE_FOR);
                if state_of.is_some() && state_of == vmi.metadata.name.as_deref() {
                    self.backend_claim = claim.metadata.name.clone();
                }
                *self = std::mem::take(self).with_claim(&claim);
            }
            "Namespace" if object["metadata"]["name"] == own => {
                self.namespace_labels = Namespace::deserialize(object)?.metadata.labels.unwrap_or_default();
            }
            "ResourceQuota" if namespace == own => {
                let more = Quotas::of([&ResourceQuota::deserialize(object)?]);
                self.quotas.limits_cpu |= more.limits_cpu;
                self.quotas.limits_memory |= more.limits_memory;
            }
            "NetworkAttachmentDefinition" => self.learn_network(vmi, namespace, object),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn learn_network(&mut self, vmi: &VirtualMachineInstance, namespace: &str, object: &Value) {
        let Some(resource) = object["metadata"]["annotations"][network::RESOURCE_NAME].as_str() else { return };
        let own = vmi.metadata.namespace.as_deref().unwrap_or("default");
        let joined = vmi.spec.networks.iter().filter_map(|n| Some((n, n.source().multus()?)));
        for (network, multus) in joined {
            if network::definition(own, &multus.network_name)
                == (namespace, object["metadata"]["name"].as_str().unwrap_or_default())
            {
                self.network_resources.insert(network.name.clone(), resource.to_owned());
            }
        }
    }
}

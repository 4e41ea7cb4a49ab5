//! The settings of an installation.

use api::v1::NodePlacement;
use k8s_openapi::api::core::v1::LocalObjectReference;
use serde::Serialize;
use sha1::{Digest as _, Sha1};

use crate::former::{FORMER, Former};
use crate::names;

/// The default number of replicas of a Deployment.
const REPLICAS: i32 = 2;

/// The settings of an installation.
///
/// Its identifier is a hash of them; fields that must not cause a roll-out are not included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Namespace of everything that has one.
    pub namespace: String,
    /// Registry and path of the images, without the last part of their names.
    pub image_prefix: String,
    /// Tag of the images.
    pub image_tag: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// Image pull secrets in the namespace.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Replicas of each Deployment.
    pub replicas: Option<u8>,
    /// Number of nodes that run VMs. virt-api is scaled by it, unless `replicas` is set.
    #[serde(skip)]
    pub nodes: Option<u32>,
    /// Where virt-api, virt-controller and virt-operator run; on nodes of the control plane if not set.
    pub infra: Option<NodePlacement>,
    /// Where virt-handler runs, and hence VMs; on every amd64 Linux node if not set.
    pub workloads: Option<NodePlacement>,
    /// The NetworkAttachmentDefinition that virt-handler's Pods join for migrations, in the namespace of the installation or as
    /// `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")] // identifiers of installations without one stay as they are
    pub migration_network: Option<String>,
    /// The kubelets' root directory.
    pub kubelet_root: String,
    /// Whether each virt-handler requests a certificate for its node; otherwise all share one.
    pub node_certificates: bool,
    /// The CAs, in PEM, by which the API server trusts our webhooks and our aggregated API.
    #[serde(skip)]
    pub ca_bundle: Option<String>,
    /// Objects of earlier versions, to be deleted.
    #[serde(skip)]
    pub former: &'static [Former],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            image_prefix: "ferrovirt".to_owned(),
            image_tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            image_pull_policy: "IfNotPresent".to_owned(),
            image_pull_secrets: vec![],
            replicas: None,
            nodes: None,
            infra: None,
            workloads: None,
            migration_network: None,
            kubelet_root: names::host::KUBELET_ROOT.to_owned(),
            node_certificates: false,
            ca_bundle: None,
            former: FORMER,
        }
    }
}

impl Settings {
    /// The image of virt-api, virt-controller and virt-operator, which are one program.
    pub fn image(&self) -> String {
        self.image_of("ferrovirt")
    }

    /// The image of launcher Pods, and of virt-handler.
    pub fn launcher_image(&self) -> String {
        self.image_of("virt-launcher")
    }

    fn image_of(&self, name: &str) -> String {
        match self.image_prefix.trim_end_matches('/') {
            "" => format!("{name}:{}", self.image_tag),
            prefix => format!("{prefix}/{name}:{}", self.image_tag),
        }
    }

    /// Identifier of the result of these settings. Two installations with the same identifier have the same Pods.
    pub fn identifier(&self) -> String {
        // Plain data always serializes; an empty text would only cause a roll-out.
        let text = serde_json::to_string(self).unwrap_or_default();
        Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Replicas of virt-api: one for a single node, else two, and one more for every ten nodes from thirty on.
    pub(crate) fn api_replicas(&self) -> i32 {
        let by_nodes = match self.nodes {
            None => REPLICAS,
            Some(0 | 1) => 1,
            Some(nodes) => i32::try_from(nodes / 10).unwrap_or(i32::MAX).max(REPLICAS),
        };
        self.replicas.map_or(by_nodes, i32::from)
    }

    /// Replicas of virt-controller and of virt-operator.
    pub(crate) fn infra_replicas(&self) -> i32 {
        self.replicas.map_or(REPLICAS, i32::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virt_api_grows_with_the_cluster() {
        let replicas = |nodes| Settings { nodes, ..Settings::default() }.api_replicas();
        assert_eq!(
            [None, Some(0), Some(1), Some(2), Some(29), Some(30), Some(100)].map(replicas),
            [2, 1, 1, 2, 2, 3, 10]
        );
        let fixed = Settings { nodes: Some(100), replicas: Some(3), ..Settings::default() };
        assert_eq!((fixed.api_replicas(), fixed.infra_replicas()), (3, 3));
    }

    #[test]
    fn the_identifier_follows_what_pods_are_made_of() {
        let base = Settings::default();
        assert_eq!(base.identifier().len(), 40);
        let tagged = Settings { image_tag: "v2".to_owned(), ..base.clone() };
        assert_ne!(tagged.identifier(), base.identifier());
        let joined = Settings { migration_network: Some("fast".to_owned()), ..base.clone() };
        assert_ne!(joined.identifier(), base.identifier());
        // Renewed CAs and new nodes cause no roll-out.
        let renewed = Settings { ca_bundle: Some("pem".to_owned()), nodes: Some(5), ..base.clone() };
        assert_eq!(renewed.identifier(), base.identifier());
    }

    #[test]
    fn an_image_may_be_without_a_prefix() {
        let image = |prefix: &str| {
            Settings { image_prefix: prefix.to_owned(), image_tag: "t".to_owned(), ..Settings::default() }.image()
        };
        assert_eq!(
            [image("a.example/b"), image("a.example/b/"), image("")],
            ["a.example/b/ferrovirt:t", "a.example/b/ferrovirt:t", "ferrovirt:t"]
        );
    }
}

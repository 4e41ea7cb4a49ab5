//! The kinds of an installation's objects, and where the API serves them.

use kube::api::{Api, ApiResource, DynamicObject};

/// A kind that virt-operator manages or reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// Whether its objects are in the installation's namespace.
    pub namespaced: bool,
}

const fn of_cluster(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", kind, plural, namespaced: false }
}

const fn of_namespace(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", kind, plural, namespaced: true }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Kinds whose objects have the label of virt-operator.
pub(crate) const MANAGED: &[Kind] = &[
    of_cluster("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
    of_cluster("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    of_cluster(RBAC, "ClusterRole", "clusterroles"),
    of_cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    of_cluster(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    of_cluster(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    of_cluster(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    of_cluster(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    of_cluster("apiregistration.k8s.io", "APIService", "apiservices"),
    of_namespace("", "ConfigMap", "configmaps"),
    of_namespace("", "Secret", "secrets"),
    of_namespace("", "ServiceAccount", "serviceaccounts"),
    of_namespace("", "Service", "services"),
    of_namespace("", "Pod", "pods"),
    of_namespace("apps", "DaemonSet", "daemonsets"),
    of_namespace("apps", "Deployment", "deployments"),
    of_namespace("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    of_namespace(RBAC, "Role", "roles"),
    of_namespace(RBAC, "RoleBinding", "rolebindings"),
];

/// The installation itself, in any namespace.
pub(crate) const KUBEVIRT: Kind =
    Kind { group: api::v1::GROUP, version: "v1", kind: "KubeVirt", plural: "kubevirts", namespaced: true };

const NAMESPACE: Kind = of_cluster("", "Namespace", "namespaces");

impl Kind {
    pub fn resource(&self) -> ApiResource {
        let api_version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version,
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Where its objects are; in this namespace, if they have one.
    pub fn api(&self, client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(client.clone(), &self.resource()),
            namespace => Api::namespaced_with(client.clone(), namespace, &self.resource()),
        }
    }
}

/// The kinds of an installation's cluster-scoped objects.
pub fn of_clusters() -> impl Iterator<Item = &'static Kind> {
    MANAGED.iter().filter(|kind| !kind.namespaced)
}

/// The kind of an object of an installation.
pub fn of_kind(group: &str, kind: &str) -> Option<&'static Kind> {
    let all = MANAGED.iter().chain([&KUBEVIRT, &NAMESPACE]);
    all.into_iter().find(|known| known.group == group && known.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::rights::{Identity, Program};
    use install::{Programs, Settings};

    #[test]
    fn every_object_of_an_installation_is_of_a_known_kind() {
        let program = |name| Program { name, identity: Identity::Account, rights: vec![] };
        let programs = Programs { api: program("a"), controller: program("b"), handler: program("c") };
        let settings = Settings::default();
        let all = [install::managed(&settings, &programs), install::with_operator(&settings, &programs)].concat();
        for manifest in all {
            let id = operate::Id::of(&manifest.object);
            let kind = of_kind(&id.group, &id.kind).unwrap_or_else(|| panic!("{id}"));
            assert_eq!(kind.resource().api_version, manifest.object["apiVersion"]);
            assert_eq!(kind.namespaced, !id.namespace.is_empty(), "{id}");
        }
    }
}

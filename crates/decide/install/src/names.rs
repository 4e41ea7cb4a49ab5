//! Names that several parts of an installation share, because one creates an object and others mount or read it. They are
//! KubeVirt's, so that scripts and dashboards written for it work.

/// The default namespace of the installation.
pub const NAMESPACE: &str = api::config::DEFAULT_INSTALL_NAMESPACE;
/// The KubeVirt object of the installation.
pub const KUBEVIRT: &str = "kubevirt";
/// The priority class of Ferrovirt's own Pods.
pub const PRIORITY_CLASS: &str = "kubevirt-cluster-critical";
/// The namespace of Kubernetes' own objects, with the ConfigMap of CAs that aggregated API servers trust.
pub const KUBE_SYSTEM: &str = "kube-system";
/// The role there that grants reading this ConfigMap.
pub const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";
/// The binding of this role to virt-api.
pub const AUTHENTICATION_READER_BINDING: &str = "kubevirt-apiserver-authentication-reader";
/// The group of the aggregated API, with the versions it is served in.
pub const SUBRESOURCES_GROUP: &str = api::resources::SUBRESOURCES_GROUP;
/// See [`SUBRESOURCES_GROUP`].
pub const SUBRESOURCES_VERSIONS: &[&str] = &["v1", "v1alpha3"];

/// Label on every object of an installation but the KubeVirt object; the value is the namespace of the installation. Names and
/// all other labels are KubeVirt's, so only this one tells its objects from ours.
pub const INSTALLATION_LABEL: &str = "ferrovirt.io/installation";
/// Annotation on what virt-operator applies, with the hash of it.
pub const HASH: &str = "ferrovirt.io/manifest-hash";

/// Our programs: names of workloads, and values of the label [`api::labels::APP`] on their Pods.
pub mod app {
    /// The aggregated API server and webhooks.
    pub const API: &str = "virt-api";
    /// The cluster-wide controllers.
    pub const CONTROLLER: &str = "virt-controller";
    /// The node agent.
    pub const HANDLER: &str = api::labels::app::HANDLER;
    /// Installs and updates the others.
    pub const OPERATOR: &str = "virt-operator";
}

/// Service accounts. A program's roles have the name of its account.
pub mod account {
    /// virt-api's.
    pub const API: &str = "kubevirt-apiserver";
    /// virt-controller's.
    pub const CONTROLLER: &str = "kubevirt-controller";
    /// virt-handler's.
    pub const HANDLER: &str = "kubevirt-handler";
    /// virt-operator's.
    pub const OPERATOR: &str = "kubevirt-operator";
}

/// Services.
pub mod service {
    /// virt-api, for the API server: aggregation and webhooks.
    pub const API: &str = super::app::API;
    /// Has no address, but names virt-controller's certificate.
    pub const CONTROLLER: &str = super::app::CONTROLLER;
    /// Webhooks of virt-operator.
    pub const OPERATOR_WEBHOOK: &str = "kubevirt-operator-webhook";
    /// All Pods with metrics. Headless.
    pub const METRICS: &str = "kubevirt-prometheus-metrics";
}

/// Label on Pods with metrics. The value is empty.
pub const METRICS_LABEL: &str = "prometheus.kubevirt.io";

/// Ports.
pub mod port {
    /// The port of Services.
    pub const SERVICE: i32 = 443;
    /// virt-api's aggregated API, webhooks, health and metrics; health and metrics of the other programs.
    pub const HTTPS: i32 = 8443;
    /// virt-operator's webhooks.
    pub const OPERATOR_WEBHOOK: i32 = 8444;
    /// virt-handler, for virt-api: console, VNC, pause and more.
    pub const HANDLER: i32 = launcher_contract::HANDLER_PORT as i32;
}

/// Paths of health checks.
pub mod health {
    /// virt-api, without authentication.
    pub const API: &str = "/apis/subresources.kubevirt.io/v1/healthz";
    /// All programs.
    pub const HEALTHZ: &str = "/healthz";
    /// virt-controller: succeeds as soon as it serves, with and without the lease.
    pub const LEADER: &str = "/leader";
}

/// ConfigMaps.
pub mod config_map {
    /// The CAs that our programs trust among each other, under the key [`CA_BUNDLE`].
    pub const CA: &str = "kubevirt-ca";
    /// PEM certificates, the current one first.
    pub const CA_BUNDLE: &str = "ca-bundle";
}

/// Secrets, all of type `kubernetes.io/tls`.
pub mod secret {
    /// The CA itself, with its key. Only virt-operator reads it.
    pub const CA: &str = "kubevirt-ca";
    /// virt-api's, as a server.
    pub const API: &str = "kubevirt-virt-api-certs";
    /// virt-controller's, as a server.
    pub const CONTROLLER: &str = "kubevirt-controller-certs";
    /// virt-operator's, as a server. It creates it and reads it through the API, so it mounts nothing.
    pub const OPERATOR: &str = "kubevirt-operator-certs";
    /// virt-handler's, as a server, and as a client of other virt-handlers.
    pub const HANDLER_SERVER: &str = "kubevirt-virt-handler-server-certs";
    /// virt-api's, as a client of virt-handlers.
    pub const HANDLER_CLIENT: &str = "kubevirt-virt-handler-certs";
}

/// Keys in a Secret of type `kubernetes.io/tls`, hence names of files.
pub mod tls {
    /// The certificate.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub const KEY: &str = "tls.key";
}

/// Where Secrets and ConfigMaps are mounted.
pub mod mount {
    /// [`config_map::CA`](super::config_map::CA), in every program that checks a peer of ours.
    pub const CA: &str = "/etc/kubevirt/ca";
    /// [`secret::API`](super::secret::API).
    pub const API: &str = "/etc/virt-api/certificates";
    /// [`secret::CONTROLLER`](super::secret::CONTROLLER).
    pub const CONTROLLER: &str = "/etc/virt-controller/certificates";
    /// [`secret::HANDLER_SERVER`](super::secret::HANDLER_SERVER), in virt-handler.
    pub const HANDLER_SERVER: &str = "/etc/virt-handler/servercertificates";
    /// [`secret::HANDLER_CLIENT`](super::secret::HANDLER_CLIENT), in virt-api.
    pub const HANDLER_CLIENT: &str = "/etc/virt-handler/clientcertificates";
}

/// Directories of a node, and where virt-handler has them.
pub mod host {
    /// The kubelet's root, unless it was given another one.
    pub const KUBELET_ROOT: &str = "/var/lib/kubelet";
    /// Below the kubelet's root: directories of Pods.
    pub const KUBELET_PODS: &str = "pods";
    /// Where virt-handler has them: a short path, since those of Unix sockets are limited to 107 bytes.
    pub const PODS: &str = "/pods";
    /// Below the kubelet's root: sockets of device plugins.
    pub const KUBELET_DEVICE_PLUGINS: &str = "device-plugins";
    /// Where virt-handler has them, whatever the kubelet's root is.
    pub const DEVICE_PLUGINS: &str = launcher_contract::devices::KUBELET_PLUGINS;
    /// Below the kubelet's root: seccomp profiles.
    pub const KUBELET_SECCOMP: &str = "seccomp";
    /// Where virt-handler has them, whatever the kubelet's root is.
    pub const SECCOMP: &str = "/var/lib/kubelet/seccomp";
    /// Shared with launchers; on the node and in virt-handler.
    pub const SHARE: &str = launcher_contract::paths::SHARE;
    /// virt-handler's records, which survive its Pod; on the node and in virt-handler. Launchers have a directory of this
    /// name inside their Pods, which is another one.
    pub const PRIVATE: &str = "/var/run/kubevirt-private";
}

/// Environment of our Pods.
pub mod environment {
    /// The node's name, in virt-handler.
    pub const NODE_NAME: &str = "NODE_NAME";
    /// The Pod's address, in virt-handler.
    pub const POD_IP: &str = "MY_POD_IP";
    /// The prefix of image names, in virt-operator.
    pub const IMAGE_PREFIX: &str = "FERROVIRT_IMAGE_PREFIX";
    /// The image tag, in virt-operator.
    pub const IMAGE_TAG: &str = "FERROVIRT_IMAGE_TAG";
    /// The kubelets' root directory, in virt-operator.
    pub const KUBELET_ROOT: &str = "FERROVIRT_KUBELET_ROOT";
    /// The Pod's name, in virt-operator.
    pub const POD_NAME: &str = "POD_NAME";
}

/// Common names by which our programs identify each other's roles.
pub mod common_name {
    /// A virt-handler, for virt-api and other virt-handlers.
    pub const HANDLER: &str = "kubevirt.io:system:node:virt-handler";
    /// A client of virt-handlers.
    pub const HANDLER_CLIENT: &str = "kubevirt.io:system:client:virt-handler";
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A server, identified by the name of its Service.
    Service(&'static str),
    /// A server and client, identified by its role.
    Peer(&'static str),
    /// A client, identified by its role.
    Client(&'static str),
}

/// A certificate of an installation, signed by its CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The Secret that holds it.
    pub secret: &'static str,
    /// What it is for.
    pub purpose: Purpose,
}

/// All certificates of an installation.
pub const CERTIFICATES: &[Certificate] = &[
    Certificate { secret: secret::API, purpose: Purpose::Service(service::API) },
    Certificate { secret: secret::CONTROLLER, purpose: Purpose::Service(service::CONTROLLER) },
    Certificate { secret: secret::OPERATOR, purpose: Purpose::Service(service::OPERATOR_WEBHOOK) },
    Certificate { secret: secret::HANDLER_SERVER, purpose: Purpose::Peer(common_name::HANDLER) },
    Certificate { secret: secret::HANDLER_CLIENT, purpose: Purpose::Client(common_name::HANDLER_CLIENT) },
];

impl Certificate {
    /// Its subject's common name in an installation in this namespace.
    pub fn common_name(&self, namespace: &str) -> String {
        match self.purpose {
            Purpose::Service(service) => format!("{service}.{namespace}.pod.cluster.local"),
            Purpose::Peer(role) | Purpose::Client(role) => role.to_owned(),
        }
    }

    /// The DNS names it is valid for; none for roles, which have only a common name.
    pub fn dns_names(&self, namespace: &str) -> Vec<String> {
        match self.purpose {
            Purpose::Service(service) => vec![
                service.to_owned(),
                format!("{service}.{namespace}"),
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}.svc.cluster.local"),
            ],
            Purpose::Peer(_) | Purpose::Client(_) => vec![],
        }
    }
}

/// The signer name of virt-handlers' CertificateSigningRequests; virt-operator signs them.
pub const SIGNER: &str = "ferrovirt.io/virt-handler";

/// The user name of a service account.
pub fn user(account: &str, namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_valid_for_the_names_of_its_service() {
        let certificate = CERTIFICATES[0];
        assert_eq!(certificate.common_name("here"), "virt-api.here.pod.cluster.local");
        assert!(certificate.dns_names("here").contains(&"virt-api.here.svc".to_owned()));
    }

    #[test]
    fn a_role_has_one_certificate() {
        let mut secrets: Vec<_> = CERTIFICATES.iter().map(|certificate| certificate.secret).collect();
        let mut names: Vec<_> = CERTIFICATES.iter().map(|certificate| certificate.common_name("x")).collect();
        for list in [&mut secrets.iter().map(ToString::to_string).collect::<Vec<_>>(), &mut names] {
            let count = list.len();
            list.sort();
            list.dedup();
            assert_eq!(list.len(), count, "{list:?}");
        }
        secrets.sort_unstable();
        assert!(!secrets.contains(&secret::CA), "the CA signs certificates, and is none of them");
    }
}

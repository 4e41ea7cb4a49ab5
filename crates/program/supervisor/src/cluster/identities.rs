//! Identities in an embedded cluster: user and group names are those of a KubeVirt installation.

use super::pki::Subject;

pub const ADMIN: Subject<'_> =
    Subject { common_name: "kubernetes-admin", organization: Some("system:masters"), serves: &[] };
pub const CONTROLLER: Subject<'_> = Subject {
    common_name: "system:serviceaccount:kubevirt:kubevirt-controller",
    organization: Some("system:serviceaccounts"),
    serves: &[],
};
pub const API: Subject<'_> = Subject {
    common_name: "system:serviceaccount:kubevirt:kubevirt-apiserver",
    organization: Some("system:serviceaccounts"),
    serves: &[],
};
pub const VOLUMES: Subject<'_> = Subject {
    common_name: "system:serviceaccount:kubevirt:volume-controller",
    organization: Some("system:serviceaccounts"),
    serves: &[],
};
pub const IMPORTER: Subject<'_> = Subject {
    common_name: "system:serviceaccount:kubevirt:ferrovirt-importer",
    organization: Some("system:serviceaccounts"),
    serves: &[],
};
/// The server of uploads.
pub const UPLOAD_PROXY: Subject<'_> =
    Subject { common_name: "cdi-uploadproxy", organization: None, serves: &["127.0.0.1", "localhost"] };
pub const SCHEDULER: Subject<'_> = Subject { common_name: "system:kube-scheduler", organization: None, serves: &[] };
/// virt-api's client certificate for virt-handler.
pub const HANDLER_CLIENT: Subject<'_> =
    Subject { common_name: role_tls::NODE_AGENT_CLIENT, organization: None, serves: &[] };
/// Name in virt-handler's server certificate.
pub const HANDLER_SERVER_NAME: &str = role_tls::NODE_AGENT;
pub const HANDLER_USER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";

/// DNS names and addresses under which clients reach the API server.
pub const API_SERVER_NAMES: &[&str] =
    &["127.0.0.1", "localhost", "10.201.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

//! Accounts of the system's own components.

use api::config::ClusterConfig;

use crate::User;

/// Components that write instances. The operator is not among them: it has no business with instances.
const OWN: [&str; 4] =
    ["kubevirt-apiserver", "kubevirt-controller", "kubevirt-handler", "kubevirt-synchronization-controller"];

/// What a cluster's authenticator says about a token that is bound to a Pod: the node of that Pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Prefix of the group that says which node an agent with a client certificate runs on.
const NODE_GROUP: &str = "ferrovirt:node:";

/// Whether the user is one of the system's own components.
pub(crate) fn is_own(user: &User, config: &ClusterConfig) -> bool {
    account(user, config).is_some_and(|account| OWN.contains(&account))
}

/// Whether the user is the controller.
pub(crate) fn is_controller(user: &User, config: &ClusterConfig) -> bool {
    account(user, config) == Some("kubevirt-controller")
}

/// Whether the user is a node agent.
pub(crate) fn is_handler(user: &User, config: &ClusterConfig) -> bool {
    account(user, config) == Some("kubevirt-handler")
}

/// The node a node agent runs on, if its identity says so: by its token in a cluster, by its certificate on one host.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let token = user.extra.get(NODE_NAME).and_then(|nodes| nodes.first()).map(String::as_str);
    let certificate = || user.groups.iter().find_map(|group| group.strip_prefix(NODE_GROUP));
    token.or_else(certificate).filter(|node| !node.is_empty())
}

fn account<'a>(user: &'a User, config: &ClusterConfig) -> Option<&'a str> {
    let rest = user.name.strip_prefix("system:serviceaccount:")?;
    rest.strip_prefix(config.install_namespace.as_str())?.strip_prefix(':')
}

//! Accounts of the system's own components.

use api::config::ClusterConfig;

use crate::User;

/// Components that write instances. The operator is not among them: it has no business with instances.
const OWN: [&str; 4] =
    ["kubevirt-apiserver", "kubevirt-controller", "kubevirt-handler", "kubevirt-synchronization-controller"];

/// Prefix of the group that says which node an agent with a client certificate runs on.
const NODE_GROUP: &str = "ferrovirt:node:";

/// Whether the user is one of the system's own components.
pub(crate) fn is_own(user: &User, config: &ClusterConfig) -> bool {
    account(user, config).is_some_and(|account| OWN.contains(&account))
}

/// Whether the user is a node agent.
pub(crate) fn is_handler(user: &User, config: &ClusterConfig) -> bool {
    account(user, config) == Some("kubevirt-handler")
}

/// The node a node agent runs on, if its identity says so.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.groups.iter().find_map(|group| group.strip_prefix(NODE_GROUP)).filter(|node| !node.is_empty())
}

fn account<'a>(user: &'a User, config: &ClusterConfig) -> Option<&'a str> {
    let rest = user.name.strip_prefix("system:serviceaccount:")?;
    rest.strip_prefix(config.install_namespace.as_str())?.strip_prefix(':')
}

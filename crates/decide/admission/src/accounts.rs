//! Accounts of our own components.

use api::config::ClusterConfig;
use machinery::identity::{NODE_GROUP_PREFIX, NODE_NAME_EXTRA};

use crate::User;

/// Components that write VMIs. The operator is not among them: it never does.
const OWN: [&str; 4] =
    ["kubevirt-apiserver", "kubevirt-controller", "kubevirt-handler", "kubevirt-synchronization-controller"];

/// Whether the user is one of our own components.
pub(crate) fn is_own(user: &User, config: &ClusterConfig) -> bool {
    account(user, config).is_some_and(|account| OWN.contains(&account))
}

/// Whether the user is the controller.
pub(crate) fn is_controller(user: &User, config: &ClusterConfig) -> bool {
    account(user, config) == Some("kubevirt-controller")
}

/// Whether the user is virt-handler.
pub(crate) fn is_handler(user: &User, config: &ClusterConfig) -> bool {
    account(user, config) == Some("kubevirt-handler")
}

/// The node a virt-handler runs on, if its identity includes it: from its token in a cluster, from its certificate on
/// one host.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let token = user.extra.get(NODE_NAME_EXTRA).and_then(|nodes| nodes.first()).map(String::as_str);
    let certificate = || user.groups.iter().find_map(|group| group.strip_prefix(NODE_GROUP_PREFIX));
    token.or_else(certificate).filter(|node| !node.is_empty())
}

fn account<'a>(user: &'a User, config: &ClusterConfig) -> Option<&'a str> {
    let rest = user.name.strip_prefix("system:serviceaccount:")?;
    rest.strip_prefix(config.install_namespace.as_str())?.strip_prefix(':')
}

//! How the identity of a client names its node, and how long a node waits for its certificate.

use std::time::Duration;

/// Key of a user's extra information with the node of a service account's token, as API servers write it for a token that
/// is bound to a Pod.
pub const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// Maximum time until Pods see a new bundle of CAs: the kubelet refreshes mounted ConfigMaps once a minute. The new CA
/// signs nothing before.
pub const CA_PROPAGATION: Duration = Duration::from_secs(180);
/// How long a node waits for its certificate. A node that sees a new bundle at once waits for all others.
pub const CERTIFICATE_PATIENCE: Duration = CA_PROPAGATION.saturating_add(Duration::from_secs(60));
/// Prefix of the group in a node's client certificate that names the node.
pub const NODE_GROUP_PREFIX: &str = "ferrovirt:node:";
/// What the URI in a node's certificate begins with; the node's name follows.
pub const NODE_URI_PREFIX: &str = "ferrovirt://node/";

/// The URI that names a node in a certificate.
pub fn node_uri(node: &str) -> String {
    format!("{NODE_URI_PREFIX}{node}")
}

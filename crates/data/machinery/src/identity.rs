//! How the identity of a client names its node.

/// Key of a user's extra information with the node of a service account's token, as API servers write it for a token that
/// is bound to a Pod.
pub const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// Prefix of the group in a node's client certificate that names the node.
pub const NODE_GROUP_PREFIX: &str = "ferrovirt:node:";
/// What the URI in a node's certificate begins with; the node's name follows.
pub const NODE_URI_PREFIX: &str = "ferrovirt://node/";

/// The URI that names a node in a certificate.
pub fn node_uri(node: &str) -> String {
    format!("{NODE_URI_PREFIX}{node}")
}

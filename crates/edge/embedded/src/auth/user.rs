//! The user of a request.

use machinery::identity::{NODE_GROUP_PREFIX, NODE_NAME_EXTRA};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// A user and its groups from a client certificate: CN is the user, every O is a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The common name, or `system:anonymous`.
    pub name: String,
    /// The organisations, and `system:authenticated` or `system:unauthenticated`.
    pub groups: Vec<String>,
}

impl User {
    /// A client without a certificate.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// The server itself, for writes of its own controllers.
    pub(crate) fn server() -> Self {
        Self { name: "system:apiserver".into(), groups: vec![super::MASTERS.into(), AUTHENTICATED.into()] }
    }

    /// The user as hooks see it. A service account token would name the node; certificates use a group for that.
    pub(crate) fn reviewed(&self) -> review::User {
        let nodes: Vec<String> =
            self.groups.iter().filter_map(|group| group.strip_prefix(NODE_GROUP_PREFIX)).map(str::to_owned).collect();
        let extra = (!nodes.is_empty()).then(|| (NODE_NAME_EXTRA.to_owned(), nodes));
        review::User { name: self.name.clone(), groups: self.groups.clone(), extra: extra.into_iter().collect() }
    }

    /// Parses the subject of a certificate that the TLS layer has already verified.
    pub(crate) fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| IdentityError::Unreadable)?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default();
        if name.is_empty() {
            return Err(IdentityError::NoName);
        }
        let mut groups: Vec<String> =
            subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        groups.push(AUTHENTICATED.into());
        Ok(Self { name: name.to_owned(), groups })
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// Why a certificate does not identify a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error("the client certificate has no common name")]
    NoName,
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use test_support::Authority;
    use test_support::pki::named;

    use super::*;

    fn user_of(params: CertificateParams) -> Result<User, IdentityError> {
        let pair = Authority::new().sign(params);
        User::from_certificate(&CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap())
    }

    #[test]
    fn common_name_is_the_user_and_organisations_are_the_groups() {
        let user = user_of(named("system:node:n1", &["system:nodes"])).unwrap();
        assert_eq!(user.name, "system:node:n1");
        assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
    }

    #[test]
    fn a_node_agents_group_tells_its_node() {
        let user = |groups: &[&str]| {
            User { name: "u".into(), groups: groups.iter().map(|&group| group.to_owned()).collect() }.reviewed()
        };
        assert_eq!(user(&["ferrovirt:node:n1", "x"]).extra[NODE_NAME_EXTRA], ["n1"]);
        assert!(user(&["x"]).extra.is_empty());
    }

    #[test]
    fn a_certificate_without_a_common_name_identifies_nobody() {
        let mut params = named("", &[]);
        params.distinguished_name = DistinguishedName::new();
        assert_eq!(user_of(params), Err(IdentityError::NoName));
    }
}

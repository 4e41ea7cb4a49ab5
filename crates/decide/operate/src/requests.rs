//! Certificates of nodes: which CertificateSigningRequests are signed.
//!
//! A virt-handler requests a certificate that names its node. All virt-handlers have one service account, but the token
//! of each names the node of its Pod, and the API server writes that into the request: no node can impersonate another.

use std::collections::BTreeMap;

use install::names;
use machinery::identity::{NODE_NAME_EXTRA, node_uri};

/// Allowed usages of a node's certificate.
const USAGES: &[&str] = &["digital signature", "key encipherment", "client auth", "server auth"];
const NEEDED: &[&str] = &["client auth", "server auth"];

/// The parts of a request that matter for the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub signer: String,
    pub user: String,
    pub extra: BTreeMap<String, Vec<String>>,
    pub usages: Vec<String>,
    /// Whether anybody has approved or denied it.
    pub approved: bool,
    pub denied: bool,
    pub issued: bool,
    /// The parsed request, if it is valid and its signature matches its key.
    pub subject: Option<Subject>,
}

/// The requested identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    /// Whether the subject has more than the common name.
    pub more: bool,
    pub uris: Vec<String>,
    /// Whether there are other alternative names, or unknown extensions.
    pub others: bool,
}

/// What to do about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is for another signer, or already concluded.
    Ignore,
    /// Approve it if it is not yet, and sign it for this node.
    Grant {
        node: String,
        approve: bool,
    },
    Deny {
        message: String,
    },
}

/// Judges a request in an installation in this namespace.
pub fn judge(request: &Request, namespace: &str) -> Verdict {
    if request.signer != names::SIGNER || request.denied || request.issued {
        return Verdict::Ignore;
    }
    match node(request, namespace) {
        Ok(node) => Verdict::Grant { node, approve: !request.approved },
        // Approved by somebody else; the signer still checks it.
        Err(_) if request.approved => Verdict::Ignore,
        Err(message) => Verdict::Deny { message },
    }
}

fn node(request: &Request, namespace: &str) -> Result<String, String> {
    let handler = names::user(names::account::HANDLER, namespace);
    if request.user != handler {
        return Err(format!("{:?} is not virt-handler ({handler})", request.user));
    }
    let Some([node]) = request.extra.get(NODE_NAME_EXTRA).map(Vec::as_slice) else {
        return Err(format!("the requester's token does not name its node ({NODE_NAME_EXTRA})"));
    };
    let subject = request.subject.as_ref().ok_or("the request cannot be read, or its signature is wrong")?;
    if subject.common_name != names::common_name::HANDLER || subject.more {
        return Err(format!("the subject must be only the common name {}", names::common_name::HANDLER));
    }
    let uri = node_uri(node);
    if subject.uris != [uri.clone()] || subject.others {
        return Err(format!("the alternative names must be only {uri}: the requester runs on node {node}"));
    }
    let unknown = request.usages.iter().find(|usage| !USAGES.contains(&usage.as_str()));
    if let Some(usage) = unknown {
        return Err(format!("the usage {usage:?} is not allowed for a node"));
    }
    match NEEDED.iter().find(|usage| !request.usages.iter().any(|asked| asked == *usage)) {
        Some(usage) => Err(format!("the usage {usage:?} is missing")),
        None => Ok(node.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            signer: names::SIGNER.to_owned(),
            user: "system:serviceaccount:kubevirt:kubevirt-handler".to_owned(),
            extra: [(NODE_NAME_EXTRA.to_owned(), vec!["n1".to_owned()])].into(),
            usages: ["digital signature", "client auth", "server auth"].map(str::to_owned).to_vec(),
            subject: Some(Subject {
                common_name: names::common_name::HANDLER.to_owned(),
                uris: vec!["ferrovirt://node/n1".to_owned()],
                ..Subject::default()
            }),
            ..Request::default()
        }
    }

    #[test]
    fn a_virt_handler_gets_a_certificate_of_its_own_node() {
        let grant = |approve| Verdict::Grant { node: "n1".to_owned(), approve };
        assert_eq!(judge(&request(), "kubevirt"), grant(true));
        assert_eq!(judge(&Request { approved: true, ..request() }, "kubevirt"), grant(false));
    }

    #[test]
    fn what_is_not_ours_or_done_is_left_alone() {
        let table = [
            Request { signer: "kubernetes.io/kube-apiserver-client".to_owned(), ..request() },
            Request { denied: true, ..request() },
            Request { approved: true, issued: true, ..request() },
            // Approved by somebody else for somebody else: we do not sign it.
            Request { approved: true, user: "jane".to_owned(), ..request() },
        ];
        for request in table {
            assert_eq!(judge(&request, "kubevirt"), Verdict::Ignore, "{request:?}");
        }
    }

    #[test]
    fn everything_else_is_denied_with_a_reason() {
        type Break = fn(&mut Request);
        let subject = |request: &mut Request| request.subject.take().unwrap();
        let table: [(&str, Break); 11] = [
            ("is not virt-handler", |it| it.user = "system:serviceaccount:kubevirt:default".to_owned()),
            ("is not virt-handler", |it| it.user = "system:serviceaccount:other:kubevirt-handler".to_owned()),
            ("does not name its node", |it| it.extra.clear()),
            ("cannot be read", |it| it.subject = None),
            ("the requester runs on node n2", |it| {
                it.extra = [(NODE_NAME_EXTRA.to_owned(), vec!["n2".to_owned()])].into()
            }),
            ("alternative names", |it| it.subject.as_mut().unwrap().others = true),
            ("alternative names", |it| it.subject.as_mut().unwrap().uris.push("ferrovirt://node/n2".to_owned())),
            ("the subject must be", |it| it.subject.as_mut().unwrap().common_name = "admin".to_owned()),
            ("the subject must be", |it| it.subject.as_mut().unwrap().more = true),
            ("\"cert sign\" is not", |it| it.usages.push("cert sign".to_owned())),
            ("\"server auth\" is missing", |it| it.usages.retain(|usage| usage != "server auth")),
        ];
        assert!(subject(&mut request()).uris.len() == 1);
        for (expected, change) in table {
            let mut request = request();
            change(&mut request);
            let Verdict::Deny { message } = judge(&request, "kubevirt") else { panic!("{expected}: not denied") };
            assert!(message.contains(expected), "{message}");
        }
    }
}

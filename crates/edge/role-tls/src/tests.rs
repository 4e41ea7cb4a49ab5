//! Who is let in and who is talked to, by handshakes in memory.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};
use test_support::pki::{self, Authority, Pair};

use super::{Error, Identity, NODE_AGENT, NODE_AGENT_CLIENT, NodeCheck, node_uri};

/// A certificate with these common names.
fn named(names: &[&str]) -> CertificateParams {
    let mut params = pki::named(names[0], &[]);
    for name in &names[1..] {
        // A type is kept once only, so a second name has to come by its number.
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), *name);
    }
    params
}

/// A program of `authority` with these common names that believes `trusted`.
fn program(authority: &Authority, names: &[&str], trusted: &Authority) -> Identity {
    let Pair { cert, key } = authority.sign(named(names));
    Identity::from_pem(trusted.pem(), &cert, &key).unwrap()
}

/// Whether both are content: the client wants a node agent, the server whoever commands one.
fn meet(client: &Identity, server: &Identity) -> bool {
    meets(Arc::new(client.client(NODE_AGENT).unwrap()), server)
}

fn meets(client: Arc<rustls::ClientConfig>, server: &Identity) -> bool {
    let name = ServerName::try_from("somewhere.example").unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server.server(NODE_AGENT_CLIENT).unwrap())).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        if server.process_new_packets().is_err() {
            return false;
        }
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        if client.process_new_packets().is_err() {
            return false;
        }
    }
    !client.is_handshaking() && !server.is_handshaking()
}

#[test]
fn only_the_right_roles_of_one_authority_meet() {
    let (ours, other) = (Authority::new(), Authority::new());
    let agent = || program(&ours, &[NODE_AGENT], &ours);
    let commander = || program(&ours, &[NODE_AGENT_CLIENT], &ours);
    for (what, client, server, expected) in [
        ("the right ones", commander(), agent(), true),
        ("an agent that commands", agent(), agent(), false),
        ("a commander that serves", commander(), commander(), false),
        ("a client of nobody's", program(&ours, &["somebody"], &ours), agent(), false),
        ("a client of another authority", program(&other, &[NODE_AGENT_CLIENT], &ours), agent(), false),
        ("a server of another authority", commander(), program(&other, &[NODE_AGENT], &ours), false),
        ("a client of two roles", program(&ours, &["somebody", NODE_AGENT_CLIENT], &ours), agent(), false),
        ("a server of two roles", commander(), program(&ours, &[NODE_AGENT, "somebody"], &ours), false),
    ] {
        assert_eq!(meet(&client, &server), expected, "{what}");
    }
}

/// A node agent whose certificate names these nodes.
fn agent_of(authority: &Authority, nodes: &[&str]) -> Identity {
    let mut params = named(&[NODE_AGENT]);
    let uri = |node: &&str| rcgen::SanType::URI(node_uri(node).try_into().unwrap());
    params.subject_alt_names = nodes.iter().map(uri).collect();
    let Pair { cert, key } = authority.sign(params);
    Identity::from_pem(authority.pem(), &cert, &key).unwrap()
}

#[test]
fn the_agent_of_one_node_does_not_pass_for_that_of_another() {
    use NodeCheck::{IfNamed, Required};
    let ours = Authority::new();
    let commander = program(&ours, &[NODE_AGENT_CLIENT], &ours);
    let cases: [(&[&str], NodeCheck, bool); 8] = [
        (&["n1"], Required, true),
        (&["n1"], IfNamed, true),
        (&["n2"], Required, false),
        (&["n2"], IfNamed, false),
        (&[], Required, false),
        (&[], IfNamed, true),
        (&["n1", "n2"], Required, false),
        (&["n1", "n2"], IfNamed, false),
    ];
    for (nodes, check, expected) in cases {
        let client = commander.node_client(NODE_AGENT, check).unwrap();
        assert_eq!(meets(client.to("n1"), &agent_of(&ours, nodes)), expected, "{nodes:?} {check:?}");
    }
    assert!(meet(&commander, &agent_of(&ours, &["n1"])), "a client that does not care");
}

#[test]
fn what_cannot_be_read_is_named() {
    let ours = Authority::new();
    let Pair { cert, .. } = ours.sign(named(&[NODE_AGENT]));
    let error = Identity::from_pem(ours.pem(), &cert, "no key").unwrap_err();
    assert!(matches!(error, Error::Pem { what: "private key", .. }), "{error}");
    let stranger = KeyPair::generate().unwrap().serialize_pem();
    let identity = Identity::from_pem(ours.pem(), &cert, &stranger).unwrap();
    assert!(matches!(identity.server(NODE_AGENT_CLIENT), Err(Error::Rustls(_))), "a key that is not the certificate's");
}

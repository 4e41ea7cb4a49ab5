//! The keys and certificates of a cluster.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use test_support::pki::{Authority, MASTERS, named};

use crate::address::{API_SERVICE, HUB, name, of_node};

/// The one name that the aggregator's certificate may have.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

pub(crate) struct Pki {
    authority: Authority,
    folder: PathBuf,
    /// Where the API server is for nodes.
    server: String,
    pub(crate) ca: Files,
    /// Signs who may say for whom a request is: it must not be the authority of all users.
    pub(crate) front_proxy_ca: Files,
    pub(crate) front_proxy: Files,
    pub(crate) apiserver: Files,
    /// The API server as a client of kubelets.
    pub(crate) kubelet_client: Files,
    /// Signs the tokens of service accounts, and tells a good signature.
    pub(crate) tokens: Files,
}

/// A key, and its certificate or public half.
pub(crate) struct Files {
    pub(crate) public: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    pub(crate) fn new(folder: &Path, port: u16) -> Result<Pki> {
        let (authority, front) = (Authority::new(), Authority::new());
        let tokens = KeyPair::generate().context("cannot make a key for tokens")?;
        let in_folder = |name: &str, pair: &test_support::Pair| Files::write(folder, name, &pair.cert, &pair.key);
        let client = |authority: &Authority, name: &str, groups: &[&str]| authority.issue(name, groups);
        let apiserver = server(&authority, "kube-apiserver", &[], &apiserver_names())?;
        Ok(Pki {
            ca: in_folder("ca", &authority.own)?,
            front_proxy_ca: in_folder("front-proxy-ca", &front.own)?,
            front_proxy: in_folder("front-proxy", &client(&front, FRONT_PROXY, &[]))?,
            apiserver: in_folder("kube-apiserver", &apiserver)?,
            kubelet_client: in_folder("kubelet-client", &client(&authority, "kubelet-client", &[MASTERS]))?,
            tokens: Files::write(folder, "tokens", &tokens.public_key_pem(), &tokens.serialize_pem())?,
            server: format!("https://{HUB}:{port}"),
            folder: folder.to_owned(),
            authority,
        })
    }

    /// A kubeconfig of the administrator, for the machine and for programs beside the control plane.
    pub(crate) fn admin(&self, server: &str) -> String {
        self.authority.kubeconfig(server, Some(&self.authority.issue("admin", &[MASTERS]))).to_string()
    }

    /// A kubeconfig of a program that is not on the machine's loopback.
    pub(crate) fn user(&self, name: &str) -> String {
        self.authority.kubeconfig(&self.server, Some(&self.authority.issue(name, &[]))).to_string()
    }

    /// The same in a file.
    pub(crate) fn user_file(&self, name: &str) -> Result<PathBuf> {
        write(&self.folder, &format!("{}.kubeconfig", name.replace(':', "-")), &self.user(name))
    }

    /// What a kubelet is known by: its kubeconfig, and the certificate and key it serves with.
    pub(crate) fn kubelet(&self, node: u8) -> Result<(String, test_support::Pair)> {
        let name = name(node);
        let names = [name.to_owned(), of_node(node).to_string()];
        let pair = server(&self.authority, &format!("system:node:{name}"), &["system:nodes"], &names)?;
        Ok((self.authority.kubeconfig(&self.server, Some(&pair)).to_string(), pair))
    }

    pub(crate) fn ca_pem(&self) -> &str {
        self.authority.pem()
    }
}

fn apiserver_names() -> Vec<String> {
    let addresses = [HUB.to_string(), API_SERVICE.to_string(), "127.0.0.1".to_owned()];
    let service =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    addresses.into_iter().chain(["localhost"].into_iter().chain(service).map(str::to_owned)).collect()
}

/// A certificate for a server with these names and addresses; it may be a client's, too.
fn server(authority: &Authority, name: &str, groups: &[&str], names: &[String]) -> Result<test_support::Pair> {
    let mut params = named(name, groups);
    params.subject_alt_names = alternatives(names)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(authority.sign(params))
}

fn alternatives(names: &[String]) -> Result<Vec<SanType>> {
    let params = CertificateParams::new(names).with_context(|| format!("cannot certify the names {names:?}"))?;
    Ok(params.subject_alt_names)
}

impl Files {
    fn write(folder: &Path, name: &str, public: &str, key: &str) -> Result<Files> {
        let public = write(folder, &format!("{name}.crt"), public)?;
        Ok(Files { public, key: write(folder, &format!("{name}.key"), key)? })
    }
}

/// Writes a file that only root reads.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::io::Write as _;
    let path = folder.join(name);
    let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

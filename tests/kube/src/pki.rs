//! The keys and certificates of one control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// The files kube-apiserver and its first user need.
pub(crate) struct Pki {
    pub(crate) ca: PathBuf,
    pub(crate) server: Pair,
    pub(crate) admin: Pair,
    /// Signs the tokens of service accounts, and tells a good signature.
    pub(crate) tokens: Pair,
}

/// A key, and its certificate or public half.
pub(crate) struct Pair {
    pub(crate) public: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    pub(crate) fn new(folder: &Path) -> Result<Pki> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ferrovirt-kube");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?).context("cannot make a CA")?;

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];

        let tokens = KeyPair::generate()?;
        Ok(Pki {
            ca: write(folder, "ca.crt", &ca.pem())?,
            server: issue(&ca, server, folder, "server")?,
            admin: issue(&ca, admin, folder, "admin")?,
            tokens: Pair {
                public: write(folder, "tokens.pub", &tokens.public_key_pem())?,
                key: write(folder, "tokens.key", &tokens.serialize_pem())?,
            },
        })
    }
}

fn issue(ca: &CertifiedIssuer<'static, KeyPair>, params: CertificateParams, folder: &Path, name: &str) -> Result<Pair> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca).with_context(|| format!("cannot sign the certificate of {name}"))?;
    Ok(Pair {
        public: write(folder, &format!("{name}.crt"), &certificate.pem())?,
        key: write(folder, &format!("{name}.key"), &key.serialize_pem())?,
    })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

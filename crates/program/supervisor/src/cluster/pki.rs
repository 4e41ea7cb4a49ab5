//! The certificates of an embedded cluster: one CA and a key pair per identity.
//!
//! Every connection authenticates its peer, so each program has its own certificate; RBAC handles authorisation. Files
//! are created once and kept, so a kubeconfig stays valid across restarts of the cluster.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Common name of the CA; shown in the error of a client that trusts another one.
const AUTHORITY: &str = "ferrovirt-embedded";

/// Backdated, so that a guest or another machine with a slow clock accepts the certificates.
const NOT_BEFORE: (i32, u8, u8) = (2020, 1, 1);
/// There is no rotation: the files live as long as the data directory.
const NOT_AFTER: (i32, u8, u8) = (2060, 1, 1);

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// The subject of a certificate.
pub struct Subject<'a> {
    pub common_name: &'a str,
    pub organization: Option<&'a str>,
    /// Addresses, DNS names and URIs for a server; empty for a pure client.
    pub serves: &'a [&'a str],
}

/// The CA and the directory of its key pairs.
pub struct Pki {
    dir: PathBuf,
    authority: Pair,
}

impl Pki {
    /// Opens the CA in `dir`, creating it on first use.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot protect {}", dir.display()))?;
        let authority = match read(dir, "ca")? {
            Some(pair) => pair,
            None => {
                let pair = make_authority().context("cannot make the cluster's certificate authority")?;
                write(dir, "ca", &pair)?;
                pair
            }
        };
        Ok(Self { dir: dir.to_owned(), authority })
    }

    pub fn ca_pem(&self) -> &str {
        &self.authority.cert
    }

    /// The key pair `name`, issued for `subject` on first use.
    pub fn pair(&self, name: &str, subject: &Subject<'_>) -> Result<Pair> {
        if let Some(pair) = read(&self.dir, name)? {
            return Ok(pair);
        }
        let pair = self.issue(subject).with_context(|| format!("cannot make the certificate `{name}`"))?;
        write(&self.dir, name, &pair)?;
        Ok(pair)
    }

    fn issue(&self, subject: &Subject<'_>) -> Result<Pair> {
        let authority_key = KeyPair::from_pem(&self.authority.key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.authority.cert, authority_key)?;
        let mut params = params(subject.common_name, subject.organization);
        for name in subject.serves {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) if name.contains("://") => SanType::URI((*name).try_into()?),
                Err(_) => SanType::DnsName((*name).try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match subject.serves.is_empty() {
            true => vec![ExtendedKeyUsagePurpose::ClientAuth],
            false => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &issuer)?;
        Ok(Pair { cert: cert.pem(), key: key.serialize_pem() })
    }
}

fn make_authority() -> Result<Pair, rcgen::Error> {
    let mut params = params(AUTHORITY, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    Ok(Pair { cert: cert.pem(), key: key.serialize_pem() })
}

fn params(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name = name;
    params.not_before = rcgen::date_time_ymd(NOT_BEFORE.0, NOT_BEFORE.1, NOT_BEFORE.2);
    params.not_after = rcgen::date_time_ymd(NOT_AFTER.0, NOT_AFTER.1, NOT_AFTER.2);
    params
}

/// Reads both halves or none: a certificate whose key was lost in a crash is issued again.
fn read(dir: &Path, name: &str) -> Result<Option<Pair>> {
    let half = |suffix: &str| -> Result<Option<String>> {
        let path = dir.join(format!("{name}.{suffix}"));
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display())),
        }
    };
    Ok(half("crt")?.zip(half("key")?).map(|(cert, key)| Pair { cert, key }))
}

/// Writes the key first and the certificate last: `read` takes the certificate as the sign that the pair is complete.
fn write(dir: &Path, name: &str, pair: &Pair) -> Result<()> {
    for (suffix, text, mode) in [("key", &pair.key, 0o600), ("crt", &pair.cert, 0o644)] {
        let path = dir.join(format!("{name}.{suffix}"));
        hostfs::atomic::write_mode(&path, text.as_bytes(), mode)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_authority_keeps_its_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let subject = Subject { common_name: "kubernetes-admin", organization: Some("system:masters"), serves: &[] };
        let first = Pki::open(dir.path()).unwrap();
        let pair = first.pair("admin", &subject).unwrap();
        let second = Pki::open(dir.path()).unwrap();
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert_eq!(pair.cert, second.pair("admin", &subject).unwrap().cert);
    }

    #[test]
    fn keys_are_readable_by_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        pki.pair("x", &Subject { common_name: "x", organization: None, serves: &["127.0.0.1"] }).unwrap();
        let mode = fs::metadata(dir.path().join("x.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

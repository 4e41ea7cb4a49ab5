//! Creates certificates, and parses them.

use std::time::Duration;

use install::names::{self, Certificate, Purpose};
use jiff::Timestamp;
use machinery::identity::node_uri;
use operate::certificates::{AUTHORITY, Authority, Leaf};
use operate::requests::Subject;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Certificates are valid from shortly before their creation, for machines whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// A new CA.
pub fn make_authority(duration: Duration, now: Timestamp) -> Result<Pair, rcgen::Error> {
    let mut params = params(&format!("{AUTHORITY}@{}", now.as_second()), duration, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Pair { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A certificate of an installation in this namespace.
pub fn make_leaf(
    certificate: &Certificate,
    namespace: &str,
    duration: Duration,
    authority: &Pair,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let mut params = params(&certificate.common_name(namespace), duration, now);
    for name in certificate.dns_names(namespace) {
        params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
    }
    params.extended_key_usages = match certificate.purpose {
        Purpose::Service(_) => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Purpose::Client(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Purpose::Peer(_) => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    let key = KeyPair::generate()?;
    Ok(Pair { cert: params.signed_by(&key, &issuer(authority)?)?.pem(), key: key.serialize_pem() })
}

/// The certificate of a node for the key of a request. Nothing else in the request is used.
pub fn sign(
    request: &str,
    node: &str,
    duration: Duration,
    authority: &Pair,
    now: Timestamp,
) -> Result<String, rcgen::Error> {
    let mut request = CertificateSigningRequestParams::from_pem(request)?;
    let mut params = params(names::common_name::HANDLER, duration, now);
    params.subject_alt_names = vec![SanType::URI(node_uri(node).try_into()?)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    request.params = params;
    Ok(request.signed_by(&issuer(authority)?)?.pem())
}

fn issuer(authority: &Pair) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    Issuer::from_ca_cert_pem(&authority.cert, KeyPair::from_pem(&authority.key)?)
}

fn params(common_name: &str, duration: Duration, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let now = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    params.not_before = now - CLOCK_SKEW.min(duration / 2);
    params.not_after = now + duration;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params
}

/// The identity in a request, if it is valid and its signature matches its key.
pub fn subject_of(request: &str) -> Option<Subject> {
    let params = CertificateSigningRequestParams::from_pem(request).ok()?.params;
    let mut subject = Subject::default();
    for (kind, value) in params.distinguished_name.iter() {
        match (kind, text(value)) {
            (DnType::CommonName, Some(name)) if subject.common_name.is_empty() => subject.common_name = name,
            _ => subject.more = true,
        }
    }
    for name in &params.subject_alt_names {
        match name {
            SanType::URI(uri) => subject.uris.push(uri.as_str().to_owned()),
            _ => subject.others = true,
        }
    }
    Some(subject)
}

fn text(value: &DnValue) -> Option<String> {
    match value {
        DnValue::Utf8String(text) => Some(text.clone()),
        DnValue::PrintableString(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

/// A CA with its key, if they match.
pub fn authority_of(pair: &Pair, duration: Option<String>) -> Option<Authority> {
    let der = CertificateDer::from_pem_slice(pair.cert.as_bytes()).ok()?;
    let authority = authority(&der, &pair.cert)?;
    fits(&der, &pair.key).then_some(Authority { duration, ..authority })
}

/// The CAs of a bundle; skips invalid ones.
pub fn bundle_of(text: &str) -> Vec<Authority> {
    let pems = text.split_inclusive("-----END CERTIFICATE-----").filter(|part| part.contains("-----BEGIN"));
    let read = |pem: &str| authority(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?, pem.trim());
    pems.filter_map(read).collect()
}

fn authority(der: &CertificateDer<'_>, pem: &str) -> Option<Authority> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(hex(id.0)),
        _ => None,
    })?;
    let name = common_name(&certificate)?;
    let made = name.rsplit_once('@').and_then(|(_, seconds)| seconds.parse().ok());
    let created = made.unwrap_or(certificate.validity().not_before.timestamp());
    Some(Authority {
        pem: format!("{}\n", pem.trim()),
        key_id,
        created: Timestamp::from_second(created).ok()?,
        not_after: Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?,
        duration: None,
    })
}

/// A certificate with its key, if they match.
pub fn leaf_of(pair: &Pair, duration: Option<String>) -> Option<Leaf> {
    let der = CertificateDer::from_pem_slice(pair.cert.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let (mut authority, mut dns_names) = (String::new(), Vec::new());
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                authority = id.key_identifier.as_ref().map(|id| hex(id.0)).unwrap_or_default();
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                dns_names.extend(names.general_names.iter().filter_map(|name| match name {
                    GeneralName::DNSName(name) => Some((*name).to_owned()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    let common_name = common_name(&certificate)?;
    let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
    fits(&der, &pair.key).then_some(Leaf { common_name, dns_names, authority, not_after, duration })
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}

/// Whether a key belongs to a certificate.
fn fits(certificate: &CertificateDer<'_>, key: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == certificate.public_key().raw)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use names::CERTIFICATES;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn what_is_made_is_read_back() {
        let ca = make_authority(10 * HOUR, now()).unwrap();
        let authority = authority_of(&ca, Some("10h0m0s".to_owned())).unwrap();
        assert_eq!((authority.created, authority.not_after), (now(), now() + 10 * HOUR));
        for certificate in CERTIFICATES {
            let pair = make_leaf(certificate, "here", HOUR, &ca, now()).unwrap();
            let leaf = leaf_of(&pair, None).unwrap();
            assert_eq!(leaf.common_name, certificate.common_name("here"));
            assert_eq!(leaf.dns_names, certificate.dns_names("here"));
            assert_eq!((leaf.authority, leaf.not_after), (authority.key_id.clone(), now() + HOUR));
        }
        let other = make_authority(HOUR, now()).unwrap();
        assert_eq!(authority_of(&Pair { key: other.key.clone(), ..ca.clone() }, None), None, "a stranger's key");
        let bundle = bundle_of(&format!("{}\n{}garbage", ca.cert, other.cert));
        assert_eq!(bundle.len(), 2);
        assert_eq!(bundle[0], Authority { duration: None, ..authority });
    }

    fn request(params: CertificateParams) -> String {
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    #[test]
    fn a_node_gets_what_it_is_and_nothing_else() {
        let ca = make_authority(10 * HOUR, now()).unwrap();
        let mut asked = CertificateParams::default();
        asked.distinguished_name = DistinguishedName::new();
        asked.distinguished_name.push(DnType::CommonName, names::common_name::HANDLER);
        asked.subject_alt_names = vec![SanType::URI("ferrovirt://node/n1".try_into().unwrap())];
        let pem = request(asked.clone());
        let subject = subject_of(&pem).unwrap();
        assert_eq!(subject.uris, ["ferrovirt://node/n1"]);
        assert_eq!(
            subject,
            Subject {
                common_name: names::common_name::HANDLER.to_owned(),
                uris: subject.uris.clone(),
                ..Subject::default()
            }
        );
        let signed = sign(&pem, "n1", HOUR, &ca, now()).unwrap();
        let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(!certificate.is_ca());
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [GeneralName::URI("ferrovirt://node/n1")]);

        asked.distinguished_name.push(DnType::OrganizationName, "system:masters");
        asked.subject_alt_names.push(SanType::DnsName("x".try_into().unwrap()));
        let subject = subject_of(&request(asked)).unwrap();
        assert!(subject.more && subject.others);
        assert_eq!(subject_of("nothing"), None);
    }
}

//! A certificate of this node's own: requested from the cluster's API, kept on the node, renewed in time.
//!
//! virt-operator signs a request only if the API server confirms that it comes from a virt-handler on the node that the
//! request names. The key never leaves the node. The certificate is also renewed when a new CA is in the bundle: what the
//! previous CA signed is valid only while that CA stays in the bundle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use machinery::identity::CERTIFICATE_PATIENCE;
use machinery::names::{SUBDOMAIN_MAX, suffix, truncated_name};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use role_tls::{IdentityFiles, NODE_AGENT};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_util::sync::CancellationToken;
use x509_parser::extensions::ParsedExtension;

use crate::error::chain;

/// Polling interval of a request.
const POLL: Duration = Duration::from_secs(1);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum sleep: the clock may be changed and the CA replaced meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// Usages of the certificate.
const USAGES: [&str; 3] = ["digital signature", "client auth", "server auth"];

/// A certificate to request.
pub struct Requested {
    pub client: kube::Client,
    pub node: String,
    /// The signer.
    pub signer: String,
    /// Directory of the certificate and its key.
    pub dir: PathBuf,
    /// The file with the CAs that everybody trusts.
    pub ca: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("failed to create a certificate request")]
    Make(#[from] rcgen::Error),
    #[error("failed to request a certificate")]
    Api(#[from] kube::Error),
    #[error("certificate request {name} was denied: {why}")]
    Refused { name: String, why: String },
    #[error("certificate request {name} was not signed within {} s; is virt-operator running?", CERTIFICATE_PATIENCE.as_secs())]
    NoAnswer { name: String },
    #[error("failed to store the certificate")]
    Keep(#[from] hostfs::Error),
}

impl Requested {
    /// Where the certificate will be.
    pub fn files(&self) -> IdentityFiles {
        IdentityFiles { ca: self.ca.clone(), cert: self.dir.join("tls.crt"), key: self.dir.join("tls.key") }
    }

    /// Gets the certificate and renews it, until `shutdown`.
    pub async fn keep(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.renew()).await;
    }

    async fn renew(&self) {
        // One request for each CA, whoever signs it in the end.
        let mut asked = None;
        loop {
            let newest = newest(&self.ca);
            let signed = newest.is_none() || newest == asked || signer(&self.dir) == newest;
            let pause = match due_in(&self.dir, &self.node, Timestamp::now()).filter(|_| signed) {
                Some(left) => left,
                None => match self.request().await {
                    Ok(()) => {
                        asked = newest;
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(node = self.node, error = chain(&error), "no certificate for this node");
                        RETRY
                    }
                },
            };
            tokio::time::sleep(pause.min(LOOK_AGAIN)).await;
        }
    }

    async fn request(&self) -> Result<(), CertificateError> {
        let key = KeyPair::generate()?;
        let request = params(&self.node)?.serialize_request(&key)?.pem()?;
        // Named after the key: no two requests are the same.
        let name = truncated_name(&format!("virt-handler-{}", self.node), &suffix(&request), SUBDOMAIN_MAX);
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &self.object(&name, request)).await?;
        tracing::info!(node = self.node, request = name, "requested a certificate");
        let until = tokio::time::Instant::now() + CERTIFICATE_PATIENCE;
        while tokio::time::Instant::now() < until {
            if let Some(certificate) = answer(&name, &api.get(&name).await?)? {
                self.store(&certificate, &key.serialize_pem())?;
                tracing::info!(node = self.node, request = name, "received the certificate");
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(CertificateError::NoAnswer { name })
    }

    fn object(&self, name: &str, request: String) -> CertificateSigningRequest {
        CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: self.signer.clone(),
                usages: Some(USAGES.map(str::to_owned).to_vec()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }

    fn store(&self, certificate: &[u8], key: &str) -> Result<(), hostfs::Error> {
        let parent = hostfs::beneath::Root::open(self.dir.parent().unwrap_or(Path::new("/")))?;
        let own = rustix::process::geteuid().as_raw();
        parent.mkdir_all(self.dir.file_name().unwrap_or_default(), 0o700, own, rustix::process::getegid().as_raw())?;
        hostfs::atomic::write_mode(self.dir.join("tls.key"), key.as_bytes(), 0o600)?;
        hostfs::atomic::write_mode(self.dir.join("tls.crt"), certificate, 0o644)
    }
}

fn params(node: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NODE_AGENT);
    params.subject_alt_names = vec![SanType::URI(role_tls::node_uri(node).try_into()?)];
    Ok(params)
}

/// The certificate of a request, once there is one.
fn answer(name: &str, request: &CertificateSigningRequest) -> Result<Option<Vec<u8>>, CertificateError> {
    let Some(status) = &request.status else { return Ok(None) };
    let refusal =
        status.conditions.iter().flatten().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(refusal) = refusal {
        let why = refusal.message.clone().or_else(|| refusal.reason.clone()).unwrap_or_else(|| refusal.type_.clone());
        return Err(CertificateError::Refused { name: name.to_owned(), why });
    }
    Ok(status
        .certificate
        .as_ref()
        .map(|certificate| certificate.0.clone())
        .filter(|certificate| !certificate.is_empty()))
}

/// How long the stored certificate can be kept; `None` if a new one is needed now.
fn due_in(dir: &Path, node: &str, now: Timestamp) -> Option<Duration> {
    let certificate = CertificateDer::from_pem_file(dir.join("tls.crt")).ok()?;
    std::fs::metadata(dir.join("tls.key")).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    let validity = parsed.validity();
    let begin = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let end = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    left(begin, end, now).filter(|_| role_tls::nodes_of(&certificate) == [node])
}

/// The key of the newest CA in a bundle.
fn newest(bundle: &Path) -> Option<Vec<u8>> {
    let all = CertificateDer::pem_file_iter(bundle).ok()?;
    let of = |der: CertificateDer<'_>| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
        let key = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        })?;
        Some((parsed.validity().not_before.timestamp(), key))
    };
    all.filter_map(|one| of(one.ok()?)).max().map(|(_, key)| key)
}

/// The key of the CA that signed the stored certificate.
fn signer(dir: &Path) -> Option<Vec<u8>> {
    let certificate = CertificateDer::from_pem_file(dir.join("tls.crt")).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => Some(id.key_identifier.as_ref()?.0.to_vec()),
        _ => None,
    })
}

/// A certificate is renewed after two thirds of its lifetime.
fn left(begin: Timestamp, end: Timestamp, now: Timestamp) -> Option<Duration> {
    let whole = end.duration_since(begin);
    let due = begin.checked_add(whole * 2 / 3).ok()?;
    let left = due.duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_time() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        for (now, expected) in [(0, Some(60)), (30, Some(30)), (59, Some(1)), (60, None), (200, None)] {
            assert_eq!(left(at(0), at(90), at(now)), expected.map(Duration::from_secs), "{now}");
        }
    }

    /// virt-operator signs nothing with a new CA before every Pod may be expected to trust it.
    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_repeated_while_a_new_ca_spreads() {
        use axum::extract::{Json, State};
        use machinery::identity::CA_PROPAGATION;
        use serde_json::Value;

        type Requests = std::sync::Arc<parking_lot::Mutex<Vec<(tokio::time::Instant, Value)>>>;
        let requests = Requests::default();
        let create = async |State(requests): State<Requests>, Json(request): Json<Value>| {
            requests.lock().push((tokio::time::Instant::now(), request.clone()));
            Json(request)
        };
        let get = async |State(requests): State<Requests>| {
            let (since, mut request) = requests.lock()[0].clone();
            if since.elapsed() >= CA_PROPAGATION + Duration::from_secs(30) {
                request["status"] = json!({"certificate": "Y2VydA=="});
            }
            Json(request)
        };
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let router = axum::Router::new()
            .route(path, axum::routing::post(create))
            .route(&format!("{path}/{{name}}"), axum::routing::get(get))
            .with_state(requests.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let dir = tempfile::tempdir().unwrap();
        let requested = Requested {
            client: kube::Client::try_from(kube::Config::new(uri.parse().unwrap())).unwrap(),
            node: "n1".to_owned(),
            signer: "a/b".to_owned(),
            dir: dir.path().join("own"),
            ca: dir.path().join("ca-bundle"),
        };
        requested.request().await.unwrap();
        assert_eq!(requests.lock().len(), 1);
        assert_eq!(std::fs::read(requested.dir.join("tls.crt")).unwrap(), b"cert");
    }

    #[test]
    fn answers_are_told_from_refusals() {
        let request = |status: serde_json::Value| -> CertificateSigningRequest {
            serde_json::from_value(json!({"spec": {"request": "", "signerName": "a/b"}, "status": status})).unwrap()
        };
        let approved = json!([{"type": "Approved", "status": "True"}]);
        let waiting = answer("a", &request(json!({"conditions": approved}))).unwrap();
        assert_eq!(waiting, None);
        let signed = answer("a", &request(json!({"conditions": approved, "certificate": "Y2VydA=="}))).unwrap();
        assert_eq!(signed.as_deref(), Some(&b"cert"[..]));
        let denied = request(json!({"conditions": [{"type": "Denied", "status": "True", "message": "not your node"}]}));
        assert!(answer("a", &denied).unwrap_err().to_string().ends_with("was denied: not your node"));
    }

    #[test]
    fn a_certificate_of_another_than_the_youngest_ca_is_told() {
        let authority = |year: i32| {
            let mut params = CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.not_before = rcgen::date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            (pem.clone(), rcgen::Issuer::from_ca_cert_pem(&pem, key).unwrap())
        };
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("ca-bundle");
        assert_eq!((newest(&bundle), signer(dir.path())), (None, None));
        let ((old, old_signer), (new, new_signer)) = (authority(2020), authority(2021));
        let mut leaf = params("n1").unwrap();
        leaf.use_authority_key_identifier_extension = true;
        let by = |issuer: &rcgen::Issuer<'_, KeyPair>| {
            let key = KeyPair::generate().unwrap();
            std::fs::write(dir.path().join("tls.crt"), leaf.signed_by(&key, issuer).unwrap().pem()).unwrap();
            signer(dir.path())
        };
        std::fs::write(&bundle, &old).unwrap();
        let first = by(&old_signer);
        assert!(first.is_some() && newest(&bundle) == first);
        for both in [format!("{old}{new}"), format!("{new}{old}")] {
            std::fs::write(&bundle, both).unwrap();
            assert_ne!(newest(&bundle), first);
            assert_eq!(newest(&bundle), by(&new_signer));
        }
    }

    #[test]
    fn what_is_kept_must_be_a_certificate_of_this_node() {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let now = Timestamp::now();
        assert_eq!(due_in(dir.path(), "n1", now), None, "no file");
        let certificate = params("n1").unwrap().self_signed(&key).unwrap().pem();
        std::fs::write(dir.path().join("tls.crt"), certificate).unwrap();
        assert_eq!(due_in(dir.path(), "n1", now), None, "no key");
        std::fs::write(dir.path().join("tls.key"), key.serialize_pem()).unwrap();
        assert!(due_in(dir.path(), "n1", now).is_some());
        assert_eq!(due_in(dir.path(), "n2", now), None, "another node's");
        std::fs::write(dir.path().join("tls.crt"), "nonsense").unwrap();
        assert_eq!(due_in(dir.path(), "n1", now), None);
    }
}

//! Health, leadership and metrics as a probe and a scraper see them.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use role_tls::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use test_support::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};
use virt_controller::{Endpoints, Status};

/// Remembers who answered and trusts everybody.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn trusting(protocols: &[&[u8]]) -> TlsConnector {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// An API server that says nothing but its version, or that it is not there.
fn api(works: bool) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
                             "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
        let (code, body) = if works { (200, version) } else { (503, json!({"code": 503, "message": "down"})) };
        Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
    });
    Client::new(service, "default")
}

fn self_signed() -> Certificate {
    Certificate::SelfSigned { names: vec!["virt-controller".to_owned()] }
}

struct Running {
    address: std::net::SocketAddr,
    _stop: DropGuard,
}

async fn serve(certificate: Certificate, works: bool) -> Running {
    let endpoints = Endpoints::new(certificate, Arc::new(Status::default()), api(works)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(endpoints.serve(listener, stop.clone()));
    Running { address, _stop: stop.drop_guard() }
}

impl Running {
    /// The status code and the body.
    async fn get(&self, path: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("virt-controller").unwrap();
        let mut stream = trusting(&[b"http/1.1"]).connect(name, stream).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: virt-controller\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn get_json(&self, path: &str) -> (u16, Value) {
        let (code, body) = self.get(path).await;
        (code, serde_json::from_str(&body).unwrap())
    }
}

#[tokio::test]
async fn whoever_is_not_elected_says_so_with_a_good_code() {
    let running = serve(self_signed(), true).await;
    assert_eq!(running.get_json("/leader").await, (200, json!({"apiserver": {"leader": "false"}})));
}

#[tokio::test]
async fn health_is_that_of_the_way_to_the_api_server() {
    let (code, body) = serve(self_signed(), true).await.get_json("/healthz").await;
    assert_eq!((code, &body["apiserver"]["connectivity"]), (200, &json!("ok")));
    assert_eq!(body["apiserver"]["version"]["minor"], "36");
    let (code, body) = serve(self_signed(), false).await.get_json("/healthz").await;
    assert_eq!((code, &body["apiserver"]["connectivity"]), (500, &json!("failed")));
}

#[tokio::test]
async fn metrics_are_in_the_form_that_scrapers_read() {
    let (code, text) = serve(self_signed(), true).await.get("/metrics").await;
    assert_eq!(code, 200);
    for line in ["# TYPE workqueue_depth gauge", "kubevirt_virt_controller_leading_status 0"] {
        assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
    }
    assert!(text.contains("process_resident_memory_bytes "));
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    for sample in samples {
        let value = sample.rsplit_once(' ').unwrap().1;
        assert!(value.parse::<f64>().is_ok(), "{sample:?} has no number");
    }
}

#[tokio::test]
async fn other_paths_are_not_found_and_http2_is_not_spoken() {
    let running = serve(self_signed(), true).await;
    assert_eq!(running.get("/start-profiler").await.0, 404);
    let stream = TcpStream::connect(running.address).await.unwrap();
    let name = ServerName::try_from("virt-controller").unwrap();
    assert!(trusting(&[b"h2"]).connect(name, stream).await.is_err());
}

#[tokio::test]
async fn the_certificate_that_was_given_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let made = Authority::new().issue("ours", &[]);
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert, &made.cert).unwrap();
    std::fs::write(&key, &made.key).unwrap();
    let running = serve(Certificate::Files { cert: cert.clone(), key }, true).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let stream = trusting(&[]).connect(ServerName::try_from("ours").unwrap(), stream).await.unwrap();
    let given = CertificateDer::from_pem_slice(made.cert.as_bytes()).unwrap();
    assert_eq!(stream.get_ref().1.peer_certificates().unwrap(), [given]);

    let nothing = Certificate::Files { cert: folder.path().join("none"), key: cert };
    let refused = Endpoints::new(nothing, Arc::default(), api(true)).err().unwrap();
    assert!(refused.to_string().contains("none"), "{refused}");
}

//! Sending a file to the upload proxy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const PIECE: usize = 1 << 20;
/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(30);

type Body = BoxBody<Bytes, std::io::Error>;

/// A way to the proxy.
pub(crate) struct Proxy {
    url: Uri,
    tls: Arc<ClientConfig>,
    token: String,
}

/// The proxy's answer to an upload.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) text: String,
}

impl Proxy {
    /// `authorities` are trusted beside those of the system.
    pub(crate) fn new(url: &str, token: String, insecure: bool, authorities: &[Vec<u8>]) -> anyhow::Result<Self> {
        // As upstream's: an address without a scheme is one of TLS.
        let full = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        let url: Uri = full.parse().with_context(|| format!("the upload proxy's address {full} is not one"))?;
        if url.host().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
            bail!("the upload proxy's address {full} is not one of http or https");
        }
        Ok(Self { url, tls: Arc::new(trust(insecure, authorities)?), token })
    }

    pub(crate) fn shown(&self) -> String {
        self.url.to_string().trim_end_matches('/').to_owned()
    }

    /// The paths of the asynchronous endpoint if the proxy has it, else of the synchronous one.
    pub(crate) async fn endpoint(&self) -> String {
        const ASYNC: &str = "/v1beta1/upload-async";
        let probe = self.request(Method::HEAD, &self.path(ASYNC), 0, empty()).await;
        match probe {
            Ok(Answer { code: StatusCode::OK, .. }) => self.path(ASYNC),
            _ => self.path("/v1beta1/upload"),
        }
    }

    fn path(&self, endpoint: &str) -> String {
        let base = self.url.path().trim_end_matches('/');
        // An address may name an endpoint already.
        if base.contains("/v1beta1/upload") { base.to_owned() } else { format!("{base}{endpoint}") }
    }

    /// Sends a file, and counts what was sent.
    pub(crate) async fn send(&self, path: &str, file: &Path, sent: Arc<AtomicU64>) -> anyhow::Result<Answer> {
        let opened = tokio::fs::File::open(file).await.with_context(|| format!("cannot open {}", file.display()))?;
        let size = opened.metadata().await.with_context(|| format!("cannot read {}", file.display()))?.len();
        let pieces = futures::stream::unfold((opened, size), move |(mut opened, left)| {
            let sent = sent.clone();
            async move {
                if left == 0 {
                    return None;
                }
                let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
                match opened.read_exact(&mut piece).await {
                    Ok(read) => {
                        sent.fetch_add(read as u64, Ordering::Relaxed);
                        Some((Ok(Frame::data(Bytes::from(piece))), (opened, left - read as u64)))
                    }
                    Err(error) => Some((Err(error), (opened, 0))),
                }
            }
        });
        self.request(Method::POST, path, size, BodyExt::boxed(StreamBody::new(pieces.fuse()))).await
    }

    async fn request(&self, method: Method, path: &str, size: u64, body: Body) -> anyhow::Result<Answer> {
        let host = self.url.host().unwrap_or_default();
        let secure = self.url.scheme_str() == Some("https");
        let port = self.url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect((bare, port)));
        let stream = connecting.await.map_err(|_| anyhow::anyhow!("no connection within {} s", CONNECT.as_secs()));
        let stream =
            stream.and_then(|connected| Ok(connected?)).with_context(|| format!("cannot reach {host}:{port}"))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{host}:{port}"))
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, size)
            .body(body)?;
        if !secure {
            return converse(stream, request).await;
        }
        let name = ServerName::try_from(bare.to_owned()).with_context(|| format!("{bare} is not a host name"))?;
        let connected = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let stream = connected.with_context(|| {
            format!("cannot connect to {host}:{port} over TLS (--insecure does not check the certificate)")
        })?;
        converse(stream, request).await
    }
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> anyhow::Result<Answer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let answered = async {
        let response = sender.send_request(request).await.context("the upload proxy broke the connection")?;
        let code = response.status();
        let text = response.into_body().collect().await.context("the upload proxy broke the connection")?.to_bytes();
        Ok(Answer { code, text: String::from_utf8_lossy(&text).trim().to_owned() })
    };
    let answer = answered.await;
    driven.abort();
    answer
}

fn trust(insecure: bool, authorities: &[Vec<u8>]) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    if insecure {
        let verifier = Arc::new(Anybody::new(&provider));
        return Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(authorities.iter().map(|der| CertificateDer::from(der.clone())));
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// For `--insecure`: takes any certificate. The signature is still checked, so the peer has its key.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl Anybody {
    fn new(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms }
    }
}

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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_completed_as_upstream_does() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let proxy = |url: &str| Proxy::new(url, String::new(), true, &[]);
        assert_eq!(proxy("proxy.example:8443").unwrap().shown(), "https://proxy.example:8443");
        assert_eq!(proxy("http://a/base/").unwrap().path("/v1beta1/upload"), "/base/v1beta1/upload");
        assert_eq!(proxy("http://a/v1beta1/upload").unwrap().path("/v1beta1/upload-async"), "/v1beta1/upload");
        for bad in ["ftp://a", "https://", "a b"] {
            assert!(proxy(bad).is_err(), "{bad}");
        }
    }
}

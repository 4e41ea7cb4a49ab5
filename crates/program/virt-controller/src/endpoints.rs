//! `/healthz`, `/leader` and `/metrics` over TLS, HTTP/1 only.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// Maximum number of concurrent connections; probes and a scraper need only a handful.
const CONNECTIONS: usize = 32;
/// Read timeout of a client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection.
const CONNECTION: Duration = Duration::from_secs(60);
/// How often the certificate files are checked for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum EndpointsError {
    #[error("failed to read the certificate {path}")]
    Certificate {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("failed to use the certificate for TLS")]
    Tls(#[source] rustls::Error),
    #[error("failed to make a certificate")]
    SelfSigned(#[source] rcgen::Error),
}

/// Source of the serving certificate.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files, reloaded when they change.
    Files { cert: PathBuf, key: PathBuf },
    /// Generated at startup, for clients that do not verify the server.
    SelfSigned,
}

/// The endpoints, ready to be served.
pub struct Endpoints {
    acceptor: TlsAcceptor,
    status: Arc<Status>,
    client: Client,
}

impl Endpoints {
    /// `client` is used by `/healthz` to probe the API server.
    pub fn new(certificate: Certificate, status: Arc<Status>, client: Client) -> Result<Self, EndpointsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificates = Certificates::new(certificate, &provider)?;
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            versions.map_err(EndpointsError::Tls)?.with_no_client_auth().with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), status, client })
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let (this, room) = (Arc::new(self), Arc::new(Semaphore::new(CONNECTIONS)));
        while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, or the peer disconnected; retrying at once helps with neither.
                    tracing::debug!(error = &error as &dyn std::error::Error, "no connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let (this, shutdown) = (this.clone(), shutdown.clone());
            tokio::spawn(async move {
                let _place = place;
                shutdown.run_until_cancelled(timeout(CONNECTION, this.converse(stream))).await;
            });
        }
    }

    async fn converse(&self, stream: tokio::net::TcpStream) {
        let Ok(Ok(stream)) = timeout(PATIENCE, self.acceptor.accept(stream)).await else { return };
        let answer = service_fn(|request| async move { Ok::<_, Infallible>(self.answer(&request).await) });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 * 1024);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection failed");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return response(StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new());
        }
        match request.uri().path() {
            "/healthz" => {
                let (good, body) = self.status.health(&self.client).await;
                let code = if good { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
                response(code, "application/json", body.to_string())
            }
            "/leader" => response(StatusCode::OK, "application/json", self.status.leader().to_string()),
            "/metrics" => response(StatusCode::OK, "text/plain; version=0.0.4", self.status.metrics()),
            _ => response(StatusCode::NOT_FOUND, "text/plain", "see /healthz, /leader and /metrics\n".to_owned()),
        }
    }
}

fn response(code: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// The current serving certificate.
#[derive(Debug)]
struct Certificates {
    source: Certificate,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    looked_at: SystemTime,
    written_at: Option<SystemTime>,
}

impl Certificates {
    fn new(source: Certificate, provider: &Arc<CryptoProvider>) -> Result<Self, EndpointsError> {
        let (written_at, key) = (written_at(&source), Arc::new(load(&source, provider)?));
        let current = Mutex::new(Current { key, looked_at: SystemTime::now(), written_at });
        Ok(Self { source, provider: provider.clone(), current })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock();
        if current.looked_at.elapsed().map_or(true, |age| age >= LOOK_AGAIN) {
            current.looked_at = SystemTime::now();
            let written_at = written_at(&self.source);
            if written_at != current.written_at {
                match load(&self.source, &self.provider) {
                    Ok(key) => {
                        current.key = Arc::new(key);
                        current.written_at = written_at;
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "the new certificate is invalid; keeping the old one");
                    }
                }
            }
        }
        Some(current.key.clone())
    }
}

fn written_at(source: &Certificate) -> Option<SystemTime> {
    let Certificate::Files { cert, .. } = source else { return None };
    std::fs::metadata(cert).and_then(|meta| meta.modified()).ok()
}

fn load(source: &Certificate, provider: &CryptoProvider) -> Result<CertifiedKey, EndpointsError> {
    let (chain, key) = match source {
        Certificate::Files { cert, key } => {
            let unreadable = |path: &PathBuf| {
                let path = path.clone();
                |source| EndpointsError::Certificate { path, source }
            };
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(unreadable(cert))?;
            (chain, PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?)
        }
        Certificate::SelfSigned => {
            let names = vec!["virt-controller".to_owned(), "localhost".to_owned()];
            let made = rcgen::generate_simple_self_signed(names).map_err(EndpointsError::SelfSigned)?;
            let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
            (vec![made.cert.der().clone()], key)
        }
    };
    CertifiedKey::from_der(chain, key, provider).map_err(EndpointsError::Tls)
}

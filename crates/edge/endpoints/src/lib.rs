//! Endpoints of our programs for probes and scrapers, such as `/healthz` and `/metrics`: HTTP/1 over TLS; and [`limits`] for
//! all our listeners.

mod health;
pub mod limits;
mod process;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use role_tls::{Certificate, CertificateError, Certificates};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use health::ApiHealth;
use limits::PATIENCE;
pub use process::write_process;

/// Maximum number of concurrent connections; probes and a scraper need only a handful.
const CONNECTIONS: usize = 32;
/// Maximum lifetime of a connection.
const CONNECTION: Duration = Duration::from_secs(60);

/// Why there are no endpoints.
#[derive(Debug, thiserror::Error)]
pub enum EndpointsError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("failed to use the certificate for TLS")]
    Tls(#[source] rustls::Error),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    code: StatusCode,
    kind: &'static str,
    body: String,
}

impl Answer {
    /// A JSON document; a bad one has the code of a server's error.
    pub fn json(good: bool, body: &serde_json::Value) -> Answer {
        let code = if good { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        Answer { code, kind: "application/json", body: body.to_string() }
    }

    /// Metrics in Prometheus' text format.
    pub fn metrics(body: String) -> Answer {
        Answer { code: StatusCode::OK, kind: "text/plain; version=0.0.4", body }
    }

    /// There is nothing at the path.
    pub fn not_found(hint: &str) -> Answer {
        Answer { code: StatusCode::NOT_FOUND, kind: "text/plain", body: format!("{hint}\n") }
    }

    fn into_response(self) -> Response<String> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.code;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(self.kind));
        response
    }
}

/// What is at the paths of a program.
pub trait Answers: Send + Sync + 'static {
    fn answer(&self, path: &str) -> impl Future<Output = Answer> + Send;
}

/// The endpoints, ready to be served.
pub struct Endpoints<A> {
    acceptor: TlsAcceptor,
    answers: A,
}

impl<A: Answers> Endpoints<A> {
    pub fn new(certificate: Certificate, answers: A) -> Result<Self, EndpointsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificates = Certificates::new(certificate, &provider)?;
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            versions.map_err(EndpointsError::Tls)?.with_no_client_auth().with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), answers })
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let this = Arc::new(self);
        let serve = |stream, _| {
            let (this, shutdown) = (this.clone(), shutdown.clone());
            async move {
                shutdown.run_until_cancelled(timeout(CONNECTION, this.converse(stream))).await;
            }
        };
        limits::accept(&listener, CONNECTIONS, &TaskTracker::new(), &shutdown, serve).await;
    }

    async fn converse(&self, stream: TcpStream) {
        let Ok(Ok(stream)) = timeout(PATIENCE, self.acceptor.accept(stream)).await else { return };
        let answer = service_fn(|request| async move { Ok::<_, Infallible>(self.answer(&request).await) });
        if let Err(error) = limits::http().serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection failed");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let refused = Answer { code: StatusCode::METHOD_NOT_ALLOWED, kind: "text/plain", body: String::new() };
            return refused.into_response();
        }
        self.answers.answer(request.uri().path()).await.into_response()
    }
}

//! Health, metrics and webhooks over TLS, with a certificate that may change at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use endpoints::limits::{self, PATIENCE};
use http::{StatusCode, header};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use informer::client::RequestCounter;
use informer::metrics::Exposition;
use install::names;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::mirror::Mirror;
use crate::observe::pair;
use crate::pki::Pair;

/// Maximum number of concurrent connections of a listener.
const CONNECTIONS: usize = 256;
/// How long the result of an API server check is reused.
const HEALTH_HOLDS: Duration = Duration::from_secs(5);

/// The certificate of virt-operator: self-signed until there is one in its Secret.
#[derive(Debug)]
pub(crate) struct Shown {
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Shown {
    pub(crate) fn new() -> Result<Arc<Self>, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let name = names::app::OPERATOR.to_owned();
        let made = rcgen::generate_simple_self_signed([name.clone()]);
        let made = made.map_err(|source| Error::Certificate { name, source })?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let key = CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider).map_err(Error::Tls)?;
        Ok(Arc::new(Self { provider, current: RwLock::new(Arc::new(key)) }))
    }

    /// Presents the certificate in the Secret, from the next handshake on, until `shutdown`.
    pub(crate) async fn follow(self: Arc<Self>, mirror: Mirror, namespace: String, shutdown: CancellationToken) {
        let mut changes = mirror.changes();
        let mut version = serde_json::Value::Null;
        loop {
            if let Some(secret) = mirror.secret(&namespace, names::secret::OPERATOR)
                && secret["metadata"]["resourceVersion"] != version
            {
                version = secret["metadata"]["resourceVersion"].clone();
                match pair(&secret).and_then(|(pair, _)| self.load(&pair)) {
                    Some(key) => *self.current.write() = Arc::new(key),
                    None => tracing::warn!(
                        secret = names::secret::OPERATOR,
                        "the new certificate is invalid; keeping the old one"
                    ),
                }
            }
            if !matches!(shutdown.run_until_cancelled(changes.changed()).await, Some(Ok(()))) {
                return;
            }
        }
    }

    fn load(&self, pair: &Pair) -> Option<CertifiedKey> {
        let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).collect::<Result<Vec<_>, _>>().ok()?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).ok()?;
        CertifiedKey::from_der(chain, key, &self.provider).ok()
    }

    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(Error::Tls)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

/// The state behind health and metrics.
pub(crate) struct Health {
    pub(crate) client: Client,
    pub(crate) requests: RequestCounter,
    pub(crate) leads: AtomicBool,
    pub(crate) synced: AtomicBool,
    pub(crate) checked: Mutex<Option<(std::time::Instant, bool)>>,
}

impl Health {
    async fn is_good(&self) -> bool {
        let known = *self.checked.lock();
        if let Some((at, good)) = known.filter(|(at, _)| at.elapsed() < HEALTH_HOLDS) {
            let _ = at;
            return good;
        }
        let answer = tokio::time::timeout(HEALTH_HOLDS, self.client.apiserver_version()).await;
        let good = matches!(answer, Ok(Ok(_)));
        *self.checked.lock() = Some((std::time::Instant::now(), good));
        good
    }

    fn metrics(&self) -> String {
        let mut text = Exposition::default();
        let flag = |value: &AtomicBool| u8::from(value.load(Ordering::Relaxed));
        for (name, help, value) in [
            ("kubevirt_virt_operator_leading_status", "Whether this virt-operator is the leader.", flag(&self.leads)),
            (
                "kubevirt_virt_operator_ready_status",
                "Whether the caches of this virt-operator are in sync.",
                flag(&self.synced),
            ),
        ] {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
        self.requests.write(&mut text);
        text.into_text()
    }
}

/// `/healthz` and `/metrics`.
pub(crate) fn health(health: Arc<Health>) -> Router {
    Router::new().route(names::health::HEALTHZ, get(healthz)).route("/metrics", get(metrics)).with_state(health)
}

async fn healthz(State(health): State<Arc<Health>>) -> Response {
    match health.is_good().await {
        true => (StatusCode::OK, "ok\n").into_response(),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "the API server does not respond\n").into_response(),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], health.metrics()).into_response()
}

/// Serves until `shutdown`.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, routes: Router, shutdown: CancellationToken) {
    let serve = |stream, _| {
        let (acceptor, routes, shutdown) = (acceptor.clone(), routes.clone(), shutdown.clone());
        async move {
            shutdown.run_until_cancelled(converse(stream, acceptor, routes)).await;
        }
    };
    limits::accept(&listener, CONNECTIONS, &TaskTracker::new(), &shutdown, serve).await;
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, routes: Router) {
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else { return };
    if let Err(error) = limits::http().serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await {
        tracing::debug!(%error, "a connection ended");
    }
}

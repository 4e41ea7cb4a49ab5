//! virt-api as a server of its own, for Kubernetes: webhooks and the aggregated subresource API on one TLS listener.
//!
//! ```text
//! kube-apiserver ─ AdmissionReview ─► /webhooks/NAME          ─► [`webhooks`]: read what the review needs, answer
//!                └ front proxy ─────► /apis/subresources.…    ─► [`authorize`]: who asks? may they? ─► routes
//! ```
//!
//! Certificates, the front proxy's CA and the configuration may change while it runs: each handshake and each review
//! uses the current ones.

mod authorize;
mod configuration;
mod documents;
mod front_proxy;
mod objects;
mod tls;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use endpoints::limits::{self, PATIENCE};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use role_tls::{Certificate, IdentityFiles, NODE_AGENT, NodeCheck, Renewed};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{Admission, LocalDialer, State, Version};
pub use configuration::Observer;
use front_proxy::FrontProxies;
pub use front_proxy::FrontProxyError;
pub use objects::READ_KINDS;

/// Maximum number of concurrent connections. Each console, VNC session and forwarded port is one.
const CONNECTIONS: usize = 4096;
/// After being told to stop: how long it still accepts requests, so that Kubernetes stops sending new ones meanwhile.
const LINGER: Duration = Duration::from_secs(5);
/// Afterwards: how long requests in progress may take.
const FINISH: Duration = Duration::from_secs(5);

/// What the server needs.
pub struct Config {
    /// The API client, with virt-api's own rights.
    pub client: kube::Client,
    /// A second client for SubjectAccessReviews, with a rate limit of its own: webhooks must not delay users.
    pub reviews: kube::Client,
    /// The namespace of the installation.
    pub namespace: String,
    /// The serving certificate.
    pub certificate: Certificate,
    /// How virt-api identifies itself to virt-handlers.
    pub handler: IdentityFiles,
    /// Whether the certificate of a virt-handler has to name its node.
    pub node_check: NodeCheck,
    /// The response of `version`.
    pub version: Version,
    /// Called with each new cluster configuration.
    pub on_configuration: Option<Observer>,
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    FrontProxy(#[from] FrontProxyError),
    #[error(transparent)]
    Certificate(#[from] role_tls::CertificateError),
    #[error("failed to read the cluster configuration: {0}")]
    Configuration(#[source] kube::Error),
}

/// Serves until `shutdown`, then finishes what is in progress.
pub async fn run(config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<(), ServerError> {
    // Streams and followers end last, after the time to linger.
    let end = CancellationToken::new();
    let proxies = FrontProxies::read(config.client.clone()).await?;
    tokio::spawn(proxies.clone().follow(end.clone()));
    let tls = tls::Tls::new(config.certificate, proxies.clone())?;
    let admission = Arc::new(Admission::on_kubernetes());
    let configuration = configuration::Follower {
        client: config.client.clone(),
        namespace: config.namespace.clone(),
        admission: admission.clone(),
        observer: config.on_configuration,
    };
    configuration.read().await.map_err(ServerError::Configuration)?;
    tokio::spawn(configuration.follow(end.clone()));

    let node_check = config.node_check;
    let handler = Renewed::new(config.handler, move |identity| identity.node_client(NODE_AGENT, node_check));
    let subresources = crate::router(State {
        client: config.client.clone(),
        dialer: Arc::new(LocalDialer),
        handler_tls: Arc::new(move |node| {
            handler.current().map(|client| client.to(node)).map_err(std::io::Error::other)
        }),
        namespace: config.namespace.clone(),
        version: config.version,
        shutdown: end.clone(),
    });
    let authorizer = authorize::Authorizer { client: config.reviews, proxies };
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = subresources
        .merge(documents::router())
        .layer(middleware::from_fn_with_state(Arc::new(authorizer), authorize::authorize))
        .merge(webhooks::router(webhooks::Server { client: config.client, admission }))
        .layer(middleware::from_fn_with_state(stopping.clone(), not_ready_when_stopping));

    let (connections, accept) = (TaskTracker::new(), CancellationToken::new());
    let serving = serve(listener, tls, routes, connections.clone(), accept.clone(), end.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = shutdown.cancelled() => {
            stopping.store(true, Ordering::Relaxed);
            tracing::info!(seconds = LINGER.as_secs(), "shutting down: not ready any more, still answering");
            let linger = tokio::time::sleep(LINGER);
            tokio::select! { () = &mut serving => {}, () = linger => {} }
            accept.cancel();
        }
    }
    end.cancel();
    connections.close();
    if tokio::time::timeout(FINISH, connections.wait()).await.is_err() {
        tracing::warn!("some connections did not end in time and are closed");
    }
    Ok(())
}

/// The webhooks alone, for a server of another program: virt-operator answers for those about the KubeVirt object.
pub fn reviews(client: kube::Client, admission: Arc<Admission>) -> Router {
    webhooks::router(webhooks::Server { client, admission })
}

/// Readiness probes fail while the server lingers.
async fn not_ready_when_stopping(
    axum::extract::State(stopping): axum::extract::State<Arc<AtomicBool>>,
    request: Request,
    next: Next,
) -> Response {
    if stopping.load(Ordering::Relaxed) && request.uri().path().ends_with("/healthz") {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    next.run(request).await
}

async fn serve(
    listener: TcpListener,
    tls: tls::Tls,
    routes: Router,
    connections: TaskTracker,
    accept: CancellationToken,
    end: CancellationToken,
) {
    let tls = Arc::new(tls);
    let serve = |stream, from| {
        let (tls, routes, end) = (tls.clone(), routes.clone(), end.clone());
        async move { converse(stream, from, &tls, routes, end).await }
    };
    limits::accept(&listener, CONNECTIONS, &connections, &accept, serve).await;
}

async fn converse(stream: TcpStream, from: SocketAddr, tls: &tls::Tls, routes: Router, end: CancellationToken) {
    // Console keystrokes are single bytes.
    let _ = stream.set_nodelay(true);
    let (stream, peer) = match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
        Ok(Ok(accepted)) => accepted,
        // The kubelet's probe connects and says nothing.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return tracing::debug!(%from, %error, "a client left");
        }
        Ok(Err(error)) => return tracing::info!(%from, %error, "refused a client"),
        Err(_) => return tracing::debug!(%from, "a client did not finish its handshake"),
    };
    let routes = routes.layer(axum::Extension(peer));
    let connection =
        limits::http().serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%from, %error, "a connection ended");
    }
}

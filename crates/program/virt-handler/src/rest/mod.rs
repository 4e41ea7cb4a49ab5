//! The REST endpoints for virt-api: console, VNC and commands for the guests of this node.
//!
//! Clients must present a certificate of the cluster's CA with virt-api's common name; others fail the TLS handshake.

mod commands;
mod streams;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use endpoints::limits::{self, PATIENCE};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use informer::Key;
use role_tls::{NODE_AGENT_CLIENT, Renewed, Source};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agents::Agents;
use crate::error::chain;
use crate::launcher::Launcher;
use crate::rest::streams::Sessions;

/// Maximum number of concurrent connections. Each console and VNC session of a guest is one.
const CONNECTIONS: usize = 1024;

/// Timeout of a live read for a VMI that is not in the cache.
const LOOK_UP: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Server {
    agents: Agents,
    sessions: Arc<Sessions>,
    shutdown: CancellationToken,
}

/// TLS that accepts virt-api only.
pub(crate) type Tls = Arc<Renewed<ServerConfig>>;

pub(crate) fn tls(identity: Source) -> Tls {
    Arc::new(Renewed::new(identity, |identity| identity.server(NODE_AGENT_CLIENT)))
}

/// Serves until the shutdown, which also closes open streams.
pub(crate) async fn serve(listen: TcpListener, tls: Tls, agents: Agents, shutdown: CancellationToken) {
    let server = Server { agents, sessions: Arc::default(), shutdown: shutdown.clone() };
    let (router, connections) = (router(server), TaskTracker::new());
    let serve = |stream, _| {
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        async move {
            shutdown.run_until_cancelled(connection(stream, &tls, router)).await;
        }
    };
    limits::accept(&listen, CONNECTIONS, &connections, &shutdown, serve).await;
    connections.close();
    connections.wait().await;
}

fn router(server: Server) -> Router {
    let vmi = Router::new()
        .route("/console", get(streams::console))
        .route("/vnc", get(streams::vnc))
        .route("/pause", put(commands::pause))
        .route("/unpause", put(commands::unpause))
        .route("/softreboot", put(commands::soft_reboot))
        .route("/reset", put(commands::reset))
        .route("/guestosinfo", get(commands::guest_os_info))
        .route("/migrationprogress", get(commands::migration_progress));
    Router::new()
        .nest("/v1/namespaces/{namespace}/virtualmachineinstances/{name}", vmi)
        .route("/healthz", get(async || "ok"))
        .with_state(server)
}

async fn connection(stream: TcpStream, tls: &Renewed<ServerConfig>, router: Router) {
    // Console keystrokes are single bytes.
    let _ = stream.set_nodelay(true);
    let acceptor = match tls.current() {
        Ok(config) => TlsAcceptor::from(config),
        Err(error) => return tracing::warn!(error = chain(&error), "no certificate to present to virt-api"),
    };
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::info!(%error, "refused a client"),
        Err(_) => return,
    };
    let service = TowerToHyperService::new(router);
    let connection = limits::http().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.with_upgrades().await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Why a request is refused, as a message for the user.
#[derive(Debug)]
pub(crate) struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

/// A VMI of this node and the launcher responsible for it.
pub(crate) struct Target {
    pub(crate) vmi: Arc<VirtualMachineInstance>,
    pub(crate) launcher: Arc<Launcher>,
}

impl Server {
    pub(crate) async fn target(&self, namespace: &str, name: &str) -> Result<Target, Refusal> {
        let unknown = || Refusal(StatusCode::NOT_FOUND, format!("VMI {namespace}/{name} is not on this node"));
        let unanswered = |why: String| {
            let text = format!("cannot find out whether VMI {namespace}/{name} is on this node: {why}");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, text)
        };
        let vmi = match tokio::time::timeout(LOOK_UP, self.agents.vmi(&Key::new(namespace, name))).await {
            Ok(Ok(vmi)) => vmi.ok_or_else(unknown)?,
            Ok(Err(error)) => return Err(unanswered(chain(&error))),
            Err(_) => return Err(unanswered(format!("no answer within {} s", LOOK_UP.as_secs()))),
        };
        let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
        match self.agents.launcher_of(uid) {
            Some(launcher) => Ok(Target { vmi, launcher }),
            None => Err(Refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the launcher of VMI {namespace}/{name} does not answer"),
            )),
        }
    }
}

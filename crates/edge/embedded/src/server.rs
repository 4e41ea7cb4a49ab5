//! The server as a whole: opened once, served on any number of listeners.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use jiff::Timestamp;
use machinery::rights::Program;
use parking_lot::Mutex;
use review::Hook;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::{Authorizer, User};
use crate::bootstrap::System;
use crate::cache::{Cache, Object};
use crate::gc::Collector;
use crate::hooks::Hooks;
use crate::http::{Api, Peer};
use crate::kinds::{Kinds, definitions};
use crate::quota::Keeper;
use crate::registry::Registry;
use crate::store::{Engine, RedbEngine, StoreError, Writer};

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests in flight may take after shutdown began.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of concurrent streams, such as watches, per connection.
const MAX_STREAMS: u32 = 1000;

/// Configuration of a server.
pub struct Config {
    /// The store's file, created if missing. Its directory must exist.
    pub store_path: PathBuf,
    /// CAs that are trusted to sign client certificates.
    pub client_ca_pem: String,
    /// The server's certificate, followed by intermediates.
    pub cert_pem: String,
    /// The server's key.
    pub key_pem: String,
    /// Admission hooks, in order.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// What is installed in the cluster.
    pub system: System,
}

/// Why a server cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An unusable certificate or key.
    #[error("failed to use the {what}")]
    Tls {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A thread or listener could not be created.
    #[error("failed to {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// An initial object was rejected.
    #[error("failed to write {object}: {reason}")]
    Bootstrap { object: String, reason: String },
}

/// A running API server. Clones are handles to it; it stops on [`Server::close`] or when the last handle is dropped.
#[derive(Clone)]
pub struct Server {
    api: Arc<Api>,
    tls: TlsAcceptor,
    system: Arc<System>,
    background: Arc<Background>,
}

/// The garbage collector's task, stopped with the server.
struct Background {
    stop: CancellationToken,
    collector: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    /// Opens the store, loads it and starts garbage collection. Fails with a clear error if another server uses the
    /// store.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let tls = TlsAcceptor::from(Arc::new(tls_config(&config)?));
        let path = config.store_path;
        let opened = tokio::task::spawn_blocking(move || open_store(path)).await;
        let (cache, writer) = opened.map_err(|err| Error::Io { doing: "load the store", source: err.into() })??;
        let registry = Registry {
            kinds: Kinds::get(),
            cache: cache.clone(),
            writer,
            hooks: Hooks::new(Kinds::get(), &config.hooks),
            quota_turn: Default::default(),
        };
        let registry = Arc::new(registry);
        let authorizer = Authorizer::new(cache, Kinds::get());
        let api = Arc::new(Api { registry: registry.clone(), authorizer, subresources: OnceLock::new() });
        let stop = CancellationToken::new();
        tokio::spawn(Keeper::new(registry.clone()).run(stop.clone()));
        let collector = tokio::spawn(Collector::new(registry).run(stop.clone()));
        let background = Arc::new(Background { stop, collector: Mutex::new(Some(collector)) });
        Ok(Self { api, tls, system: Arc::new(config.system), background })
    }

    /// Creates the initial objects of a cluster that are missing.
    pub async fn bootstrap(&self) -> Result<(), Error> {
        crate::bootstrap::run(&self.api.registry, &self.system).await
    }

    /// Grants programs the rights they declare. Existing roles are updated.
    pub async fn grant(&self, programs: &[Program]) -> Result<(), Error> {
        crate::bootstrap::grant(&self.api.registry, &self.system, programs).await
    }

    /// Forwards authorised requests for the aggregated API to this router; the request's extensions hold the [`User`].
    /// Only the first router is used.
    pub fn mount_subresources(&self, router: axum::Router) {
        if self.api.subresources.set(router).is_err() {
            tracing::warn!("subresources are mounted already; the second router is ignored");
        }
    }

    /// Serves on a listener until shutdown, then drains requests in flight.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), Error> {
        let failed = |source| Error::Io { doing: "listen", source };
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(self.clone().connection(stream, shutdown.clone()));
                    }
                    Err(err) => {
                        tracing::warn!(error = %err, "failed to accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        let drained = tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(connections = connections.len(), "closing connections that did not finish in time");
            connections.shutdown().await;
        }
        Ok(())
    }

    /// Stops garbage collection, finishes queued writes and releases the store. Reads still work.
    pub async fn close(&self) {
        self.background.stop.cancel();
        let collector = self.background.collector.lock().take();
        if let Some(collector) = collector
            && let Err(err) = collector.await
        {
            tracing::error!(error = %err, "garbage collector did not stop cleanly");
        }
        let registry = self.api.registry.clone();
        // Blocking, since the writer thread may be in the middle of a commit.
        let closed = tokio::task::spawn_blocking(move || registry.writer.close()).await;
        if let Err(err) = closed {
            tracing::error!(error = %err, "store did not close cleanly");
        }
    }

    async fn connection(self, stream: TcpStream, shutdown: CancellationToken) {
        let _unimportant = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE, self.tls.accept(stream)).await;
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(err)) => return tracing::debug!(error = %err, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake took too long"),
        };
        let user = match stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) {
            None => User::anonymous(),
            Some(certificate) => match User::from_certificate(certificate) {
                Ok(user) => user,
                Err(err) => return tracing::info!(error = %err, "rejected a client"),
            },
        };
        let peer = Peer { user: Arc::new(user), shutdown: shutdown.clone() };
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (api, peer) = (self.api.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(api.handle(&peer, request.map(Body::new)).await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new());
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(err) = result {
            tracing::debug!(error = %err, "a connection broke");
        }
    }
}

/// Opens the file and loads the cache.
fn open_store(path: PathBuf) -> Result<(Arc<Cache>, Writer), Error> {
    let mut engine = RedbEngine::open(&path)?;
    if let Err(err) = engine.compact() {
        tracing::warn!(error = &err as &dyn std::error::Error, "failed to compact the store");
        engine.reopen()?;
    }
    let kinds = Kinds::get();
    let cache = Arc::new(Cache::new(kinds.len()));
    let revision = engine.load(&mut |key, bytes| match kinds.of_storage_key(key) {
        None => tracing::warn!(key, "the store holds an object of an unknown kind"),
        Some(kind) => match Object::decode(kinds.strategy(kind), bytes) {
            Ok(object) => cache.load(kind, object),
            Err(err) => tracing::error!(key, error = &err as &dyn std::error::Error, "skipping a stored object"),
        },
    })?;
    // To a client, a resource version of 0 would mean "any".
    if let Some(kind) = kinds.find("apiextensions.k8s.io", "customresourcedefinitions") {
        definitions(revision.max(1), Timestamp::now()).into_iter().for_each(|object| cache.load(kind, object));
    }
    cache.loaded(revision);
    let writer = Writer::start(Box::new(engine), cache.clone(), kinds)
        .map_err(|source| Error::Io { doing: "start the store's writer", source })?;
    Ok((cache, writer))
}

fn tls_config(config: &Config) -> Result<rustls::ServerConfig, Error> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(config.client_ca_pem.as_bytes()) {
        let authority = authority.map_err(|err| tls_error("client authority", err))?;
        roots.add(authority).map_err(|err| tls_error("client authority", err))?;
    }
    let clients = WebPkiClientVerifier::builder(Arc::new(roots))
        .allow_unauthenticated() // health and version need no authentication
        .build()
        .map_err(|err| tls_error("client authority", err))?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(config.cert_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|err| tls_error("server certificate", err))?;
    let key = PrivateKeyDer::from_pem_slice(config.key_pem.as_bytes()).map_err(|err| tls_error("server key", err))?;
    let mut tls = rustls::ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|err| tls_error("server certificate", err))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

fn tls_error(what: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Tls { what, source: source.into() }
}

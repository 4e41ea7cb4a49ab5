//! The upload proxy: takes images over TLS, for a token.
//!
//! Its paths and answers are those of the Containerized Data Importer, whose clients are virtctl and dashboards. It is on
//! the loopback of this machine. A token says the namespace and the claim; nothing else of a request decides where its
//! content goes.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use endpoints::limits::{self, PATIENCE};
use futures::future::BoxFuture;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use imports::token::{Refusal, bearer};
use imports::upload::{Endpoint, Readiness, endpoint, readiness};
use informer::{Key, Store};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::transfers::{Busy, Session, Transfers, Upload};
use crate::{Error, Tokens};

/// Connections at a time; more are closed.
const CONNECTIONS: usize = 64;
/// How long a request waits for its claim, as upstream does.
const READY: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long a client may send nothing.
const IDLE: Duration = Duration::from_secs(120);
/// Content of a type that only upstream's own cloner sends.
const CLONES: [&str; 2] = ["blockdevice-clone", "filesystem-clone"];
const CONTENT_TYPE_HEADER: &str = "x-cdi-content-type";

/// Where uploads are taken.
pub struct Proxy {
    /// Bound already, so that its port is known.
    pub listener: TcpListener,
    /// The server's certificate, followed by intermediates.
    pub cert_pem: String,
    pub key_pem: String,
    /// The address for clients.
    pub url: String,
    pub tokens: Tokens,
}

impl Proxy {
    /// The task that serves until `shutdown`.
    pub(crate) fn serve(
        self,
        claims: Store<PersistentVolumeClaim>,
        transfers: Transfers,
        shutdown: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, Error> {
        let acceptor = acceptor(&self.cert_pem, &self.key_pem)?;
        self.listener.set_nonblocking(true).map_err(Error::Listen)?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(Error::Listen)?;
        let server = Arc::new(Server { acceptor, tokens: self.tokens, claims, transfers });
        Ok(Box::pin(async move {
            let connections = TaskTracker::new();
            let serve = |stream, _| {
                let (server, shutdown) = (server.clone(), shutdown.clone());
                async move {
                    shutdown.run_until_cancelled(server.converse(stream)).await;
                }
            };
            limits::accept(&listener, CONNECTIONS, &connections, &shutdown, serve).await;
            connections.close();
            connections.wait().await;
        }))
    }
}

fn acceptor(cert_pem: &str, key_pem: &str) -> Result<TlsAcceptor, Error> {
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(Error::Certificate)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(Error::Tls)?.with_no_client_auth();
    let mut config = config.with_single_cert(chain.map_err(Error::Certificate)?, key).map_err(Error::Tls)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Server {
    acceptor: TlsAcceptor,
    tokens: Tokens,
    claims: Store<PersistentVolumeClaim>,
    transfers: Transfers,
}

/// An answer with a sentence, or without.
struct Answer {
    code: StatusCode,
    text: String,
}

impl Answer {
    fn new(code: StatusCode) -> Self {
        Self { code, text: String::new() }
    }

    fn saying(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.text)));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        // Browsers of dashboards; the token is what protects.
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    }
}

impl Server {
    async fn converse(self: Arc<Self>, stream: TcpStream) {
        let Ok(Ok(stream)) = timeout(PATIENCE, self.acceptor.accept(stream)).await else { return };
        let answer = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        if let Err(error) = limits::http().serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection failed");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if *request.method() == Method::OPTIONS {
            let mut response = Answer::new(StatusCode::NO_CONTENT).into_response();
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, HEAD, GET"));
            headers.insert(
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("authorization, content-type, x-cdi-content-type"),
            );
            return response;
        }
        if request.uri().path() == "/healthz" {
            return Answer::saying(StatusCode::OK, "OK").into_response();
        }
        self.upload(request).await.unwrap_or_else(|answer| answer).into_response()
    }

    async fn upload(&self, request: Request<Incoming>) -> Result<Answer, Answer> {
        let endpoint = endpoint(request.uri().path()).ok_or(Answer::new(StatusCode::NOT_FOUND))?;
        let header = request.headers().get(AUTHORIZATION).map(|header| header.to_str().unwrap_or_default());
        let target = bearer(header).and_then(|token| self.tokens.check(token, Timestamp::now()));
        let target = target.map_err(|refusal| match refusal {
            Refusal::BadRequest => Answer::new(StatusCode::BAD_REQUEST),
            Refusal::Unauthorized => Answer::new(StatusCode::UNAUTHORIZED),
        })?;
        let key = Key::new(target.namespace, target.name);
        self.ready(&key).await?;
        match *request.method() {
            // How clients find out whether there is an asynchronous endpoint.
            Method::HEAD if endpoint.asynchronous => return Ok(Answer::new(StatusCode::OK)),
            Method::POST => {}
            _ => return Err(Answer::new(StatusCode::NOT_FOUND)),
        }
        let kind = request.headers().get(CONTENT_TYPE_HEADER).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if CLONES.contains(&kind) {
            let text = format!("content of the type {kind} is not taken from outside");
            return Err(Answer::saying(StatusCode::BAD_REQUEST, text));
        }
        let boundary = if endpoint.form { Some(boundary(&request)?) } else { None };
        let session = self.transfers.upload(&key).await.map_err(busy)?;
        tracing::info!(%key, "upload begins");
        take(request.into_body(), session, endpoint, boundary).await
    }

    /// Waits until the claim takes an upload.
    async fn ready(&self, key: &Key) -> Result<(), Answer> {
        let deadline = tokio::time::Instant::now() + READY;
        loop {
            match readiness(&key.name, self.claims.get(key).as_deref()) {
                Readiness::Ready => return Ok(()),
                Readiness::Never(why) => return Err(Answer::saying(StatusCode::SERVICE_UNAVAILABLE, why)),
                Readiness::Soon if tokio::time::Instant::now() >= deadline => {
                    let why = format!("PVC {} is not ready for an upload yet", key.name);
                    return Err(Answer::saying(StatusCode::SERVICE_UNAVAILABLE, why));
                }
                Readiness::Soon => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

fn busy(busy: Busy) -> Answer {
    let unavailable = |why: &str| Answer::saying(StatusCode::SERVICE_UNAVAILABLE, why);
    match busy {
        Busy::NotReady => unavailable("the claim is not ready for an upload"),
        Busy::Uploading => unavailable("another upload to the claim is in progress"),
        Busy::Done => Answer::saying(StatusCode::CONFLICT, "the claim is filled already"),
        Busy::Full => unavailable("too many transfers are in progress; try again later"),
        Busy::Machine => Answer::saying(StatusCode::INTERNAL_SERVER_ERROR, "the upload cannot begin; see the log"),
    }
}

/// Takes the content and answers when it is stored, or on the asynchronous endpoints when it has arrived.
async fn take(
    body: Incoming,
    session: Session,
    endpoint: Endpoint,
    boundary: Option<String>,
) -> Result<Answer, Answer> {
    let Session { mut sink, mut state, abort } = session;
    // Whatever ends this function, a connection that breaks or a shutdown, ends the upload, too.
    let unfinished = abort.clone().drop_guard();
    let mut content = Content { body, form: boundary.map(|boundary| crate::form::Form::new(&boundary)) };
    loop {
        let piece = match timeout(IDLE, content.next()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(why)) => return Err(interrupted(why)),
            Err(_) => return Err(interrupted(format!("nothing arrived for {} s", IDLE.as_secs()))),
        };
        let Some(piece) = piece else { break };
        if sink.write_all(&piece).await.is_err() {
            // The worker does not read any more: it says why.
            return ended(&mut state).await;
        }
    }
    drop(sink);
    // All has arrived: from here on the upload does not need its client.
    if endpoint.asynchronous {
        let _ = unfinished.disarm();
        let converted = state.wait_for(|state| *state != Upload::Taking).await.map(|state| state.clone());
        return match converted {
            Ok(Upload::Taking | Upload::Converting | Upload::Done) => Ok(Answer::new(StatusCode::OK)),
            Ok(Upload::Failed { message, too_large }) => Err(failure(&message, too_large)),
            Err(_) => Err(failure("it was lost", false)),
        };
    }
    let answer = ended(&mut state).await;
    let _ = unfinished.disarm();
    answer
}

fn interrupted(why: impl std::fmt::Display) -> Answer {
    Answer::saying(StatusCode::BAD_REQUEST, format!("Saving stream failed: {why}"))
}

async fn ended(state: &mut tokio::sync::watch::Receiver<Upload>) -> Result<Answer, Answer> {
    let last =
        state.wait_for(|state| matches!(state, Upload::Done | Upload::Failed { .. })).await.map(|state| state.clone());
    match last {
        Ok(Upload::Failed { message, too_large }) => Err(failure(&message, too_large)),
        Ok(_) => Ok(Answer::new(StatusCode::OK)),
        Err(_) => Err(failure("it was lost", false)),
    }
}

fn failure(message: &str, too_large: bool) -> Answer {
    if too_large {
        let text = format!(
            "Saving stream failed: effective image size is larger than the reported available storage: {message}"
        );
        return Answer::saying(StatusCode::BAD_REQUEST, text);
    }
    Answer::saying(StatusCode::INTERNAL_SERVER_ERROR, format!("Saving stream failed: {message}"))
}

fn boundary(request: &Request<Incoming>) -> Result<String, Answer> {
    let header = request.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let found = header.and_then(crate::form::boundary);
    found.ok_or_else(|| Answer::saying(StatusCode::BAD_REQUEST, "the request is no multipart form"))
}

/// The content of a request: its body, or a part of the form in it.
struct Content {
    body: Incoming,
    form: Option<crate::form::Form>,
}

impl Content {
    /// The next piece; `None` after the last one. A body that breaks off is an error.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(piece) = self.form.as_mut().and_then(crate::form::Form::take) {
                return Ok(Some(piece));
            }
            if self.form.as_ref().is_some_and(crate::form::Form::is_over) {
                return Ok(None);
            }
            let frame = match self.body.frame().await {
                None if self.form.is_some() => return Err("the form has no complete part \"file\"".to_owned()),
                None if self.body.is_end_stream() => return Ok(None),
                None => return Err("the connection broke off".to_owned()),
                Some(frame) => frame.map_err(|error| error.to_string())?,
            };
            let Ok(piece) = frame.into_data() else { continue };
            match &mut self.form {
                None => return Ok(Some(piece)),
                Some(form) => form.give(&piece)?,
            }
        }
    }
}

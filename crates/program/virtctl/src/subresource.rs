//! Requests to `subresources.kubevirt.io`: operations by PUT, streams by WebSocket.

use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::core::Status;
use launcher_contract::streams::SUBPROTOCOL;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};

use crate::connect::Session;

/// A connected stream.
pub(crate) type Stream = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The kind of object an operation is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    VirtualMachine,
    VirtualMachineInstance,
}

/// The path of an operation on an object.
pub(crate) fn path(kind: Kind, namespace: &str, name: &str, operation: &str) -> String {
    let plural = match kind {
        Kind::VirtualMachine => "virtualmachines",
        Kind::VirtualMachineInstance => "virtualmachineinstances",
    };
    format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/{plural}/{name}/{operation}")
}

/// Requests an operation. The response body of a success is ignored.
pub(crate) async fn put(session: &Session, path: &str, options: &serde_json::Value) -> Result<(), kube::Error> {
    let request = Request::put(path)
        .header(CONTENT_TYPE, "application/json")
        .body(options.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    session.client.request_text(request).await.map(drop)
}

/// Reads a subresource.
pub(crate) async fn get(session: &Session, path: &str) -> Result<String, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    session.client.request_text(request).await
}

/// Opens a stream. A refusal is the server's `Status`, as with any other request: the server upgrades the connection
/// only after it has reached the far side.
pub(crate) async fn stream(session: &Session, path: &str) -> Result<Stream, StreamError> {
    let key = generate_key();
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
        .body(Body::empty())
        .map_err(kube::Error::HttpError)?;
    let response = session.client.send(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response).await.into());
    }
    if response.headers().get(SEC_WEBSOCKET_ACCEPT).is_none_or(|accept| *accept != derive_accept_key(key.as_bytes())) {
        return Err(StreamError::Handshake("invalid Sec-WebSocket-Accept header"));
    }
    // A server that names no protocol is assumed to use ours, as in upstream's clients.
    if response.headers().get(SEC_WEBSOCKET_PROTOCOL).is_some_and(|protocol| protocol != SUBPROTOCOL) {
        return Err(StreamError::Handshake("server chose a subprotocol other than plain.kubevirt.io"));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(kube::Error::HyperError)?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}

/// The reason with which the server closed a stream, unless it was a normal closure.
pub(crate) fn expulsion(frame: Option<CloseFrame>) -> Option<String> {
    let frame = frame.filter(|frame| !matches!(frame.code, CloseCode::Normal | CloseCode::Away | CloseCode::Status))?;
    Some(if frame.reason.is_empty() { format!("close code {}", frame.code) } else { frame.reason.to_string() })
}

/// Why a stream could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("WebSocket protocol error: {0}")]
    Handshake(&'static str),
    #[error(transparent)]
    Request(#[from] kube::Error),
}

impl StreamError {
    /// The HTTP status code of a refusal.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            StreamError::Request(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The error as a message for users.
    pub(crate) fn describe(self, server: &str) -> anyhow::Error {
        match self {
            StreamError::Request(error) => crate::api_error(error, server),
            error => error.into(),
        }
    }
}

/// The response to a request that was not upgraded. Anything but a `Status` is passed on as text.
async fn refusal(response: Response<Body>) -> kube::Error {
    let code = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return error,
    };
    let mut status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(&body).trim(), code.canonical_reason().unwrap_or_default())
    });
    status.code = code.as_u16();
    kube::Error::Api(status.boxed())
}

/// Reads the version the server reports.
pub(crate) async fn server_version(session: &Session) -> anyhow::Result<serde_json::Value> {
    let request = Request::get("/apis/subresources.kubevirt.io/v1/version").body(Vec::new())?;
    session.client.request(request).await.map_err(|error| crate::api_error(error, &session.server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::ws::{Message as ServerMessage, WebSocketUpgrade};
    use axum::routing::get;
    use futures::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message;

    async fn session(router: Router) -> Session {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        Session { client, namespace: "default".into(), server }
    }

    #[tokio::test]
    async fn a_stream_carries_bytes_both_ways() {
        let echo = |upgrade: WebSocketUpgrade| async {
            upgrade.protocols([SUBPROTOCOL]).on_upgrade(|mut socket| async move {
                while let Some(Ok(ServerMessage::Binary(data))) = socket.recv().await {
                    if socket.send(ServerMessage::Binary(data)).await.is_err() {
                        break;
                    }
                }
            })
        };
        let path = path(Kind::VirtualMachineInstance, "default", "demo", "console");
        let session = session(Router::new().route(&path, get(echo))).await;
        let mut stream = stream(&session, &path).await.unwrap();
        stream.send(Message::Binary("root\n".into())).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), Message::Binary("root\n".into()));
    }

    #[tokio::test]
    async fn a_refusal_before_the_upgrade_keeps_its_code_and_words() {
        let refuse = || async {
            let status = Status::failure("VMI demo is not running", "BadRequest").with_code(400);
            (StatusCode::BAD_REQUEST, serde_json::to_string(&status).unwrap())
        };
        let session =
            session(Router::new().route("/status", get(refuse)).route("/text", get(|| async { "hello" }))).await;

        let error = stream(&session, "/status").await.unwrap_err();
        assert_eq!(error.code(), Some(400));
        assert_eq!(error.describe(&session.server).to_string(), "VMI demo is not running");

        let error = stream(&session, "/text").await.unwrap_err();
        assert_eq!(error.code(), Some(200), "an answer that is no upgrade is no stream");
    }
}

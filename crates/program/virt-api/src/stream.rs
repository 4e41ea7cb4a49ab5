//! Streams to the guest: the client's WebSocket, spliced to virt-handler's.
//!
//! ```text
//! client ──WebSocket──► this server ──WebSocket──► virt-handler ──► serial line, VNC
//!          handshake 2               handshake 1
//!          └────────── bytes, frames and all, end to end ──────┘
//! ```
//!
//! The far side is dialled first, so that any failure is still an ordinary HTTP error for the client. After both
//! handshakes this server does not parse frames: masks, pings and close frames travel end to end. That works because
//! both legs use the same subprotocol and no extensions.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
pub use launcher_contract::streams::SUBPROTOCOL;
use subresources::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

/// How long a side may take to close after the stream has ended.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection after the HTTP upgrade. Bytes received right after the handshake are still buffered in it.
pub(crate) type Raw = TokioIo<Upgraded>;

/// A client that has requested a WebSocket and has not been answered yet.
pub(crate) struct ClientUpgrade {
    on_upgrade: OnUpgrade,
    accept: HeaderValue,
    subprotocol: bool,
}

impl ClientUpgrade {
    /// Parses the client's handshake.
    pub(crate) fn from_request(request: &mut Request) -> Result<Self, Refusal> {
        let headers = request.headers();
        if !lists(headers, header::UPGRADE, "websocket") || !lists(headers, header::CONNECTION, "upgrade") {
            return Err(Refusal::bad_request("this endpoint is a stream: the request must upgrade to a WebSocket"));
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(Refusal::bad_request("unsupported WebSocket version; use 13"));
        }
        let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
            return Err(Refusal::bad_request("the WebSocket request lacks the header Sec-WebSocket-Key"));
        };
        let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).expect("base64 is a valid header value");
        let subprotocol = lists(headers, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        let Some(on_upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
            return Err(Refusal::bad_request("the connection cannot be upgraded; use HTTP/1.1"));
        };
        Ok(ClientUpgrade { on_upgrade, accept, subprotocol })
    }

    /// Answers the handshake and runs `serve` on the upgraded connection.
    pub(crate) fn accept<F, Fut>(self, serve: F) -> Response
    where
        F: FnOnce(Raw) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if self.subprotocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        }
        let on_upgrade = self.on_upgrade;
        tokio::spawn(async move {
            match on_upgrade.await {
                Ok(connection) => serve(TokioIo::new(connection)).await,
                Err(error) => tracing::debug!(%error, "a client left before its stream was opened"),
            }
        });
        response
    }
}

/// Whether a comma-separated, possibly repeated header contains the token.
fn lists(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

/// Copies bytes both ways until one side closes or `shutdown` is canceled, then closes both.
pub(crate) async fn splice<A, B>(a: A, b: B, shutdown: &CancellationToken)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut a_read, mut a_write) = split(a);
    let (mut b_read, mut b_write) = split(b);
    let ended = tokio::select! {
        ended = tokio::io::copy(&mut a_read, &mut b_write) => ended,
        ended = tokio::io::copy(&mut b_read, &mut a_write) => ended,
        () = shutdown.cancelled() => Ok(0),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a stream broke");
    }
    let goodbye = async { tokio::join!(a_write.shutdown(), b_write.shutdown()) };
    // The peer may already be gone.
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}
